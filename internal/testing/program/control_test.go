package program

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// said is what a command printed, and how it ended.
type said struct {
	out, err string
	code     int
}

// orla runs a command beside a running Orla: as the same user, in its folder.
func (o *running) orla(args ...string) said {
	o.t.Helper()
	cmd := o.command(args...)
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	failed := cmd.Run()
	code := 0
	if exit, ok := errors.AsType[*exec.ExitError](failed); ok {
		code = exit.ExitCode()
	} else if failed != nil {
		o.t.Fatal(failed)
	}
	return said{out.String(), err.String(), code}
}

func (o *running) command(args ...string) *exec.Cmd {
	cmd := exec.Command(orlaBinary(o.t), args...)
	cmd.Dir, cmd.Env = o.cmd.Dir, o.cmd.Env
	return cmd
}

// mustOrla runs a command that has to work, and returns what it printed.
func (o *running) mustOrla(args ...string) string {
	o.t.Helper()
	s := o.orla(args...)
	if s.code != 0 {
		o.t.Fatalf("orla %s ends with %d:\n%s%s", strings.Join(args, " "), s.code, s.out, s.err)
	}
	return s.out
}

// status asks a running Orla how it is.
func (o *running) status() control.Status {
	o.t.Helper()
	var s control.Status
	if err := json.Unmarshal([]byte(o.mustOrla("status", "--json")), &s); err != nil {
		o.t.Fatal(err)
	}
	return s
}

// toolStatus is what a running Orla says of one tool.
func (o *running) toolStatus(name string) control.ToolStatus {
	o.t.Helper()
	for _, t := range o.status().Tools {
		if t.Name == name {
			return t
		}
	}
	o.t.Fatalf("%s is not in the status", name)
	return control.ToolStatus{}
}

// again starts an Orla like one that has ended, as the same user.
func (o *running) again() *running {
	o.t.Helper()
	next := startAs(o.t, o.home(), o.cmd.Dir, o.cmd.Args...)
	next.url, _ = next.waitLog("serving", nil)["url"].(string)
	return next
}

func (o *running) home() string {
	home := ""
	for _, variable := range o.cmd.Env { // the last one counts
		if value, ok := strings.CutPrefix(variable, "HOME="); ok {
			home = value
		}
	}
	return home
}

// startAs starts Orla with the home of another one.
func startAs(t *testing.T, home, dir string, argv ...string) *running {
	t.Helper()
	return startPrepared(t, dir, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "HOME="+home) }, argv...)
}

// serveThere starts an Orla with its tools folder at ./tools, so that commands
// find it as they do for people.
func serveThere(t *testing.T, dir string) *running {
	t.Helper()
	o := startOrla(t, dir, "--port", "0")
	o.url, _ = o.waitLog("serving", nil)["url"].(string)
	return o
}

// SPEC D9, J1: a stop by an operator outlives a save, a changed manifest, a reload and
// a restart of Orla, until somebody starts the capsule.
func TestJ1AStopByHandLasts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := newPack(t, filepath.Join(dir, "tools"), "held", "", map[string]string{"answer.py": says(`"up"`)})
	o := serveThere(t, dir)
	o.waitLog("state", is("held", "READY"))
	if got := o.mustOrla("stop", "held"); got != "held: STOPPED\n" {
		t.Errorf("orla stop: %s", got)
	}
	stays := func(after string) {
		t.Helper()
		if s := o.toolStatus("held"); s.State != "STOPPED" || !s.Held || s.Pid != 0 || len(p.pids()) != 0 {
			t.Errorf("after %s: %+v, processes %v", after, s, p.pids())
		}
	}
	stays("the stop")
	follow := o.follow()
	o.signal(syscall.SIGHUP)
	follow.next("reload", func(l map[string]any) bool { return l["reason"] == "SIGHUP" })
	stays("SIGHUP")
	p.manifest("max_concurrency: 3", "mcp: {input_schema: {type: object}}")
	follow.next("reload", func(l map[string]any) bool { return l["changed"] == 1.0 })
	stays("a change of the manifest")
	if s := o.orla("call", "held"); s.code != 1 || !strings.Contains(s.err, "STOPPED") || !strings.Contains(s.err, "by an operator") {
		t.Errorf("a call ends with %d: %s", s.code, s.err)
	}
	o.signal(syscall.SIGTERM)
	o.wait()
	o = o.again()
	stays("a restart of Orla")
	if got := o.mustOrla("start", "held"); !strings.HasPrefix(got, "held: READY, pid ") {
		t.Errorf("orla start: %s", got)
	}
	if got := o.mustOrla("call", "held"); got != "up" {
		t.Errorf("the call = %q", got)
	}
}

