package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/orla-project/orla/internal/needs"
)

// linesOf parses a log file, of which each line must be whole.
func linesOf(t *testing.T, path string) []map[string]any {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var lines []map[string]any
	for raw := range bytes.Lines(data) {
		var line map[string]any
		if err := json.Unmarshal(raw, &line); err != nil {
			t.Fatalf("%s: %q: %v", path, raw, err)
		}
		lines = append(lines, line)
	}
	return lines
}

// SPEC I1: logrotate itself, with the configuration that Orla comes with, rotates
// the log while calls come; no line is lost and none is torn.
func TestI1LogrotateRotatesTheLog(t *testing.T) {
	needs.Programs(t, "logrotate", "gzip")
	dir, tools := t.TempDir(), t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil { // logrotate wants a folder that others cannot write to
		t.Fatal(err)
	}
	writeTool(t, tools, "hello", "#!/bin/sh\necho hello\n")
	path := filepath.Join(dir, "orla.log")
	o := startOrla(t, dir, "--listen", "127.0.0.1:0", "--log-file", path, "--tools-dir", tools)
	eventually(t, "it serves", func() bool {
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
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "logrotate", "orla"))
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	writeTool(t, bin, "systemctl", fmt.Sprintf("#!/bin/sh\n[ \"$*\" = 'reload orla.service' ] && kill -HUP %d\n", o.cmd.Process.Pid))
	conf := filepath.Join(t.TempDir(), "orla.conf")
	if err := os.WriteFile(conf, bytes.ReplaceAll(text, []byte("/var/log/orla"), []byte(dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	pressure, stop := press(t, []caller{o.plain("hello"), o.plain("hello")}, lossless)
	const rotations = 3
	for i := range rotations {
		before := pressure.calls.Load()
		eventually(t, "there are calls", func() bool { return pressure.calls.Load() > before+5 })
		cmd := exec.Command("logrotate", "--force", "--state", filepath.Join(bin, "state"), conf)
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		eventually(t, fmt.Sprintf("rotation %d made a new file", i), func() bool {
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
		for _, line := range linesOf(t, file) {
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
	tools := t.TempDir()
	writeTool(t, tools, "hello", "#!/bin/sh\necho hello\n")
	o := startOrla(t, t.TempDir(), "--listen", "127.0.0.1:0", "--log-file", "/dev/full", "--tools-dir", tools)
	o.url, _ = o.waitLog("serving", nil)["url"].(string)
	if got := o.mustCall("hello"); got != "hello\n" {
		t.Errorf("got %q", got)
	}
	o.waitLog("log_file cannot be written; the log goes to stderr meanwhile", func(l map[string]any) bool {
		text, _ := l["err"].(string)
		return strings.Contains(text, "no space left on device")
	})
	o.waitLog("call", nil)
}

func TestI1LogFileThatIsGoneStopsNobody(t *testing.T) {
	tools, dir := t.TempDir(), filepath.Join(t.TempDir(), "log")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "orla.log")
	writeTool(t, tools, "hello", "#!/bin/sh\necho hello\n")
	o := startOrla(t, t.TempDir(), "--listen", "127.0.0.1:0", "--log-file", path, "--tools-dir", tools)
	eventually(t, "it serves", func() bool {
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
	eventually(t, "the log is there again", func() bool {
		o.signal(syscall.SIGHUP)
		o.mustCall("hello")
		data, err := os.ReadFile(path)
		return err == nil && bytes.Contains(data, []byte(`"msg":"call"`))
	})
}

// diskful is a file on a disk that is full at times.
type diskful struct {
	bytes.Buffer
	room int // -1 for any
}

func (d *diskful) Write(p []byte) (int, error) {
	if d.room < 0 {
		return d.Buffer.Write(p)
	}
	if len(p) <= d.room {
		d.room -= len(p)
		return d.Buffer.Write(p)
	}
	n, _ := d.Buffer.Write(p[:d.room])
	d.room = 0
	return n, errors.New("no space left")
}

// A line that did not fit is whole on stderr; the lines after it are whole in
// the file, which says how many are missing.
func TestFullLogFileIsWrittenAgain(t *testing.T) {
	var stderr bytes.Buffer
	l := newLogging(&stderr, "")
	disk := &diskful{room: 200}
	l.out.file = newSteady(disk, nil)
	for i := range 4 {
		l.Info("line", "i", i)
	}
	disk.room = -1
	for i := range 2 {
		l.Info("line", "i", 4+i)
	}
	l.out.file.end()
	if got := strings.Count(stderr.String(), `"msg":"line"`); got < 2 || !strings.Contains(stderr.String(), "log_file cannot be written") {
		t.Errorf("stderr has %q", &stderr)
	}
	whole := 0
	for raw := range strings.Lines(disk.String()) {
		if json.Valid([]byte(raw)) {
			whole++
		}
	}
	if torn := strings.Count(disk.String(), "\n") - whole; torn != 1 || !strings.Contains(disk.String(), `can be written again`) || !strings.Contains(disk.String(), `"i":5`) {
		t.Errorf("the file has %q", disk)
	}
}

// SPEC I1: a file that ends with a part of a line, be it of a disk that was full
// before a SIGHUP or of an Orla that was killed, swallows none of the lines after it.
func TestI1LinesAfterATornOneAreWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orla.log")
	const torn = `{"time":"2026-11-22T04:58:04.87`
	if err := os.WriteFile(path, []byte(torn), 0o600); err != nil {
		t.Fatal(err)
	}
	out := newOutput(io.Discard, "")
	for _, line := range []string{"first\n", "second\n"} {
		file, err := openLog(path) // anew for each line, as SIGHUP has it
		if err != nil {
			t.Fatal(err)
		}
		out.use(file)
		if _, err := out.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	out.use(nil)
	if got, want := readFile(t, path), torn+"\nfirst\nsecond\n"; got != want {
		t.Errorf("the file holds %q, want %q", got, want)
	}
}

// SPEC I1: the reader of a FIFO that stops reading stops nobody either.
func TestI1LogFileThatIsNotReadStopsNobody(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(path, os.O_RDWR, 0) // and never reads
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close() }()
	file, err := openLog(path)
	if err != nil {
		t.Fatal(err)
	}
	l := newLogging(&bytes.Buffer{}, "")
	cfg := defaults()
	l.configure(cfg.LogLevel, cfg.LogFormat, file)
	for range 5000 { // more than a pipe has room for
		l.Info("line", "text", strings.Repeat("x", 100))
	}
	l.configure(cfg.LogLevel, cfg.LogFormat, nil)
}
