package program

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// SPEC I2: the log has neither arguments nor results, whatever is wrong with
// them. It says where they do not fit.
func TestI2ArgumentsAndResultsAreNotLogged(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	tools := t.TempDir()
	testkit.WriteTool(t, tools, "strict.sh", "#!/bin/sh\n# /// tool\n# description: Wants a number.\n# input_schema:\n#   count: integer\n#   name: string?\n# ///\necho hello\n")
	testkit.WriteTool(t, tools, "wrong.sh", "#!/bin/sh\n# /// tool\n# description: Answers what does not fit.\n# output_schema: {type: object, properties: {n: {type: integer}}}\n# ///\necho '{\"n\": \""+secret+"\"}'\n")
	testkit.WriteTool(t, tools, "mixed.sh", "#!/bin/sh\n# /// tool\n# description: Is no result.\n# output: mcp\n# ///\necho '{\"content\": \""+secret+"\"}'\n")
	o := serveOrla(t, tools)
	for _, c := range []struct{ tool, args string }{
		{"strict", `{"count": "` + secret + `"}`}, {"strict", `"` + secret + `"`}, {"wrong", `{}`}, {"mixed", `{}`},
	} {
		if a, err := o.call(c.tool, c.args); err != nil || a.Result != nil && !a.Result.IsError {
			t.Errorf("%s: %+v, %v", c.tool, a, err)
		}
	}
	long := strings.Repeat("x", 200<<10)
	if _, err := o.call(long, "{}"); err != nil {
		t.Error(err)
	}
	o.waitLog("call", func(l map[string]any) bool { return l["code"] == "unsupported_tool" })
	o.mu.Lock()
	defer o.mu.Unlock()
	named := false
	for _, l := range o.lines {
		raw, _ := json.Marshal(l)
		if strings.Contains(string(raw), secret) || len(raw) > 64<<10 {
			t.Errorf("in the log: %.500s", raw)
		}
		reason, _ := l["reason"].(string)
		named = named || strings.Contains(reason, "count")
	}
	if !named {
		t.Error("no line names the argument that does not fit")
	}
}

// SPEC I2: a start that fails is in the log where nobody sees what is printed.
func TestI2StartThatFailsIsInTheLogFile(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	path := filepath.Join(t.TempDir(), "orla.log")
	o := startOrla(t, t.TempDir(), "--listen", taken.Addr().String(), "--log-file", path, "--tools-dir", t.TempDir())
	if code := o.wait(); code != int(exit.Failed) {
		t.Errorf("exit code %d", code)
	}
	lines := testkit.LinesOf(t, path)
	last := lines[len(lines)-1]
	if text, _ := last["err"].(string); last["msg"] != "failed" || last["level"] != "fatal" || !strings.Contains(text, "in use") {
		t.Errorf("the log ends with %v", last)
	}
}

// SPEC I1: logrotate itself, with the configuration that Orla comes with, rotates
// the log while calls come; no line is lost and none is torn.
func TestI1LogrotateRotatesTheLog(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "logrotate", "gzip")
	dir, tools := t.TempDir(), t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil { // logrotate wants a folder that others cannot write to
		t.Fatal(err)
	}
	testkit.WriteTool(t, tools, "hello", "#!/bin/sh\necho hello\n")
	path := filepath.Join(dir, "orla.log")
	o := startOrla(t, dir, "--listen", "127.0.0.1:0", "--log-file", path, "--tools-dir", tools)
	testkit.Eventually(t, "it serves", func() bool {
		data, _ := os.ReadFile(path)
		for raw := range bytes.Lines(data) {
			var line struct{ Msg, URL string }
			if json.Unmarshal(raw, &line) == nil && line.Msg == "serving" {
				o.url = line.URL
			}
		}
		return o.url != ""
	})

	// What the file says, for another folder, and for systemd what it would do.
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "logrotate", "orla"))
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	testkit.WriteTool(t, bin, "systemctl", fmt.Sprintf("#!/bin/sh\n[ \"$*\" = 'reload orla.service' ] && kill -HUP %d\n", o.cmd.Process.Pid))
	conf := filepath.Join(t.TempDir(), "orla.conf")
	if err := os.WriteFile(conf, bytes.ReplaceAll(text, []byte("/var/log/orla"), []byte(dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	pressure, stop := press(t, []caller{o.plain("hello"), o.plain("hello")}, lossless)
	const rotations = 3
	for i := range rotations {
		before := pressure.calls.Load()
		testkit.Eventually(t, "there are calls", func() bool { return pressure.calls.Load() > before+5 })
		cmd := exec.Command("logrotate", "--force", "--state", filepath.Join(bin, "state"), conf)
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		testkit.Eventually(t, fmt.Sprintf("rotation %d made a new file", i), func() bool {
			data, _ := os.ReadFile(path)
			return bytes.Contains(data, []byte(`"reason":"SIGHUP"`))
		})
	}
	stop()
	o.signal(syscall.SIGTERM)
	if code := o.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}

	calls := 0
	files := []string{path, path + ".1"}
	for i := 2; i <= rotations; i++ {
		packed := path + "." + strconv.Itoa(i) + ".gz"
		if out, err := exec.Command("gzip", "-d", packed).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		files = append(files, strings.TrimSuffix(packed, ".gz"))
	}
	for _, file := range files {
		for _, line := range testkit.LinesOf(t, file) {
			if line["msg"] == "call" {
				calls++
			}
		}
	}
	if int64(calls) != pressure.calls.Load() {
		t.Errorf("the log has %d calls of %d", calls, pressure.calls.Load())
	}
}

// SPEC I1: a log file that is full or gone stops nobody. What does not fit is on
// stderr, with the reason.
func TestI1FullLogFileStopsNobody(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	testkit.WriteTool(t, tools, "hello", "#!/bin/sh\necho hello\n")
	o := startOrla(t, t.TempDir(), "--listen", "127.0.0.1:0", "--log-file", "/dev/full", "--tools-dir", tools)
	o.url, _ = o.waitLog("serving", nil)["url"].(string)
	if got := o.mustCall("hello"); got != "hello\n" {
		t.Errorf("got %q", got)
	}
	o.waitLog("log_file cannot be written; writing the log to stderr until it can", func(l map[string]any) bool {
		text, _ := l["err"].(string)
		return strings.Contains(text, "no space left on device")
	})
	o.waitLog("call", nil)
}

func TestI1LogFileThatIsGoneStopsNobody(t *testing.T) {
	t.Parallel()
	tools, dir := t.TempDir(), filepath.Join(t.TempDir(), "log")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "orla.log")
	testkit.WriteTool(t, tools, "hello", "#!/bin/sh\necho hello\n")
	o := startOrla(t, t.TempDir(), "--listen", "127.0.0.1:0", "--log-file", path, "--tools-dir", tools)
	testkit.Eventually(t, "it serves", func() bool {
		data, _ := os.ReadFile(path)
		_, rest, _ := bytes.Cut(data, []byte(`"url":"`))
		url, _, found := bytes.Cut(rest, []byte(`"`))
		o.url = string(url)
		return found
	})
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	o.mustCall("hello")
	o.signal(syscall.SIGHUP) // there is no folder to make the file in: the old configuration stays
	o.mustCall("hello")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the log is there again", func() bool {
		o.signal(syscall.SIGHUP)
		o.mustCall("hello")
		data, err := os.ReadFile(path)
		return err == nil && bytes.Contains(data, []byte(`"msg":"call"`))
	})
}
