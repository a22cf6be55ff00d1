package program

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/app/control"
)

// visitor is a browser that was let into the console.
type visitor struct {
	o                   *running
	origin, cookie, key string
	host                string // of its page, if that is another one
}

// visit lets a browser in by the link of orla console.
func (o *running) visit() *visitor {
	o.t.Helper()
	link := strings.TrimSpace(o.mustOrla("console", "--no-browser", "--config", o.cmd.Args[2]))
	base, code, ok := strings.Cut(link, "#")
	v := &visitor{o: o, origin: strings.TrimSuffix(base, "/console/login")}
	if !ok || v.origin == base {
		o.t.Fatalf("orla console says %q", link)
	}
	status, body := v.ask("POST", "/console/login", `{"code":"`+code+`"}`)
	var said struct{ Key string }
	if json.Unmarshal([]byte(body), &said) != nil || status != http.StatusOK {
		o.t.Fatalf("the link: %d %s", status, body)
	}
	v.key = said.Key
	return v
}

func (v *visitor) request(ctx context.Context, method, path, body string) *http.Response {
	v.o.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, v.origin+path, strings.NewReader(body))
	if err != nil {
		v.o.t.Fatal(err)
	}
	req.Header = http.Header{"Origin": {v.origin}, "Content-Type": {"application/json"}, "Cookie": {v.cookie}, "X-Orla-Console": {v.key}}
	if v.host != "" {
		req.Host = v.host
		req.Header.Set("Origin", "http://"+v.host)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		v.o.t.Fatal(err)
	}
	return resp
}

func (v *visitor) ask(method, path, body string) (status int, answer string) {
	v.o.t.Helper()
	ctx, cancel := context.WithTimeout(v.o.t.Context(), time.Minute)
	defer cancel()
	resp := v.request(ctx, method, path, body)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		v.o.t.Fatal(err)
	}
	if cookies := resp.Cookies(); len(cookies) > 0 {
		v.cookie = cookies[0].Name + "=" + cookies[0].Value
	}
	return resp.StatusCode, string(text)
}

// O1, O3: a browser that orla console let in sees what happens to a capsule as orla status and the log say it, calls it
// as the caller console, and cannot decide about approvals. A reload with console: off ends that.
func TestO1ABrowserSeesACapsule(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	newPack(t, tools, "cap", "", map[string]string{"answer.py": says(`{"content": [{"type": "text", "text": "here"}]}`)})
	o := serveCapsules(t, tools, "")
	o.waitLog("state", is("cap", "READY"))
	v := o.visit()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream := v.request(ctx, "GET", "/api/v1/watch?lines=0&tool=cap", "")
	defer func() { _ = stream.Body.Close() }()
	events := bufio.NewReader(stream.Body)
	until := func(what string, fits func(control.ToolStatus) bool) control.ToolStatus {
		t.Helper()
		for {
			line, err := events.ReadString('\n')
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			var change control.Change
			if data, ok := strings.CutPrefix(line, "data: "); !ok || json.Unmarshal([]byte(data), &change) != nil {
				continue
			}
			for _, one := range change.Tools {
				if one.Name == "cap" && fits(one) {
					return one
				}
			}
		}
	}
	first := until("the first event", func(one control.ToolStatus) bool { return one.State == "READY" })
	if first.Pid != o.toolStatus("cap").Pid || !alive(first.Pid) {
		t.Errorf("the page says pid %d, the status %d", first.Pid, o.toolStatus("cap").Pid)
	}
	if err := syscall.Kill(first.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	next := until("after a crash", func(one control.ToolStatus) bool { return one.State == "READY" && one.Pid != first.Pid })
	if !alive(next.Pid) || next.Restarts != 1 {
		t.Errorf("after a crash the page says pid %d and %d restarts", next.Pid, next.Restarts)
	}
	if status, body := v.ask("POST", "/api/v1/tools/cap/call", `{"arguments":{}}`); status != http.StatusOK || !strings.Contains(body, "here") {
		t.Errorf("a call: %d %s", status, body)
	}
	o.waitLog("call", func(line map[string]any) bool { return line["caller"] == "console" && line["tool"] == "cap" })
	for _, path := range []string{"/api/v1/approvals/x/approve", "/api/v1/approvals/x/deny", "/api/v1/approvals/x/extend", "/api/v1/pins/cap/approve", "/api/v1/console", "/api/v1/reload"} {
		if status, body := v.ask("POST", path, `{"digest":"x","ttl":"1h"}`); status != http.StatusNotFound && status != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if status, body := v.ask("POST", "/api/v1/capsules/cap/stop", `{}`); status != http.StatusOK || !strings.Contains(body, `"STOPPED"`) {
		t.Errorf("stop: %d %s", status, body)
	}
	until("a stop", func(one control.ToolStatus) bool { return one.State == "STOPPED" && one.Held })

	config := o.cmd.Args[2]
	text, err := os.ReadFile(filepath.Clean(config))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, append(text, "console: off\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	o.mustOrla("reload", "--config", config)
	if _, err := io.ReadAll(events); err != nil { // the session has ended
		t.Errorf("the stream: %v", err)
	}
	if status, _ := v.ask("GET", "/", ""); status != http.StatusNotFound {
		t.Errorf("the page with console: off: %d", status)
	}
	if s := o.orla("console", "--config", config); s.code != 1 || !strings.Contains(s.err, "console: off") {
		t.Errorf("orla console: %+v", s)
	}
}

// O3: an open page does not delay the end of Orla.
func TestO3AnOpenPageDoesNotDelayTheEnd(t *testing.T) {
	t.Parallel()
	o := serveCapsules(t, t.TempDir(), "shutdown_grace: 60s\n")
	v := o.visit()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream := v.request(ctx, "GET", "/api/v1/watch", "")
	defer func() { _ = stream.Body.Close() }()
	o.signal(syscall.SIGTERM)
	if code := o.wait(); code != 0 { // it waits for less than the grace
		t.Errorf("it ended with %d", code)
	}
	if _, err := io.ReadAll(stream.Body); err != nil {
		t.Logf("the stream: %v", err)
	}
}
