package program

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// counts is an answer.py that answers with its pid and the number of the call.
const counts = "import os\n\noffers = []\nn = 0\n\n\ndef answer(params):\n    global n\n    n += 1\n    return '%d %d' % (os.getpid(), n)\n"

// upgradable is an Orla that was started from a file that can be replaced.
type upgradable struct {
	*running
	program string
	log     *follower
	pid     int
	control *control.Client
}

// serveUpgradable starts an Orla from a copy of the program.
func serveUpgradable(t *testing.T, from, tools, config string) *upgradable {
	t.Helper()
	u := &upgradable{program: filepath.Join(t.TempDir(), "orla")}
	u.install(t, from)
	dir := t.TempDir()
	u.running = startPrepared(t, dir, withEnv("PWD="+dir, "OLDPWD=", "_="), u.program, "--config", writeConfig(t, tools, config))
	u.log, u.pid = u.follow(), u.cmd.Process.Pid
	u.url, _ = u.log.next("serving", nil)["url"].(string)
	u.control = control.NewClient(u.status().Socket)
	return u
}

// install puts a program in the place of the one that runs, as a package manager does. It writes nothing: a file that was
// written by a process that forks may be busy.
func (u *upgradable) install(t *testing.T, from string) {
	t.Helper()
	if err := os.Link(from, u.program+".new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(u.program+".new", u.program); err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(u.program + ".new") // rename leaves it if it is the same file
}

// upgrade upgrades once, and waits until the new program serves.
func (u *upgradable) upgrade() {
	u.t.Helper()
	next, err := u.control.Upgrade(u.t.Context(), "")
	if err != nil {
		u.t.Fatal(err)
	}
	u.log.next("serving", nil)
	now, err := u.control.Status(u.t.Context())
	if err != nil {
		u.t.Fatal(err)
	}
	if now.Upgrades != next.Number || now.Pid != u.pid {
		u.t.Fatalf("process %d has %d upgrades; want %d and %d", now.Pid, now.Upgrades, u.pid, next.Number)
	}
}

// SPEC Q1: a binary that exits, hangs, does not understand the state or the configuration, or cannot be executed after
// all leaves the old program serving, with the reason in the answer or in the status.
func TestQ1ABinaryThatCannotGoOn(t *testing.T) {
	needs.Time(t, "waits for upgrades that fail")
	t.Parallel()
	tools := t.TempDir()
	p := newPack(t, tools, "counter", "", map[string]string{"answer.py": counts})
	u := serveUpgradable(t, checkedBinary(t), tools, "")
	u.waitListed("counter")
	counted := 0
	goesOn := func(why string) {
		t.Helper()
		counted++
		if got, want := u.mustCall("counter"), fmt.Sprintf("%d %d", p.pids()[0], counted); got != want {
			t.Errorf("after a binary that %s: %q; want %q", why, got, want)
		}
		if s, err := u.control.Status(t.Context()); err != nil || s.Pid != u.pid || s.Upgrades != 0 {
			t.Errorf("after a binary that %s: %+v, %v", why, s, err)
		}
	}
	goesOn("is not there")
	real := checkedBinary(t)
	for why, c := range map[string]struct{ script, says string }{
		"exits":      {"echo it is broken >&2; exit 3", "ended with 3: it is broken"},
		"is another": {"exit 0", "does not say that it can go on"},
		"is newer":   {`echo '{"understands":2,"version":"9"}'`, "does not say that it can go on"},
		"hangs":      {"exec sleep 100", "did not answer within 10s"},
	} {
		binary := testkit.WriteTool(t, t.TempDir(), "orla", "#!/bin/sh\n"+c.script+"\n")
		_, err := u.control.Upgrade(t.Context(), binary)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("a binary that %s: %v; want %q", why, err, c.says)
		}
		if s, err := u.control.Status(t.Context()); err != nil || !strings.Contains(s.NotUpgraded, c.says) {
			t.Errorf("a binary that %s: the status says %q, %v", why, s.NotUpgraded, err)
		}
		goesOn(why)
	}
	vanishes := testkit.WriteTool(t, t.TempDir(), "orla", fmt.Sprintf("#!/bin/sh\nrm -- \"$0\"\nexec %s \"$@\"\n", real))
	if _, err := u.control.Upgrade(t.Context(), vanishes); err != nil {
		t.Fatal(err)
	}
	u.log.next("serving", nil)
	goesOn("vanishes")
	if s, err := u.control.Status(t.Context()); err != nil || !strings.Contains(s.NotUpgraded, "no such file") {
		t.Errorf("a binary that vanishes: the status says %q, %v", s.NotUpgraded, err)
	}
	u.upgrade()
	counted++
	if got, want := u.mustCall("counter"), fmt.Sprintf("%d %d", p.pids()[0], counted); got != want {
		t.Errorf("after an upgrade: %q; want %q", got, want)
	}
}

