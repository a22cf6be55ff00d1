package discover_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/orla-project/orla/internal/testing/manifesttest"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/discover"
)

// denying lists what denies every call, below a folder.
func denying(dir string) (paths []string) {
	for _, p := range discover.Tools(discover.Options{ToolsDir: dir}).Problems {
		if p.Denies && p.Severity == manifest.Fault {
			paths = append(paths, strings.TrimPrefix(p.Path, dir+"/"))
		}
	}
	return paths
}

// SPEC-TOOLS 8.3: a file or a folder that may hold a governance document and cannot
// be read denies calls, wherever it is; what cannot hold one does not.
func TestT83WhatCannotBeReadDenies(t *testing.T) {
	dir := t.TempDir()
	for at := dir; at != os.TempDir(); at = filepath.Dir(at) {
		if err := os.Chmod(at, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	tools := filepath.Join(dir, "tools")
	manifesttest.WritePackage(t, filepath.Join(tools, "pack"), "pack", "1.0.0")
	manifesttest.WritePackage(t, filepath.Join(tools, "broken"), "broken", "1.0.0")
	manifesttest.WritePackage(t, filepath.Join(tools, "linked"), "linked", "1.0.0")
	var closed []string
	file := func(name string, deny bool) {
		manifesttest.Write(t, tools, name, "x", 0o000)
		if deny {
			closed = append(closed, name)
		}
	}
	folder := func(name string, deny bool) {
		manifesttest.Write(t, tools, name+"/x.yaml", "x", 0o644)
		at := filepath.Join(tools, name)
		if err := os.Chmod(at, 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(at, 0o755) })
		if deny {
			closed = append(closed, name)
		}
	}
	file("a.yaml", true)
	file("b.JSON", true)
	file("pack/policy.yml", true)
	file("pack/data/policy.json", true)
	file("tool.yml", true)
	file("none.tool.yaml", true)
	folder("rules", true)
	folder("deep/rules", true)
	folder("pack/data/rules", true)
	folder("../outside", false)
	manifesttest.Link(t, "../outside", filepath.Join(tools, "out"))
	manifesttest.Link(t, "../outside/x.yaml", filepath.Join(tools, "out.yaml"))
	manifesttest.Link(t, "../outside/x", filepath.Join(tools, "behind"))
	closed = append(closed, "out", "out.yaml", "behind")
	if err := os.Chmod(filepath.Join(tools, "broken/tool.yaml"), 0); err != nil {
		t.Fatal(err)
	}
	closed = append(closed, "broken/tool.yaml")

	file("data.bin", false)
	file(".hidden.yaml", false)
	file("old.yaml~", false)
	file("pack/data.db", false)
	folder(".git", false)
	folder("pack/node_modules", false)
	slices.Sort(closed)
	var got []string
	asNobody(t, func() { got = denying(tools) })
	if !slices.Equal(got, closed) {
		t.Errorf("got  %q\nwant %q", got, closed)
	}
}

// SPEC-TOOLS 8.3: the user's folder of tools denies as well, and the project's does
// if it cannot be read itself.
func TestT83AToolsFolderThatCannotBeReadDenies(t *testing.T) {
	dir := t.TempDir()
	for at := dir; at != os.TempDir(); at = filepath.Dir(at) {
		if err := os.Chmod(at, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	manifesttest.Write(t, dir, "shut/tools/a.sh", manifesttest.Script, 0o755)
	manifesttest.Write(t, dir, "open/b.sh", manifesttest.Script, 0o755)
	for _, name := range []string{"shut", "shut/tools"} {
		at := filepath.Join(dir, name)
		if err := os.Chmod(at, 0); err != nil {
			t.Fatal(err)
		}
		var project, user manifest.Result
		asNobody(t, func() {
			project = discover.Tools(discover.Options{ToolsDir: filepath.Join(dir, "shut/tools"), UserDir: filepath.Join(dir, "open")})
			user = discover.Tools(discover.Options{ToolsDir: filepath.Join(dir, "open"), UserDir: filepath.Join(dir, "shut/tools")})
		})
		if err := os.Chmod(at, 0o755); err != nil {
			t.Fatal(err)
		}
		denies := func(p manifest.Problem) bool { return p.Denies }
		if !slices.ContainsFunc(project.Problems, denies) {
			t.Errorf("%s: the project's folder: %q", name, manifesttest.Texts(project))
		}
		// A home that cannot be entered is somebody else's; see TestAHomeThatCannotBeEnteredIsNoFault.
		if name != "shut" && !slices.ContainsFunc(user.Problems, denies) {
			t.Errorf("%s: the user's folder: %q", name, manifesttest.Texts(user))
		}
	}
}

// SPEC-TOOLS 8.3: what stands where a document may stand, and is not a file, denies
// and is not waited for.
func TestT83WhatIsNotAFileDenies(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tools")
	manifesttest.WritePackage(t, filepath.Join(dir, "pack"), "pack", "1.0.0")
	manifesttest.Write(t, dir, "data/x", "", 0o644)
	for _, name := range []string{"a.yaml", "pack/b.json", "pack/data.fifo", "data.fifo", ".c.yaml", "data/d.tool.yaml"} {
		fifo(t, filepath.Join(dir, name))
	}
	manifesttest.Link(t, "data.fifo", filepath.Join(dir, "e.yaml"))
	manifesttest.Link(t, "../data.fifo", filepath.Join(dir, "pack/f.yaml"))
	if got, want := denying(dir), []string{"a.yaml", "data/d.tool.yaml", "e.yaml", "pack/b.json", "pack/f.yaml"}; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// SPEC-TOOLS 8.3: a process that holds a lease on a file does not hold up the search.
func TestT83AFileWithALeaseIsNotWaitedFor(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tools")
	manifesttest.WritePackage(t, filepath.Join(dir, "pack"), "pack", "1.0.0")
	leased := []string{"a.yaml", "pack/b.json", "pack/tool.yaml", "tool.sh", "tool.tool.yaml"}
	manifesttest.Write(t, dir, "a.yaml", "x", 0o644)
	manifesttest.Write(t, dir, "pack/b.json", "x", 0o644)
	manifesttest.Write(t, dir, "tool.sh", manifesttest.Script, 0o755)
	manifesttest.Write(t, dir, "tool.tool.yaml", "description: x\n", 0o644)
	for _, name := range leased {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
			t.Skipf("no leases on this file system: %v", err)
		}
	}
	// Without O_NONBLOCK each of them opens when the kernel has broken its lease, and denies nothing.
	if got, want := denying(dir), []string{"a.yaml", "pack/b.json", "pack/tool.yaml", "tool.sh"}; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// /proc/kmsg is such a file, and to read it waits until the kernel says something.
func TestS2AFileThatTheKernelMakesIsNotRead(t *testing.T) {
	t.Chdir(t.TempDir())
	manifesttest.Write(t, "tools", "good.sh", manifesttest.Script, 0o755)
	if err := os.Symlink("/proc/version", "tools/k.yaml"); err != nil {
		t.Fatal(err)
	}
	manifesttest.Expect(t, discover.Tools(discover.Options{ToolsDir: "tools"}), []string{"good"}, []string{
		"warning tools/k.yaml: is skipped: it is a link that leaves the folder, to /proc/version",
		"error tools/k.yaml: is not a regular file but one that the kernel makes, such as those of /proc" + manifesttest.MayBeRule,
	})
}
