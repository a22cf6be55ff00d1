package program

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/testing/testkit"
)

// SPEC S2: whatever is in place of a file that Orla keeps, Orla starts and serves, or says at once why it does not.
func TestS2AFIFOInPlaceOfWhatOrlaKeeps(t *testing.T) {
	t.Parallel()
	dir, home := t.TempDir(), t.TempDir()
	tools, state := filepath.Join(dir, "tools"), filepath.Join(dir, "state")
	testkit.WriteTool(t, tools, "hello.sh", "#!/bin/sh\necho hello\n")
	newPack(t, tools, "pack", "", map[string]string{"answer.py": says("'hi'")})
	testkit.WriteTool(t, tools, "ask.yaml", "apiVersion: orloj.dev/v1\nkind: ToolPermission\nmetadata: {name: hello}\nspec: {tool_ref: hello, operation_rules: [{verdict: approval_required}]}\n")
	testkit.WriteTool(t, dir, "orla.yaml", "state_dir: state\naudit_log: state/audit.log\nport: 0\nlog_format: json\n")
	start := func() *running { return startAs(t, home, dir, orlaBinary(t)) }
	o := start()
	o.url, _ = o.waitLog("serving", nil)["url"].(string)
	o.signal(syscall.SIGTERM)
	if code := o.wait(); code != 0 {
		t.Fatalf("it ends with %d", code)
	}
	var files []string
	err := filepath.WalkDir(state, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) < 4 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, file := range files {
		kept := file + ".kept"
		if err := os.Rename(file, kept); errors.Is(err, fs.ErrNotExist) {
			continue // the last start has put it together with others
		} else if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(file, 0o600); err != nil {
			t.Fatal(err)
		}
		o := start()
		serves := o.servesOrEnds()
		if serves {
			o.signal(syscall.SIGTERM)
		}
		code := o.wait()
		t.Logf("%s: serves: %v, ends with %d", strings.TrimPrefix(file, state), serves, code)
		if serves != (code == 0) {
			t.Errorf("%s: it serves: %v, and ends with %d", file, serves, code)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(kept, file); err != nil {
			t.Fatal(err)
		}
	}
}

// servesOrEnds waits until Orla serves, and reports false if it has ended.
func (o *running) servesOrEnds() bool {
	o.t.Helper()
	for deadline := time.After(testkit.Patience); ; {
		o.mu.Lock()
		news := o.news
		o.mu.Unlock()
		if o.count("serving", nil) > 0 {
			return true
		}
		select {
		case <-news:
		case err := <-o.exit:
			o.exit <- err
			return false
		case <-deadline:
			o.t.Fatal("Orla neither serves nor ends")
		}
	}
}
