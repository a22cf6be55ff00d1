package program

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// serviceManager is the receiving end of NOTIFY_SOCKET.
type serviceManager struct {
	t    *testing.T
	conn *net.UnixConn
	env  string // that makes an Orla its service
}

// underSystemd returns a service manager.
func underSystemd(t *testing.T) *serviceManager {
	t.Helper()
	name := shortPath(t)
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &serviceManager{t, conn, "NOTIFY_SOCKET=" + name}
}

// shortPath is a path for a socket, whose name must be short.
func shortPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "orla-*") //nolint:usetesting // t.TempDir's names have the test's in them
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "socket")
}

// next waits for the next notification that begins with a line, and returns it.
func (m *serviceManager) next(line string) string {
	m.t.Helper()
	if err := m.conn.SetReadDeadline(time.Now().Add(testkit.Patience)); err != nil {
		m.t.Fatal(err)
	}
	var others []string
	for buf := make([]byte, 4096); ; {
		n, err := m.conn.Read(buf)
		if err != nil {
			m.t.Fatalf("no notification %q: %v; there were %q", line, err, others)
		}
		if strings.HasPrefix(string(buf[:n]), line) {
			return string(buf[:n])
		}
		others = append(others, string(buf[:n]))
	}
}

// rest returns the notifications of an Orla that has ended which were not read.
func (m *serviceManager) rest() (told []string) {
	m.t.Helper()
	for buf := make([]byte, 4096); ; {
		if err := m.conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil { // they are there already
			m.t.Fatal(err)
		}
		n, err := m.conn.Read(buf)
		if err != nil {
			return told
		}
		told = append(told, string(buf[:n]))
	}
}

