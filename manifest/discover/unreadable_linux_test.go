package discover_test

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/orla-project/orla/internal/testing/manifesttest"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/discover"
)

// asNobody runs f without the right to read everything that root has. Only the
// thread that f runs on loses it, and ends with its goroutine.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if os.Geteuid() == 0 {
			runtime.LockOSThread() // never unlocked
			if err := syscall.Setfsuid(65534); err != nil {
				t.Errorf("set the file system user: %v", err)
				return
			}
		}
		f()
	}()
	<-done
}

func TestA2WhatCannotBeReadIsSkippedAndTheRestServed(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	manifesttest.Write(t, "tools", "good.sh", manifesttest.Script, 0o755)
	manifesttest.Write(t, "tools", "secret.sh", manifesttest.Script, 0o311)
	manifesttest.Write(t, "tools", "closed/a.sh", manifesttest.Script, 0o755)
	manifesttest.Write(t, "tools", "pack/tool.yaml", "x", 0o000)
	manifesttest.Write(t, "tools", "side", manifesttest.Script, 0o755)
	manifesttest.Write(t, "tools", "side.tool.yaml", "", 0o000)
	manifesttest.Write(t, "tools", "res.yaml", "", 0o000)
	if err := os.Chmod("tools/closed", 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Chmod("tools/closed", 0o755); err != nil {
			t.Error(err)
		}
	})
	var r manifest.Result
	asNobody(t, func() { r = discover.Tools(discover.Options{ToolsDir: "tools"}) })
	manifesttest.Expect(t, r, []string{"good"}, []string{
		"error tools/closed: cannot be read: permission denied" + manifesttest.MayBeRule,
		"error tools/pack/tool.yaml: cannot be read: permission denied" + manifesttest.MayBeRule,
		"error tools/res.yaml: cannot be read: permission denied" + manifesttest.MayBeRule,
		"warning tools/secret.sh: cannot be read: permission denied",
		"error tools/side: tools/side.tool.yaml: cannot be read: permission denied" + manifesttest.MayBeRule,
	})
}

func TestAHomeThatCannotBeEnteredIsNoFault(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	manifesttest.Write(t, "tools", "good.sh", manifesttest.Script, 0o755)
	manifesttest.Write(t, "home", ".orla/tools/mine.sh", manifesttest.Script, 0o755)
	if err := os.Chmod("home", 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Chmod("home", 0o755); err != nil {
			t.Error(err)
		}
	})
	for user, want := range map[string][]string{
		"home/.orla/tools":          {"warning home/.orla/tools: cannot be read: permission denied"},
		"tools/good.sh/.orla/tools": {},
	} {
		var r manifest.Result
		asNobody(t, func() { r = discover.Tools(discover.Options{ToolsDir: "tools", UserDir: user}) })
		manifesttest.Expect(t, r, []string{"good"}, want)
	}
}