// SPEC Q1: a capsule whose manifest or files changed meanwhile gets a new process after the upgrade, one that is gone is
// ended, and one that was stopped stays stopped. SIGHUP upgrades when the program was replaced.
func TestQ1WhatChangedMeanwhile(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	packs := map[string]*pack{}
	for _, name := range []string{"kept", "manifest", "file", "gone", "held"} {
		packs[name] = newPack(t, tools, name, "", map[string]string{"answer.py": counts})
	}
	u := serveUpgradable(t, checkedBinary(t), tools, "auto_reload: false\n")
	was := map[string]string{}
	for name := range packs {
		was[name], _, _ = strings.Cut(u.mustCall(name), " ")
	}
	if _, err := u.control.Operate(t.Context(), "held", control.Stop); err != nil {
		t.Fatal(err)
	}
	// The new binary is one that changes the files right before it goes on.
	changes := fmt.Sprintf("case $1 in __upgrade) ;; *) echo >> %s; rm -r %s ;; esac\n",
		filepath.Join(packs["file"].dir, "answer.py"), packs["gone"].dir)
	packs["manifest"].manifest("args: [more]", "mcp: {input_schema: {type: object}}")
	binary := testkit.WriteTool(t, t.TempDir(), "orla", "#!/bin/sh\n"+changes+"exec "+checkedBinary(t)+" \"$@\"\n")
	if err := os.Rename(binary, u.program); err != nil {
		t.Fatal(err)
	}
	u.signal(syscall.SIGHUP)
	u.log.next("upgraded", nil)
	u.log.next("serving", nil)
	for name, same := range map[string]bool{"kept": true, "manifest": false, "file": false} {
		testkit.Eventually(t, name+" has the process that it should have", func() bool {
			pid, _, _ := strings.Cut(u.mustCall(name), " ")
			return (pid == was[name]) == same
		})
	}
	testkit.Eventually(t, "what is gone and what is stopped has no process", func() bool {
		return len(packs["gone"].pids()) == 0 && len(packs["held"].pids()) == 0
	})
	u.signal(syscall.SIGTERM)
	if code := u.wait(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
	for name, p := range packs {
		if left := p.pids(); len(left) > 0 {
			t.Errorf("%s has the processes %v after Orla has ended", name, left)
		}
	}
}

// SPEC Q1, K1: to systemd an upgrade is a reload. The new program serves the sockets of systemd, also one that is a file,
// and no tool inherits anything of it.
func TestQ1UpgradesUnderSystemd(t *testing.T) {
	t.Parallel()
	m, path, tools := underSystemd(t), shortPath(t), t.TempDir()
	testkit.WriteTool(t, tools, "files", "#!/bin/sh\nreadlink /proc/$$/fd/*\nenv | grep -E '^(ORLA_STATE|LISTEN)'\ngrep SigIgn /proc/self/status\n")
	tcp := socket(t, "tcp", "127.0.0.1:0")
	o := startPrepared(t, t.TempDir(), func(cmd *exec.Cmd) {
		for _, s := range []net.Listener{tcp, socket(t, "unix", path)} {
			f, err := s.(interface{ File() (*os.File, error) }).File()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = f.Close() })
			cmd.ExtraFiles = append(cmd.ExtraFiles, f)
		}
		cmd.Env = append(cmd.Env, m.env, "WATCHDOG_USEC=2000000", "LISTEN_FDNAMES=orla.socket:orla.socket", "LISTEN_FDS=2")
	}, "sh", "-c", `LISTEN_PID=$$ exec "$0" --config "$1"`, checkedBinary(t), writeConfig(t, tools, ""))
	m.next("READY=1\n")
	o.url = "http://" + tcp.Addr().String() + "/mcp"
	numbers := regexp.MustCompile(`pipe:\[\d+\]`)
	has := func() string { return numbers.ReplaceAllString(o.mustCall("files"), "pipe") }
	was := has()
	api := control.NewClient(o.status().Socket)
	for range 2 {
		if _, err := api.Upgrade(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		m.next("RELOADING=1\nMONOTONIC_USEC=")
		m.next("READY=1\n")
		m.next("WATCHDOG=1")
		if now := has(); now != was {
			t.Errorf("after an upgrade a tool has\n%s\nit had\n%s", now, was)
		}
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}}}
		resp, err := client.Get("http://localhost/healthz")
		if err != nil {
			t.Fatal(err)
		}
		if _ = resp.Body.Close(); resp.StatusCode != http.StatusOK {
			t.Errorf("/healthz: %s", resp.Status)
		}
	}
	o.signal(syscall.SIGTERM)
	m.next("STOPPING=1")
	if code := o.wait(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
}

