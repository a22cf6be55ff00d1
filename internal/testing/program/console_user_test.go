package program

import (
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// O3: another user of the machine gets no link, does not see that of somebody else in the command line of the browser or in a
// file, and gets nothing from the port but how to get in.
func TestO3AnotherUserOfTheMachine(t *testing.T) {
	t.Parallel()
	needs.Root(t, "be another user")
	tools := t.TempDir()
	newPack(t, tools, "cap", "", map[string]string{"answer.py": says(`{"content": [{"type": "text", "text": "here"}]}`)})
	o := serveCapsules(t, tools, "")
	place := filepath.Dir(shortPath(t)) // which every user can reach
	raw, err := os.ReadFile(orlaBinary(t))
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(place, "orla")
	if err := testkit.WriteProgram(program, raw); err != nil {
		t.Fatal(err)
	}
	socket := o.status().Socket
	as := func(cmd *exec.Cmd) *exec.Cmd {
		cmd.Dir, cmd.Env = "/", []string{"HOME=/nonexistent", "PATH=" + os.Getenv("PATH")}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		return cmd
	}
	if out, err := as(exec.Command(program, "console", "--no-browser", "--socket", socket)).CombinedOutput(); err == nil || strings.Contains(string(out), "#") {
		t.Errorf("another user asks for a link: %v\n%s", err, out)
	}

	// The browser is asked to open a file that this user alone can read.
	bin := filepath.Join(place, "bin")
	testkit.WriteTool(t, bin, "xdg-open", "#!/bin/sh\nprintf '%s\\n' \"$@\" > "+filepath.Join(place, "opened.new")+"\nmv "+filepath.Join(place, "opened.new")+" "+filepath.Join(place, "opened")+"\n")
	cmd := o.command("console", "--config", o.cmd.Args[2])
	cmd.Env = append(cmd.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "DISPLAY=:0")
	printed, err := cmd.Output()
	if err != nil {
		t.Fatalf("orla console: %v", err)
	}
	link := strings.TrimSpace(string(printed))
	testkit.Eventually(t, "a browser is asked", func() bool { _, err := os.Stat(filepath.Join(place, "opened")); return err == nil })
	opened := strings.TrimSpace(testkit.ReadFile(t, filepath.Join(place, "opened")))
	_, code, ok := strings.Cut(link, "#")
	if !ok || code == "" || strings.Contains(opened, code) || !filepath.IsAbs(opened) {
		t.Fatalf("the link is %s, and the browser is asked to open %q", link, opened)
	}
	if !strings.Contains(testkit.ReadFile(t, opened), code) {
		t.Errorf("the file %s does not lead to the link", opened)
	}
	if out, err := as(exec.Command("cat", opened)).CombinedOutput(); err == nil {
		t.Errorf("another user reads the file: %s", out)
	}
	out, err := as(exec.Command("curl", "-s", "-i", strings.TrimSuffix(o.url, "/mcp")+"/", strings.TrimSuffix(o.url, "/mcp")+"/api/v1/status")).Output()
	if err != nil {
		t.Logf("no curl: %v", err)
	} else if text := string(out); strings.Count(text, " 401 ") != 2 || strings.Contains(text, "cap") && strings.Contains(text, "READY") {
		t.Errorf("another user gets from the port:\n%s", text)
	}
}

// O4: a page with its streams leaves nothing behind when it is closed, and a page that nobody opened has neither goroutines
// nor descriptors.
func TestO4APageLeavesNothing(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	newPack(t, tools, "cap", "", map[string]string{"answer.py": says(`{"content": [{"type": "text", "text": "here"}]}`)})
	o := serveCapsules(t, tools, "")
	o.waitLog("state", is("cap", "READY"))
	open := func(n int) {
		for range n {
			v := o.visit()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			for _, what := range []string{"/api/v1/watch?lines=100&tool=cap", "/api/v1/watch"} {
				stream := v.request(ctx, "GET", what, "")
				if _, err := io.ReadFull(stream.Body, make([]byte, 16)); err != nil {
					t.Errorf("%s: %v", what, err)
				}
				defer func() { _ = stream.Body.Close() }()
			}
			for _, path := range []string{"/", "/console/app.js", "/api/v1/status", "/api/v1/tools", "/api/v1/numbers"} {
				v.ask("GET", path, "")
			}
			cancel()
			if status, text := v.ask("POST", "/console/logout", "{}"); status != http.StatusOK {
				t.Errorf("close the session: %d %s", status, text)
			}
		}
	}
	open(2) // what is made once is there now
	o.staysFlat(4, func() { open(20) })
}
