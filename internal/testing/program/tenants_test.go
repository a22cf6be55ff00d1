package program

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/orla-project/orla/internal/testing/testkit"
)

// SPEC N2: with several tokens, what a capsule printed on stderr is in the log and in
// the status, and in no caller's error text. With one, the error text has it.
func TestN2StderrIsNotSharedByCallers(t *testing.T) {
	t.Parallel()
	const said = "the password of the first caller"
	dir := t.TempDir()
	tokens := map[string]string{}
	for _, name := range []string{"first", "second"} {
		tokens[name] = strings.Repeat(name, 5)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(tokens[name]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config := filepath.Join(dir, "orla.yaml")
	configure := func(names ...string) {
		text := "port: 0\ntools_dir: tools\nauth:\n  tokens:\n"
		for _, name := range names {
			text += fmt.Sprintf("    - name: %s\n      file: %s\n", name, name)
		}
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	configure("first")
	pkg := filepath.Join(dir, "tools", "broken")
	testkit.WriteTool(t, pkg, "main.sh", "#!/bin/sh\necho '"+said+"' >&2\nexit 3\n")
	if err := os.WriteFile(filepath.Join(pkg, "tool.yaml"), []byte("name: broken\nversion: 1.0.0\ndescription: Ends at once.\nentrypoint: main.sh\n"+
		"mcp:\n  input_schema: {}\nruntime:\n  mode: capsule\n  restart: {max_failures: 1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := startOrla(t, t.TempDir(), "--config", config)
	o.url, _ = o.waitLog("serving", nil)["url"].(string)
	o.waitLog("state", func(l map[string]any) bool { return l["to"] == "STOPPED" })
	text := func(caller string) string {
		t.Helper()
		req, err := http.NewRequest(http.MethodPost, o.url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"broken","arguments":{}}}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set("Authorization", "Bearer "+tokens[caller])
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	if got := text("first"); !strings.Contains(got, said) {
		t.Errorf("with one token the only caller is told %s", got)
	}
	configure("first", "second")
	o.signal(syscall.SIGHUP)
	o.waitLog("reload", func(l map[string]any) bool { return l["reason"] == "SIGHUP" })
	for _, caller := range []string{"first", "second"} {
		if got := text(caller); strings.Contains(got, said) || !strings.Contains(got, "STOPPED") || !strings.Contains(got, "orla status broken") {
			t.Errorf("with two tokens %s is told %s", caller, got)
		}
	}
}
