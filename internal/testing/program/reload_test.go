package program

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/orla-project/orla/internal/testing/testkit"
)

// SPEC H2: what holds but cannot be put in force changes nothing either, and
// nothing that stands where the configuration should can keep Orla busy.
func TestH2WhatCannotBeAppliedChangesNothing(t *testing.T) {
	t.Parallel()
	tools, dir := t.TempDir(), t.TempDir()
	testkit.WriteTool(t, tools, "echo.sh", "#!/bin/sh\necho ok\n")
	config := filepath.Join(dir, "orla.yaml")
	first := fmt.Sprintf("tools_dir: %s\nport: 0\n", tools)
	if err := os.WriteFile(config, []byte(first), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "other"), 0o755); err != nil {
		t.Fatal(err)
	}
	o := startOrla(t, dir)
	o.url, _ = o.waitLog("serving", nil)["url"].(string)
	for text, want := range map[string]string{
		"log_file: " + dir + "/absent/orla.log\n":           "orla.yaml:4:11: log_file: open ",
		"auth: {tokens: [{name: a, file: " + dir + "/no}]}": "orla.yaml:4:33: auth.tokens[0].file: ",
	} {
		if err := os.WriteFile(config, []byte("tools_dir: other\nport: 0\nlog_level: debug\n"+text), 0o644); err != nil {
			t.Fatal(err)
		}
		o.signal(syscall.SIGHUP)
		o.waitLog("reload failed; keeping the previous configuration", func(l map[string]any) bool { return strings.Contains(fmt.Sprint(l["err"]), want) })
		if got := o.mustCall("echo"); got != "ok\n" {
			t.Errorf("echo = %q", got)
		}
	}
	if err := os.Remove(config); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(config, 0o644); err != nil {
		t.Fatal(err)
	}
	o.signal(syscall.SIGHUP)
	o.waitLog("reload: the configuration has errors; keeping the previous one", func(l map[string]any) bool {
		return strings.Contains(fmt.Sprint(l["err"]), "orla.yaml is not a regular file")
	})
	if n := o.count("reload", nil); n != 1 {
		t.Errorf("%d reloads; want the start alone", n)
	}
	o.signal(syscall.SIGTERM)
	if code := o.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// SPEC N1: an operator hears of it if a reload has calls need no token any more, as where the configuration was cut while it was saved.
func TestN1AReloadThatOpensOrlaSaysSo(t *testing.T) {
	t.Parallel()
	tools, dir := t.TempDir(), t.TempDir()
	testkit.WriteTool(t, tools, "echo.sh", "#!/bin/sh\necho ok\n")
	token, config := filepath.Join(dir, "token"), filepath.Join(dir, "orla.yaml")
	if err := os.WriteFile(token, []byte("0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	open := fmt.Sprintf("tools_dir: %s\nport: 0\n", tools)
	write := func(text string) {
		if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(open + "auth: {tokens: [{name: a, file: " + token + "}]}\n")
	o := startOrla(t, dir)
	o.waitLog("serving", nil)
	write(open)
	o.signal(syscall.SIGHUP)
	o.waitLog("calls need no token any more", func(l map[string]any) bool { return l["level"] == "warn" })
	o.signal(syscall.SIGTERM)
	if code := o.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A log whose reader is gone, as with `orla 2>&1 | head` or when journald is
// started again, does not end Orla.
func TestOrlaOutlivesTheReaderOfItsLog(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	testkit.WriteTool(t, tools, "echo.sh", "#!/bin/sh\necho ok\n")
	o, log := startUnread(t, "--tools-dir", tools)
	_ = log.Close()
	for range 2 { // the first writes the line that nobody reads
		if got := o.mustCall("echo"); got != "ok\n" {
			t.Fatalf("echo = %q", got)
		}
	}
	o.signal(syscall.SIGTERM)
	o.exit <- o.cmd.Wait()
	if code := o.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// startUnread starts Orla with a log that is read only until it serves. What
// comes after that can be read from log.
func startUnread(t *testing.T, args ...string) (o *running, log *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(orlaBinary(t), append(args, "--port", "0")...)
	cmd.Dir, cmd.Env, cmd.Stderr = t.TempDir(), append(os.Environ(), "HOME="+t.TempDir()), w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may be over
		_ = r.Close()
	})
	_ = w.Close()
	o = &running{t: t, cmd: cmd, exit: make(chan error, 1)}
	for lines := bufio.NewScanner(r); o.url == "" && lines.Scan(); {
		var line struct{ URL string }
		if err := json.Unmarshal(lines.Bytes(), &line); err == nil {
			o.url = line.URL
		}
	}
	return o, r
}

// A log that is open and not read, as MCP clients leave the stderr of a server,
// does not hold Orla up, and says afterwards what is missing.
func TestOrlaDoesNotWaitForTheReaderOfItsLog(t *testing.T) {
	t.Parallel()
	o, log := startUnread(t, "--tools-dir", t.TempDir(), "--log-level", "debug")
	list := func() {
		if _, err := o.post("tools/list", "{}"); err != nil {
			t.Fatal(err)
		}
	}
	const more = 1000 // of about 200 bytes each than a pipe holds
	for range more {
		list()
	}
	told := make(chan bool, 1)
	go func() {
		lines := bufio.NewScanner(log)
		for lines.Scan() {
			if strings.Contains(lines.Text(), `"msg":"log lines were dropped: nobody read them","lines":`) {
				told <- true
			}
		}
		close(told)
	}()
	testkit.Eventually(t, "the log says that lines are missing", func() bool {
		list()
		select {
		case yes := <-told:
			return yes
		default:
			return false
		}
	})
	o.signal(syscall.SIGTERM)
	o.exit <- o.cmd.Wait()
	if code := o.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestAStuckLogDoesNotHoldUpTheEnd(t *testing.T) {
	t.Parallel()
	o, _ := startUnread(t, "--tools-dir", t.TempDir(), "--log-level", "debug")
	for range 1000 {
		if _, err := o.post("tools/list", "{}"); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 { // more than are kept must not keep out the one that ends
		o.signal(syscall.SIGUSR1)
		o.signal(syscall.SIGHUP)
	}
	o.signal(syscall.SIGTERM)
	o.exit <- o.cmd.Wait()
	if code := o.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