// SPEC Q1: a call in flight ends before another program is executed, and does not hold up others as long as there may be
// a better moment. One that waits for an approval does not hold up an
// upgrade: it ends as pending, and the same call goes on after it.
func TestQ1CallsInFlight(t *testing.T) {
	t.Parallel()
	tools, gate := t.TempDir(), filepath.Join(t.TempDir(), "gate")
	testkit.WriteTool(t, tools, "slow", "#!/bin/sh\nuntil [ -e "+gate+" ]; do sleep 0.01; done\necho done\n")
	testkit.WriteTool(t, tools, "asks", "#!/bin/sh\necho asked\n")
	testkit.WriteTool(t, tools, "quick", "#!/bin/sh\necho done\n")
	testkit.WriteTool(t, tools, "rule.yaml", wantsApproval("asks", "operator")+"  tool_ref: asks\n")
	u := serveUpgradable(t, checkedBinary(t), tools, "shutdown_grace: 1h\napprovals: {same_user: true}\n")
	asked, slow := make(chan string, 1), make(chan string, 1)
	begin := func(tool string, to chan<- string) {
		call := u.plain(tool)
		go func() {
			text, err := call()
			to <- fmt.Sprint(text, err)
		}()
	}
	begin("asks", asked)
	testkit.Eventually(t, "a call waits for an approval", func() bool {
		s, err := u.control.Status(t.Context())
		return err == nil && s.Waiting == 1
	})
	u.upgrade()
	waiting, err := u.control.Approvals(t.Context(), control.ApprovalQuery{})
	if err != nil || len(waiting) != 1 || waiting[0].Phase != "Pending" {
		t.Fatalf("after an upgrade %+v waits, %v", waiting, err)
	}
	if got := <-asked; !strings.Contains(got, "waits for an approval, "+waiting[0].ID) {
		t.Errorf("the call that waited for an approval: %s", got)
	}
	if _, err := u.control.Approve(t.Context(), waiting[0].ID, control.ApproveRequest{Digest: waiting[0].Digest}); err != nil {
		t.Fatal(err)
	}
	u.upgrade()
	if got := u.mustCall("asks"); got != "asked\n" {
		t.Errorf("the same call after it was approved, and another upgrade: %q", got)
	}
	begin("slow", slow)
	testkit.Eventually(t, "a call is in flight", func() bool {
		s, err := u.control.Status(t.Context())
		return err == nil && s.InFlight == 1
	})
	if _, err := u.control.Upgrade(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	u.log.next("upgrading", nil)
	if got := u.mustCall("quick"); got != "done\n" {
		t.Errorf("while a call takes long, another one is answered %q", got)
	}
	later := make(chan string, 1)
	begin("slow", later)
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, answer := range []chan string{slow, later} {
		if got := <-answer; got != "done\n<nil>" && got != "done\n <nil>" {
			t.Errorf("a call at an upgrade: %q", got)
		}
	}
}

// SPEC Q1: a question that a client takes longer to answer than calls may take at a stop is waited for, in both eras, and
// nobody is asked again. No other call waits for it, and there is no second upgrade meanwhile.
func TestQ1QuestionsInFlight(t *testing.T) {
	t.Parallel()
	interpreter, err := python()
	if err != nil {
		needs.Missing(t, "no python3: %v", err)
	}
	tools := t.TempDir()
	// It works for longer than the grace after the answer.
	main := strings.NewReplacer("PYTHON", interpreter, "import json, os", "import time, json, os", "n += 1\n", "n += 1\n        time.sleep(0.5)\n").Replace(asksAndCounts)
	packs := map[string]*pack{}
	versions := map[string]string{"older": "2025-11-25", "newest": "2026-07-28"}
	for name := range versions {
		packs[name] = newPack(t, tools, name, "handshake: mcp", map[string]string{"main.py": main})
		packs[name].manifest("handshake: mcp", "")
	}
	testkit.WriteTool(t, tools, "quick", "#!/bin/sh\necho done\n")
	u := serveUpgradable(t, checkedBinary(t), tools, "shutdown_grace: 100ms\n")
	asked, answered := make(chan bool, 10), make(chan struct{})
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			asked <- true
			<-answered
			return &mcp.ElicitResult{Action: "decline"}, nil
		},
	})
	var calls sync.WaitGroup
	for name, version := range versions {
		u.waitListed(name + "__ask")
		session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: u.url, MaxRetries: 100}, &mcp.ClientSessionOptions{ProtocolVersion: version})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = session.Close() })
		want := fmt.Sprintf("%d 1", packs[name].pids()[0])
		calls.Go(func() {
			if text, err := textOf(session.CallTool(t.Context(), &mcp.CallToolParams{Name: name + "__ask"})); err != nil || text != want {
				t.Errorf("%s: the call ended with %q, %v; want %q", version, text, err, want)
			}
		})
		<-asked
	}
	if _, err := u.control.Upgrade(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if n := u.log.next("upgrading", nil)["asked"]; n != 2.0 {
		t.Errorf("the log says that %v calls have asked", n)
	}
	for began := time.Now(); time.Since(began) < time.Second; { // many times the grace
		if got := u.mustCall("quick"); got != "done\n" {
			t.Errorf("another call is answered %q", got)
		}
	}
	if _, err := u.control.Upgrade(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "under way") {
		t.Errorf("a second upgrade: %v", err)
	}
	close(answered)
	calls.Wait()
	u.log.next("upgraded", nil)
	u.log.next("serving", nil)
	if s, err := u.control.Status(t.Context()); err != nil || s.Upgrades != 1 || s.Pid != u.pid || s.NotUpgraded != "" {
		t.Errorf("the status is %+v, %v", s, err)
	}
	if len(asked) > 0 {
		t.Error("a client was asked again")
	}
	u.upgrade()
}