// TestK1SystemdIsTold: READY when Orla answers, STATUS when capsules change,
// RELOADING and READY around each reload, and STOPPING (SPEC K1).
func TestK1SystemdIsTold(t *testing.T) {
	t.Parallel()
	m := underSystemd(t)
	tools := t.TempDir()
	// It says hello once Orla has said that it is ready.
	gate := filepath.Join(t.TempDir(), "gate")
	waits := fmt.Sprintf("while not os.path.exists(%q):\n    time.sleep(0.01)\n", gate)
	p := newPack(t, tools, "weather", "startup_timeout_ms: 60000\nrestart: {initial_ms: 30000}", map[string]string{
		"answer.py": says(`[os.environ.get(v, "") for v in ("NOTIFY_SOCKET", "WATCHDOG_USEC")]`) + waits,
	})
	o := serveCapsules(t, tools, "", m.env, "WATCHDOG_USEC=2000000")

	ready := m.next("READY=1\n")
	if !strings.Contains(ready, "STATUS=0 of 1 capsules ready, 1 tools") {
		t.Errorf("told %q", ready)
	}
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := o.call("weather", "{}"); err != nil {
		t.Errorf("Orla said that it is ready, and: %v", err)
	}
	m.next("STATUS=1 of 1 capsules ready, 1 tools")
	m.next("WATCHDOG=1")
	m.next("WATCHDOG=1")
	if got := o.mustCall("weather"); got != `["", ""]` {
		t.Errorf("a tool knows of systemd: %s", got)
	}

	o.signal(syscall.SIGHUP)
	m.next("RELOADING=1\nMONOTONIC_USEC=")
	m.next("READY=1\n")

	o.waitLog("reload", nil)
	config := o.cmd.Args[2]
	good, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, []byte("port: many\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	o.signal(syscall.SIGHUP)
	m.next("RELOADING=1\n")
	m.next("READY=1\n") // though it failed
	if err := os.WriteFile(config, good, 0o644); err != nil {
		t.Fatal(err)
	}

	p.save("main.py", "#!/bin/sh\nexit 3\n")
	m.next("STATUS=0 of 1 capsules ready, 1 tools")

	o.signal(syscall.SIGTERM)
	m.next("STOPPING=1\nSTATUS=stopping; 0 calls in flight")
	if code := o.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestK1NothingFollowsStopping: a reload that ends while Orla stops does not make
// it ready again (SPEC K1).
func TestK1NothingFollowsStopping(t *testing.T) {
	t.Parallel()
	sent, goOn := make(chan struct{}, 1), make(chan struct{})
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // so that the end of the connection is seen
		select {
		case sent <- struct{}{}:
		default:
		}
		select {
		case <-goOn:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(collector.Close)
	m := underSystemd(t)
	dir := t.TempDir()
	testkit.WriteTool(t, dir, "tools/echo.sh", "#!/bin/sh\necho ok\n")
	config := filepath.Join(dir, "orla.yaml")
	configure := func(more string) {
		t.Helper()
		if err := os.WriteFile(config, []byte("tools_dir: tools\nport: 0\n"+more), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	configure(fmt.Sprintf("tracing: {endpoint: %q}\n", collector.URL))
	o := startPrepared(t, dir, withEnv(m.env), orlaBinary(t))
	o.url, _ = o.waitLog("serving", nil)["url"].(string)
	o.mustCall("echo") // so that there is a span to be sent

	configure("")
	o.signal(syscall.SIGHUP)
	m.next("RELOADING=1\n")
	<-sent // the reload waits for the collector
	o.signal(syscall.SIGTERM)
	m.next("STOPPING=1\n")
	close(goOn)
	if code := o.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for _, told := range m.rest() {
		if !strings.HasPrefix(told, "EXTEND_TIMEOUT_USEC=") {
			t.Errorf("told %q after STOPPING=1", told)
		}
	}
}

// TestK1StdioIsReadyToo: Orla is ready as well when it serves one client on stdio.
func TestK1StdioIsReadyToo(t *testing.T) {
	t.Parallel()
	m := underSystemd(t)
	o := startPrepared(t, t.TempDir(), func(cmd *exec.Cmd) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdin = r
		cmd.Env = append(cmd.Env, m.env)
		t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	}, orlaBinary(t), "--stdio", "--tools-dir", t.TempDir())
	m.next("READY=1\nSTATUS=0 of 0 capsules ready, 0 tools")
	o.signal(syscall.SIGTERM)
	m.next("STOPPING=1")
	if code := o.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// activated starts Orla with sockets, as systemd does.
func activated(t *testing.T, names, config string, sockets ...net.Listener) *running {
	t.Helper()
	return startPrepared(t, t.TempDir(), func(cmd *exec.Cmd) {
		for _, s := range sockets {
			f, err := s.(interface{ File() (*os.File, error) }).File()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = f.Close() })
			cmd.ExtraFiles = append(cmd.ExtraFiles, f)
		}
		cmd.Env = append(cmd.Env, "LISTEN_FDNAMES="+names, fmt.Sprint("LISTEN_FDS=", len(sockets)))
	}, "sh", "-c", `LISTEN_PID=$$ exec "$0" --config "$1"`, orlaBinary(t), config)
}

func socket(t *testing.T, network, address string) net.Listener {
	t.Helper()
	s, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestK1SocketsOfSystemd: HTTP is served on what systemd listens on, by its
// name or without one, and no tool inherits it (SPEC K1).
func TestK1SocketsOfSystemd(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	testkit.WriteTool(t, tools, "files", "#!/bin/sh\nreadlink /proc/$$/fd/*\necho $LISTEN_FDS$LISTEN_PID$LISTEN_FDNAMES\n")
	for _, names := range []string{"orla.socket:other", "orla-http:other", ""} {
		t.Run(names, func(t *testing.T) {
			first, second := socket(t, "tcp", "127.0.0.1:0"), socket(t, "tcp", "127.0.0.1:0")
			o := activated(t, names, writeConfig(t, tools, ""), first, second)
			o.url = "http://" + first.Addr().String() + "/mcp"
			if names == "" {
				o.url = "http://" + second.Addr().String() + "/mcp" // both are for HTTP
			} else {
				o.waitLog("systemd passed a socket that Orla does not use", func(l map[string]any) bool { return l["name"] == "other" })
			}
			// Asked before it serves: the socket is there already.
			got := o.mustCall("files")
			if lines := strings.Fields(got); len(lines) < 3 || strings.Contains(got, "socket:") || strings.HasSuffix(got, "socket\n") {
				t.Errorf("a tool has %q", got)
			}
			o.waitLog("serving", nil)
		})
	}
}

// TestK1SocketOfAFile: a socket of systemd's may be a file.
func TestK1SocketOfAFile(t *testing.T) {
	t.Parallel()
	path := shortPath(t)
	o := activated(t, "orla.socket", writeConfig(t, t.TempDir(), ""), socket(t, "unix", path))
	if url := o.waitLog("serving", nil)["url"]; url != "unix:"+path {
		t.Errorf("it says that it serves %v", url)
	}
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
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

// TestK1AnotherPortBesideASocket: a reload moves Orla to another port and back,
// and systemd's socket is served all along (SPEC H2, K1).
func TestK1AnotherPortBesideASocket(t *testing.T) {
	t.Parallel()
	given := socket(t, "tcp", "127.0.0.1:0")
	free := socket(t, "tcp", "127.0.0.1:0").(*net.TCPListener)
	other := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	config := writeConfig(t, t.TempDir(), "")
	o := activated(t, "orla.socket", config, given)
	o.waitLog("serving", nil)
	log := o.follow()
	answers := func(address string) bool {
		resp, err := (&http.Client{Timeout: testkit.Patience, Transport: &http.Transport{DisableKeepAlives: true}}).Get("http://" + address + "/healthz")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}
	for _, step := range []struct {
		line string
		want bool
	}{{"listen: " + other, true}, {"listen: 127.0.0.1", false}, {"listen: " + other, true}} {
		if err := os.WriteFile(config, []byte("port: 0\n"+step.line+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		o.signal(syscall.SIGHUP)
		log.next("reload", func(l map[string]any) bool { return l["reason"] == "SIGHUP" })
		if got := answers(other); got != step.want {
			t.Errorf("after %q, the port answers: %t", step.line, got)
		}
		if !answers(given.Addr().String()) {
			t.Errorf("after %q, systemd's socket does not answer", step.line)
		}
	}
}

// TestG8SocketBeyondLoopback: what systemd opens to other machines wants
// authentication, as listen does (SPEC G8).
func TestG8SocketBeyondLoopback(t *testing.T) {
	t.Parallel()
	config := writeConfig(t, t.TempDir(), "")
	o := activated(t, "orla.socket", config, socket(t, "tcp", "0.0.0.0:0"))
	if code := o.wait(); code != int(exit.Invalid) {
		t.Errorf("exit code %d; want %d", code, exit.Invalid)
	}
	insecure := activated(t, "orla.socket", writeConfig(t, t.TempDir(), "insecure: true\n"), socket(t, "tcp", "0.0.0.0:0"))
	insecure.waitLog("serving", nil)
}

// TestK1Credential: a token comes from systemd's credentials, and is read again
// on SIGHUP; no tool sees where they are (SPEC K1, G8).
func TestK1Credential(t *testing.T) {
	t.Parallel()
	credentials := t.TempDir()
	save := func(token string) {
		if err := os.WriteFile(filepath.Join(credentials, "ada"), []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	save("a-token-of-ada-1")
	tools := t.TempDir()
	testkit.WriteTool(t, tools, "where", "#!/bin/sh\necho \"[$CREDENTIALS_DIRECTORY]\"\n")
	o := startPrepared(t, t.TempDir(), withEnv("CREDENTIALS_DIRECTORY="+credentials),
		orlaBinary(t), "--config", writeConfig(t, tools, "auth: {tokens: [{name: ada, credential: ada}]}\n"))
	url, _ := o.waitLog("serving", nil)["url"].(string)
	call := func(token string) (int, string) {
		body := strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"where","arguments":{}}}`)
		req, err := http.NewRequest(http.MethodPost, url, body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	if status, text := call("a-token-of-ada-1"); status != http.StatusOK || !strings.Contains(text, `"[]`) {
		t.Errorf("with the token: %d %s", status, text)
	}
	if status, _ := call("a-token-of-nobody"); status != http.StatusUnauthorized {
		t.Errorf("with another token: %d", status)
	}
	log := o.follow()
	save("a-token-of-ada-2")
	o.signal(syscall.SIGHUP)
	log.next("reload", func(l map[string]any) bool { return l["reason"] == "SIGHUP" })
	if status, _ := call("a-token-of-ada-1"); status != http.StatusUnauthorized {
		t.Errorf("with the old token: %d", status)
	}
	if status, text := call("a-token-of-ada-2"); status != http.StatusOK {
		t.Errorf("with the new token: %d %s", status, text)
	}
}