// SPEC J1: -f shows what comes, at once, and ends with Orla.
func TestJ1LogsFollow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := newPack(t, filepath.Join(dir, "tools"), "talks", "", map[string]string{"answer.py": says(`print("heard", file=__import__("sys").stderr, flush=True) or "ok"`)})
	o := serveThere(t, dir)
	o.waitLog("state", is("talks", "READY"))
	cmd := o.command("logs", "talks", "-f", "-n", "1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it may be over
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	await := func(parts ...string) { // in any order
		t.Helper()
		deadline := time.After(testkit.Patience)
		for len(parts) > 0 {
			select {
			case line, ok := <-lines:
				parts = slices.DeleteFunc(parts, func(part string) bool { return strings.Contains(line, part) })
				if !ok {
					t.Fatalf("the stream ended before %q", parts)
				}
			case <-deadline:
				t.Fatalf("no lines with %q", parts)
			}
		}
	}
	await("talks: ") // the last one
	o.mustCall("talks")
	await(" talks | ", "INF talks: call ")
	p.save("answer.py", "offers = ['one', 'two']\ndef answer(params): return 'ok'\n")
	p.manifest("", "") // it is no longer one tool of its name
	o.waitLog("offers", func(line map[string]any) bool { return fmt.Sprint(line["tools"]) == "[talks__one talks__two]" })
	o.waitListed("talks__two")
	o.mustCall("talks__two")
	await("INF talks__two: call ") // its name was not known when this began
	o.signal(syscall.SIGTERM)
	for range lines { // until the stream ends with Orla
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("orla logs -f ends with %v", err)
	}
}

// SPEC J1: --since alone wants all that there is since then, however much.
func TestJ1LogsSinceLeavesNothingOut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	newPack(t, filepath.Join(dir, "tools"), "talks", "", map[string]string{
		"answer.py": says(`[print("line", n, file=__import__("sys").stderr, flush=True) for n in range(150)] and "ok"`),
	})
	o := serveThere(t, dir)
	o.waitLog("state", is("talks", "READY"))
	o.mustCall("talks")
	o.waitLog("stderr", func(line map[string]any) bool { return line["text"] == "line 149" })
	for since, want := range map[string]int{"1h": 150, "-1h": 150} {
		if got := strings.Count(o.mustOrla("logs", "talks", "--since", since), " line "); got != want {
			t.Errorf("--since %s shows %d of %d lines", since, got, want)
		}
	}
	if got := strings.Count(o.mustOrla("logs", "talks", "--since", "1h", "-n", "3"), "\n"); got != 3 {
		t.Errorf("--since with -n 3 shows %d lines", got)
	}
}

// SPEC J1: several tools, a text, and what an earlier run wrote to log_file.
func TestJ1LogsOfSeveralToolsAndOfLogFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"alpha", "beta", "gamma"} {
		newPack(t, filepath.Join(dir, "tools"), name, "", map[string]string{
			"answer.py": says(`[print("` + name + ` says", w, file=__import__("sys").stderr, flush=True) for w in ("Yes", "no")] and "ok"`),
		})
	}
	file := filepath.Join(dir, "orla.log")
	o := startOrla(t, dir, "--port", "0", "--log-file", file)
	said := func(run string) {
		t.Helper()
		testkit.Eventually(t, "Orla serves", func() bool { return o.orla("status").code == 0 })
		for _, name := range []string{"alpha", "beta", "gamma"} {
			o.mustOrla("call", name)
		}
		testkit.Eventually(t, "all lines of "+run, func() bool { return strings.Count(o.mustOrla("logs", "-n", "-1"), " says no") == 3 })
	}
	said("the first run")
	got := o.mustOrla("logs", "alpha", "gamma", "--grep", "SAYS yes")
	if strings.Count(got, "\n") != 2 || !strings.Contains(got, "alpha says Yes") || !strings.Contains(got, "gamma says Yes") {
		t.Errorf("orla logs alpha gamma --grep: %s", got)
	}
	if s := o.orla("logs", "alpha", "gama"); s.code != 1 || !strings.Contains(s.err, `did you mean "gamma"?`) {
		t.Errorf("an unknown tool among several: %d %s", s.code, s.err)
	}
	o.signal(syscall.SIGTERM)
	o.wait()
	o = startAs(t, o.home(), dir, o.cmd.Args...)
	said("the second run")
	for since, want := range map[string]int{"": 2, "1h": 4} {
		if got := o.mustOrla("logs", "beta", "alpha", "--grep", "says no", "--since="+since, "-n", "100"); strings.Count(got, " says no") != want {
			t.Errorf("--since %q shows, in place of %d lines:\n%s", since, want, got)
		}
	}
	if got := o.mustOrla("logs", "beta", "--since", "1h", "-n", "1", "--grep", "says"); strings.Count(got, "\n") != 1 || !strings.Contains(got, "says no") {
		t.Errorf("--since with -n 1: %s", got)
	}
}