// SPEC Q1, N2: a call that is never answered ends at an upgrade, and makes no request of others wait for it.
func TestN2AnUpgradeWithACallThatIsNeverAnswered(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	testkit.WriteTool(t, tools, "deaf", "#!/bin/sh\nexec sleep 1000\n")
	u := serveUpgradable(t, checkedBinary(t), tools, "shutdown_grace: 4s\n")
	call, ended := u.plain("deaf"), make(chan string, 1)
	go func() {
		text, err := call()
		ended <- fmt.Sprint(text, err)
	}()
	testkit.Eventually(t, "a call is in flight", func() bool {
		s, err := u.control.Status(t.Context())
		return err == nil && s.InFlight == 1
	})
	if _, err := u.control.Upgrade(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	paused, _ := u.log.next("executing", nil)["paused_ms"].(float64)
	if paused >= 2000 {
		t.Errorf("requests waited for %v ms", paused)
	}
	if got := <-ended; !strings.Contains(got, "Orla is stopping") {
		t.Errorf("the call: %s", got)
	}
}

// SPEC Q1, N2: a capsule that cannot be given to the next program, since it is in the middle of a large line, and that does not end by
// itself, does not make the requests of others wait for all of its stop_grace_ms.
func TestN2AnUpgradeWithCapsulesThatDoNotReact(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	sizes := map[string]int{"long": 2_000_000, "toolong": 18_000_000} // of which one is a message that may come to its end
	for name, size := range sizes {
		testkit.WriteTool(t, tools, name+"/tool.yaml", "name: "+name+"\nversion: 1.0.0\ndescription: Writes a line without an end.\nentrypoint: main.sh\nmcp: {input_schema: {type: object}}\n"+
			"runtime: {mode: capsule, startup_timeout_ms: 60000, stop_grace_ms: 12000}\n")
		testkit.WriteTool(t, tools, name+"/main.sh", fmt.Sprintf(`#!/bin/sh
trap '' TERM
printf '%%s\n' '{"jsonrpc":"2.0","method":"orla.hello","params":{"name":"%s","version":"1.0.0","capabilities":[]}}'
head -c %d /dev/zero | tr '\0' o
echo written >&2
exec sleep 1000
`, name, size))
	}
	u := serveUpgradable(t, checkedBinary(t), tools, "")
	for range sizes {
		u.log.next("stderr", func(l map[string]any) bool { return l["text"] == "written" })
	}
	if _, err := u.control.Upgrade(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	for range sizes {
		u.log.next("a capsule cannot be given to the new program, and is ended", nil)
	}
	if paused, _ := u.log.next("executing", nil)["paused_ms"].(float64); paused >= 5000 {
		t.Errorf("requests waited for %v ms", paused)
	}
}

// SPEC Q1, D3: an Orla that is killed at any moment of an upgrade leaves nothing of its capsules, not even a daemon.
func TestQ1KilledDuringAnUpgrade(t *testing.T) {
	t.Parallel()
	for range needs.Rounds(1, 2) {
		tools := t.TempDir()
		p := newPack(t, tools, "daemon", "", map[string]string{"answer.py": leavesDaemon + says("'ok'")})
		u := serveUpgradable(t, checkedBinary(t), tools, "")
		u.mustCall("daemon")
		testkit.Eventually(t, "the capsule has a daemon", func() bool { return len(p.pids()) == 2 })
		if _, err := u.control.Upgrade(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		after := rand.N(80 * time.Millisecond)
		<-time.After(after)
		u.signal(syscall.SIGKILL)
		testkit.Eventually(t, fmt.Sprintf("nothing is left of an Orla that was killed %s after its check", after), func() bool { return len(p.pids()) == 0 })
	}
}

// SPEC Q1: a capsule in a sandbox gets a new process at an upgrade, since the sandbox is part of the program that made
// it. No call is lost, and the log says why.
func TestQ1ASandboxedCapsuleStartsAgain(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	testkit.WriteTool(t, tools, "boxed/tool.yaml", "name: boxed\nversion: 1.0.0\ndescription: Is held.\nentrypoint: main.sh\nmcp: {input_schema: {type: object}}\n"+
		"runtime: {mode: capsule, isolation_mode: sandboxed, startup_timeout_ms: 60000}\n")
	testkit.WriteTool(t, tools, "boxed/main.sh", boxed)
	u := serveUpgradable(t, checkedBinary(t), tools, "sandbox_backend: native\n")
	if state := u.log.next("state", func(l map[string]any) bool { return l["to"] == "READY" || l["to"] == "CRASHED" }); state["to"] != "READY" {
		needs.Missing(t, "%s", state["reason"])
	}
	for range 2 {
		_, stop := press(t, []caller{u.plain("boxed"), u.plain("boxed")}, lossless)
		pid := u.toolStatus("boxed").Pid
		if _, err := u.control.Upgrade(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		if line := u.log.next("a capsule cannot be given to the new program, and is ended", nil); line["err"] != "it has an isolation mode" {
			t.Errorf("the log says %v", line)
		}
		u.log.next("state", is("boxed", "READY"))
		stop()
		if u.mustCall("boxed") != "held" || u.toolStatus("boxed").Pid == pid {
			t.Errorf("after an upgrade it is %+v", u.toolStatus("boxed"))
		}
	}
}

// boxed is a capsule of the shell that answers each call.
const boxed = `#!/bin/sh
printf '%s\n' '{"jsonrpc":"2.0","method":"orla.hello","params":{"name":"boxed","version":"1.0.0","capabilities":[]}}'
while read -r line; do
	case $line in *'"tools/call"'*)
		id=${line#*'"id":'}
		printf '{"jsonrpc":"2.0","id":%s,"result":"held"}\n' "${id%%[,\}]*}" ;;
	*'"id":'*)
		id=${line#*'"id":'}
		printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no method"}}\n' "${id%%[,\}]*}" ;;
	esac
done
`
