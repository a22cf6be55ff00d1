package program

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// The doctor sees an Orla that runs, knows its port, and finds what is left of
// one that was killed (SPEC J1).
func TestDoctorFindsOrla(t *testing.T) {
	t.Parallel()
	needs.Time(t, "examines the machine")
	tools := t.TempDir()
	testkit.WriteTool(t, tools, "hello.sh", "#!/bin/sh\necho hello\n")
	o := serveOrla(t, tools)
	port := regexp.MustCompile(`:(\d+)/`).FindStringSubmatch(o.url)[1]
	examined := func(port string, more ...string) string {
		t.Helper()
		cmd := exec.Command(orlaBinary(t), "doctor", "--tools-dir", tools, "--port", port, "--tool-container-engine", "/nowhere/podman") // to ask podman takes long
		cmd.Env = append(slices.Clip(o.cmd.Env), more...)
		out, _ := cmd.CombinedOutput() // what it says tells of failures
		return string(out)
	}
	said := func(out, pattern string) {
		t.Helper()
		if !regexp.MustCompile("(?m)^" + pattern).MatchString(out) {
			t.Errorf("it does not say %s:\n%s", pattern, out)
		}
	}
	running := fmt.Sprintf(`ok +running +Orla serves %s \(pid %d\)$`, tools, o.cmd.Process.Pid)
	said(examined(port, "RUNTIME_DIRECTORY="+t.TempDir()), running) // its socket would be elsewhere
	out := examined(port)
	said(out, running)
	said(out, `ok +rules +there are no governance documents$`)
	said(out, fmt.Sprintf(`ok +port +Orla itself listens on 127.0.0.1:%s \(pid %d\)$`, port, o.cmd.Process.Pid))

	o.signal(syscall.SIGKILL)
	o.wait()
	out = examined("0")
	said(out, `warn +running +\S+\.sock is left over from an Orla that was killed`)
	said(out, ` +fix: rm \S+\.sock$`)

	fix := regexp.MustCompile(`fix: (rm \S+)`).FindStringSubmatch(out)
	if len(fix) != 2 {
		t.FailNow()
	}
	if text, err := exec.Command("sh", "-c", fix[1]).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", fix[1], err, text)
	}
	said(examined("0"), `ok +running +no Orla serves `+tools)
	if strings.Contains(out, "fail ") {
		t.Errorf("something fails:\n%s", out)
	}
}