// SPEC J2, G5b: a call that a running Orla makes is what it is without one:
// every digit is there, and --timeout holds.
func TestJ2ARunningOrlaMakesTheSameCall(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	newPack(t, filepath.Join(dir, "tools"), "digits", "", map[string]string{
		"answer.py": says(`{"content": [], "structuredContent": {"n": 12345678901234567890123, "a": 1}}`),
	})
	newPack(t, filepath.Join(dir, "tools"), "sleeps", "", map[string]string{"answer.py": says(`__import__("time").sleep(600)`)})
	o := serveThere(t, dir)
	o.waitLog("state", is("sleeps", "READY")) // or the call would be waiting for that
	if got := o.mustOrla("call", "digits", "--result"); !strings.Contains(got, `"n": 12345678901234567890123`) {
		t.Errorf("the answer is %s", got)
	}
	if s := o.orla("call", "sleeps", "--timeout", "1s"); s.code != 1 || s.err != "orla: sleeps gave no answer within 1s\n" {
		t.Errorf("with a timeout: %+v", s)
	}
}

// SPEC J2: 64 clients at once, some of which never read, and one that asks for
// reloads, cost no call and no client anything.
func TestJ2ManyClientsOfARunningOrla(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	newPack(t, filepath.Join(dir, "tools"), "busy", "", map[string]string{"answer.py": says(`"ok"`)})
	o := serveThere(t, dir)
	o.waitLog("state", is("busy", "READY"))
	status := o.status()
	socket := shortPath(t)
	if err := os.Symlink(status.Socket, socket); err != nil {
		t.Fatal(err)
	}
	for range 8 { // they ask for everything and read nothing
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		fmt.Fprintf(conn, "GET /v1/events HTTP/1.1\r\nHost: orla\r\n\r\n")
	}
	p, stop := press(t, []caller{o.plain("busy"), o.plain("busy")}, lossless)
	var clients sync.WaitGroup
	for i := range 64 {
		clients.Go(func() {
			client := control.NewClient(status.Socket)
			for range 5 {
				var err error
				switch i % 4 {
				case 0:
					_, err = client.Status(t.Context())
				case 1:
					_, err = client.Call(t.Context(), "busy", control.CallRequest{})
				case 2:
					_, err = client.Reload(t.Context(), control.ReloadRequest{})
				case 3:
					for _, lineErr := range client.Logs(t.Context(), control.Query{Last: 50}) {
						err = errors.Join(err, lineErr)
					}
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	clients.Wait()
	stop()
	if p.calls.Load() == 0 {
		t.Error("no calls were made meanwhile")
	}
	if s := o.toolStatus("busy"); s.Restarts != 0 || s.Errors != 0 {
		t.Errorf("afterwards: %+v", s)
	}
	o.signal(syscall.SIGTERM)
	if code := o.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// SPEC J1, H2: orla reload says what it changed, and a change that cannot be put
// in force changes nothing.
func TestJ1ReloadSaysWhatChanged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tools := filepath.Join(dir, "tools")
	for _, name := range []string{"stays.sh", "goes.sh", "turns.sh"} {
		testkit.WriteTool(t, tools, name, "#!/bin/sh\necho ok\n")
	}
	config := filepath.Join(dir, "orla.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(config, []byte("port: 0\nauto_reload: false\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("")
	o := startOrla(t, dir)
	o.waitLog("serving", nil)
	if err := os.Remove(filepath.Join(tools, "goes.sh")); err != nil {
		t.Fatal(err)
	}
	testkit.WriteTool(t, tools, "comes.sh", "#!/bin/sh\necho ok\n")
	testkit.WriteTool(t, tools, "turns.sh", "#!/bin/sh\n# /// tool\n# description: Another.\n# ///\necho ok\n")
	if got, want := o.mustOrla("reload"), "added    comes\nremoved  goes\nchanged  turns\nkept     1\n"; got != want {
		t.Errorf("orla reload prints\n%s\nwant\n%s", got, want)
	}
	var diff control.Reload
	if err := json.Unmarshal([]byte(o.mustOrla("reload", "--json")), &diff); err != nil || diff.Kept != 3 || len(diff.Added) != 0 {
		t.Errorf("orla reload --json: %+v, %v", diff, err)
	}
	write("max_inline: some\nport: many\n")
	if s := o.orla("reload"); s.code != 4 || !strings.Contains(s.err, "max_inline: ") || !strings.Contains(s.err, "hint: nothing was changed") {
		t.Errorf("a faulty configuration: %d\n%s", s.code, s.err)
	}
	write("log_file: " + dir + "/absent/log\n")
	if s := o.orla("reload"); s.code != 1 || !strings.Contains(s.err, "absent/log") {
		t.Errorf("a configuration that cannot be put in force: %d\n%s", s.code, s.err)
	}
	write("socket: elsewhere.sock\n")
	o.mustOrla("reload")
	testkit.Eventually(t, "the socket has moved", func() bool {
		s := o.orla("status", "--json")
		return s.code == 0 && strings.Contains(s.out, `"socket": "`+filepath.Join(dir, "elsewhere.sock"))
	})
	if s := o.orla("status", "--socket", ""); s.code != 3 {
		t.Errorf("at the old place, orla status ends with %d: %s%s", s.code, s.out, s.err)
	}
	write("socket: none\n")
	o.mustOrla("reload", "--socket", "elsewhere.sock")
	testkit.Eventually(t, "there is no socket", func() bool { return o.orla("status", "--socket", "elsewhere.sock").code == 3 })
}

// SPEC J1, J2: orla dev has a socket, and a call of its tool goes there.
func TestJ2ACallGoesToOrlaDev(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	newPack(t, filepath.Join(dir, "tools"), "mine", "", map[string]string{"answer.py": says(`str(os.getpid())`)})
	o := startOrla(t, dir, "dev", "tools/mine", "--port", "0", "--log-format", "json")
	o.waitLog("state", is("mine", "READY"))
	o.waitLog("serving", nil)
	if got, want := o.mustOrla("call", "mine"), fmt.Sprint(o.toolStatus("mine").Pid); got != want {
		t.Errorf("process %s answers; want %s, which orla dev has", got, want)
	}
	if s := o.status(); s.ToolsDir != filepath.Join(dir, "tools", "mine") || s.Tools[0].Calls != 1 {
		t.Errorf("the status: %+v", s)
	}
}

// SPEC J1: what happens is told as it does, and what capsules print is not.
func TestJ1EventsAndWatch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	newPack(t, filepath.Join(dir, "tools"), "talks", "", map[string]string{"answer.py": says(`print("heard", file=__import__("sys").stderr, flush=True) or "ok"`)})
	o := serveThere(t, dir)
	o.waitLog("state", is("talks", "READY"))
	events, watch := o.stream("events", "--json"), o.stream("status", "--watch", "--json")
	var status control.Status
	if err := json.Unmarshal([]byte(<-watch), &status); err != nil || status.Tools[0].Calls != 0 {
		t.Errorf("the first status: %+v, %v", status, err)
	}
	testkit.Eventually(t, "somebody follows", func() bool {
		o.mustCall("talks")
		return len(events) > 0
	})
	o.mustOrla("restart", "talks")
	var told []string
	for line := range events {
		var event struct{ Msg, Tool, To string }
		if err := json.Unmarshal([]byte(line), &event); err != nil || event.Tool != "talks" {
			t.Errorf("%s: %v", line, err)
		}
		told = append(told, event.Msg+" "+event.To)
		if event.To == "READY" {
			break
		}
	}
	all := strings.Join(told, ", ")
	if !strings.HasPrefix(all, "call ") || !strings.Contains(all, "state RELOADING") || strings.Contains(all, "stderr") {
		t.Errorf("told: %s", all)
	}
	for line := range watch {
		if err := json.Unmarshal([]byte(line), &status); err != nil {
			t.Fatal(err)
		}
		if status.Tools[0].Calls > 0 && status.Tools[0].Restarts == 1 {
			return
		}
	}
	t.Error("the watch ended")
}

// stream runs a command and delivers the lines that it prints, until the test
// is over.
func (o *running) stream(args ...string) <-chan string {
	o.t.Helper()
	cmd := o.command(args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		o.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		o.t.Fatal(err)
	}
	lines := make(chan string, 1000) // more than any test makes
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	})
	o.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may be over
		reading.Wait()
		_ = cmd.Wait() // it was killed
	})
	return lines
}
