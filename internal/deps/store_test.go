package deps

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/deps/envfiles"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// launcher is one for all tests: a process has one.
var launcher = sync.OnceValues(func() (*launch.Local, error) {
	return launch.NewLocal(launch.Options{Log: slog.New(slog.DiscardHandler)})
})

// store returns a Store in a folder.
func store(t testing.TB, dir string, environ ...string) *Store {
	t.Helper()
	local, err := launcher()
	if err != nil {
		t.Fatal(err)
	}
	own := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "PIP_") || strings.HasPrefix(kv, "UV_") })
	own = slices.DeleteFunc(own, func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.ContainsFunc(environ, func(set string) bool { return strings.HasPrefix(set, name+"=") })
	})
	s := NewStore(Options{Dir: dir, Launcher: local.Launcher(), Environ: append(own, environ...), Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(s.Close)
	return s
}

// shell returns a Source whose environment a shell command makes, in the folder $ORLA_ENV.
func shell(t *testing.T, command string) Source {
	t.Helper()
	s := source(t, Python, "", map[string]string{"requirements.txt": command})
	s.Command = []string{"sh", "-c", command}
	return s
}

func detect(t *testing.T, s *Store, from Source) Need {
	t.Helper()
	need, err := s.Detect(from)
	if err != nil {
		t.Fatal(err)
	}
	return need
}

func quiet(string) {}

// left returns what is in the folder of a Store besides locks.
func left(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), lockSuffix) {
			names = append(names, e.Name())
		}
	}
	return names
}

// SPEC R3: all who need the same environment wait for one build, also in two Orlas at once.
func TestR3OneBuildForAll(t *testing.T) {
	dir, count := t.TempDir(), filepath.Join(t.TempDir(), "count")
	from := shell(t, "echo x >>"+count+"; touch $ORLA_ENV/made")
	var all sync.WaitGroup
	for range 2 {
		s := store(t, dir)
		for range 4 {
			all.Go(func() {
				env, err := s.Build(t.Context(), detect(t, s, from), quiet)
				if err != nil {
					t.Error(err)
				}
				if _, err := os.Stat(filepath.Join(env.Dir, "made")); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	if text, _ := os.ReadFile(count); string(text) != "x\n" {
		t.Errorf("it was built %d times", len(text)/2)
	}
}

// SPEC R3: what a killed Orla has left is not used, and does not disturb the next build.
func TestR3WhatAKilledOrlaLeaves(t *testing.T) {
	dir := t.TempDir()
	s := store(t, dir)
	need := detect(t, s, shell(t, "test ! -e $ORLA_ENV/half && touch $ORLA_ENV/made"))
	put(t, filepath.Join(s.place(need.Digest)+".X"+partSuffix, "half"), "")
	if _, ok := s.Ready(need); ok {
		t.Error("half of an environment is used")
	}
	env, err := s.Build(t.Context(), need, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if got := left(t, dir); len(got) != 1 || filepath.Join(dir, got[0]) != env.Dir {
		t.Errorf("the folder has %q", got)
	}
	other := filepath.Join(dir, strings.Repeat("0", 32)+".X"+partSuffix)
	put(t, filepath.Join(other, "half"), "")
	tool := s.Tool(need.source)
	s.Keep(dir, "key", []*Tool{tool})
	if exists(other) || !exists(env.Dir) {
		t.Errorf("after a collection there are %q", left(t, dir))
	}
}

// SPEC R5: a process of a build whose Orla was killed writes into a folder that the next build does not have.
func TestR5EachBuildHasAFolderOfItsOwn(t *testing.T) {
	s := store(t, t.TempDir())
	fails := filepath.Join(t.TempDir(), "fails")
	where := filepath.Join(t.TempDir(), "where")
	need := detect(t, s, shell(t, "echo $ORLA_ENV >>'"+where+"'; test -e '"+fails+"' || { touch '"+fails+"'; exit 1; }; touch $ORLA_ENV/made"))
	if _, err := s.Build(t.Context(), need, quiet); err == nil {
		t.Fatal("the first build has not failed")
	}
	if _, err := s.Build(t.Context(), need, quiet); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(where)
	if folders := strings.Fields(string(text)); err != nil || len(folders) != 2 || folders[0] == folders[1] {
		t.Errorf("the builds had %q, %v", folders, err)
	}
}

// SPEC R5: an environment that has lost the Python that its command has made is built again, and one whose command makes none
// is used with the tool's interpreter.
func TestR5TheMachinesPythonIsNoSubstitute(t *testing.T) {
	s := store(t, t.TempDir())
	from := shell(t, "mkdir $ORLA_ENV/bin; ln -s /bin/sh $ORLA_ENV/bin/python")
	env, err := s.Build(t.Context(), detect(t, s, from), quiet)
	if err != nil || env.Program != filepath.Join(env.Dir, "bin", "python") {
		t.Fatalf("it runs %s, %v", env.Program, err)
	}
	if err := os.Remove(env.Program); err != nil {
		t.Fatal(err)
	}
	if got, ok := s.Ready(detect(t, s, from)); ok {
		t.Errorf("without its Python the environment is used with %s", got.Program)
	}
	if _, err := s.Build(t.Context(), detect(t, s, from), quiet); err != nil || !exists(env.Program) {
		t.Errorf("it is not built again: %v", err)
	}
	from = shell(t, "touch $ORLA_ENV/made")
	if env, err = s.Build(t.Context(), detect(t, s, from), quiet); err != nil || env.Program != from.Interpreter {
		t.Errorf("without a Python of its own it runs %s, %v", env.Program, err)
	}
}

// SPEC R4: builds for installed packages that do not end hold one place each, and none that the user's own tools have.
func TestR4SlowPackagesHoldOnePlaceEach(t *testing.T) {
	s := store(t, t.TempDir())
	gate := filepath.Join(t.TempDir(), "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	began := make(chan string, 64)
	var builds sync.WaitGroup
	build := func(pack, version, command string) {
		from := shell(t, command)
		if pack != "" {
			from.Package = pack + " h1:" + version
		}
		need := detect(t, s, from)
		builds.Go(func() {
			_, err := s.Build(t.Context(), need, func(line string) { began <- strings.TrimSpace(pack + " " + version + " " + line) })
			if err == nil {
				began <- strings.TrimSpace(pack + " " + version + " ended")
			}
		})
	}
	const waits = " waiting until other dependencies are installed"
	slow := "echo begins; cat '" + gate + "' >/dev/null; touch $ORLA_ENV/made"
	for _, step := range []struct{ pack, version, command, want string }{
		{"slow", "1", slow, "slow 1 begins"},
		{"slow", "2", slow, "slow 2" + waits},
		{"other", "1", "touch $ORLA_ENV/made", "other 1 ended"},
		{"slower", "1", slow, "slower 1 begins"},
		{"c", "1", slow, "c 1 begins"},
		{"d", "1", slow, "d 1 begins"},
		{"other", "2", slow, "other 2" + waits},
		{"", "", "touch $ORLA_ENV/made", "ended"},
	} {
		build(step.pack, step.version, step.command)
		select {
		case got := <-began:
			if got != step.want {
				t.Fatalf("%q, want %q", got, step.want)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s does not come", step.want)
		}
	}
	s.Close()
	builds.Wait()
}

// SPEC R4: a failed build shows the installer's last lines and leaves nothing.
func TestR4AFailedBuild(t *testing.T) {
	dir := t.TempDir()
	s := store(t, dir)
	var lines []string
	_, err := s.Build(t.Context(), detect(t, s, shell(t, "echo looking; touch $ORLA_ENV/half; echo there is no such package >&2; exit 3")), func(line string) { lines = append(lines, line) })
	if err == nil || !strings.Contains(err.Error(), "exit code 3): there is no such package") {
		t.Errorf("the error is %v", err)
	}
	if got := left(t, dir); len(got) != 0 {
		t.Errorf("it leaves %q", got)
	}
}

// awaitPid waits until a build has written a process id.
func awaitPid(t *testing.T, file string) int {
	t.Helper()
	var pid int
	testkit.Eventually(t, "it happens", func() bool {
		text, err := os.ReadFile(file)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil && pid > 0
	})
	return pid
}

// SPEC R4: a build that hangs and forks ends with all its processes when Orla stops.
func TestR4ABuildEndsWithOrla(t *testing.T) {
	needs.Time(t, "starts its program again")
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "pid")
	s := store(t, dir)
	failed := make(chan error, 1)
	go func() {
		_, err := s.Build(t.Context(), detect(t, s, shell(t, "(trap '' TERM; echo $$ >"+file+"; sleep 1000 & echo $! >"+file+"; wait)")), quiet)
		failed <- err
	}()
	pid := awaitPid(t, file)
	s.Close()
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "as Orla stops") {
		t.Errorf("the error is %v", err)
	}
	testkit.Eventually(t, "the process has ended", func() bool { return syscall.Kill(pid, 0) != nil })
	if got := left(t, dir); len(got) != 0 {
		t.Errorf("it leaves %q", got)
	}
}

// SPEC R4: a build is ended when the tool needs something else by now; one who waits no longer does not end it.
func TestR4ABuildThatNobodyNeeds(t *testing.T) {
	s := store(t, t.TempDir())
	file := filepath.Join(t.TempDir(), "pid")
	from := shell(t, "echo $$ >"+file+"; exec sleep 1000")
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	need := detect(t, s, from)
	go func() {
		_, err := s.Build(ctx, need, quiet)
		failed <- err
	}()
	pid := awaitPid(t, file)
	cancel()
	if err := <-failed; err == nil {
		t.Error("it was built")
	}
	if syscall.Kill(pid, 0) != nil {
		t.Error("the build has ended, though the tool needs it")
	}
	from.Command = []string{"sh", "-c", "touch $ORLA_ENV/made"}
	if _, err := s.Build(t.Context(), detect(t, s, from), quiet); err != nil {
		t.Error(err)
	}
	testkit.Eventually(t, "it happens", func() bool { return syscall.Kill(pid, 0) != nil })
}

// SPEC R3: of fifty environments those stay that a tool needs, or another folder of tools, or another Orla.
func TestR3Collection(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	s, other := store(t, dir), store(t, dir)
	build := func(s *Store, n int) (*Tool, Env) {
		tool := s.Tool(shell(t, fmt.Sprintf("touch $ORLA_ENV/%d", n)))
		if err := tool.Install(t.Context(), quiet); err != nil {
			t.Fatal(err)
		}
		env, _ := tool.Env()
		return tool, env
	}
	tool, env := build(s, 0)
	_, used := build(other, 1)
	named, there := build(s, 2)
	s.Keep(elsewhere, "elsewhere", []*Tool{named})
	for n := range 47 {
		put(t, filepath.Join(dir, fmt.Sprintf("%032x", n), "made"), "")
	}
	s.Keep(t.TempDir(), "here", []*Tool{tool})
	got := left(t, dir)
	for _, dir := range []string{env.Dir, used.Dir, there.Dir} {
		if !exists(dir) {
			t.Errorf("%s is gone", dir)
		}
	}
	if len(got) != 4 { // with the list of users
		t.Errorf("%d entries are left", len(got))
	}
	other.Close()
	s.mu.Lock()
	for digest := range s.held { // as after a time
		s.unheld[digest] = time.Now().Add(-time.Hour)
	}
	s.mu.Unlock()
	if err := os.RemoveAll(elsewhere); err != nil {
		t.Fatal(err)
	}
	s.Keep(t.TempDir(), "here", []*Tool{tool})
	if got := left(t, dir); len(got) != 2 || !exists(env.Dir) {
		t.Errorf("%q are left", got)
	}
}

// SPEC R4: a tool that has an environment uses it until the new one is there, and after a failed build.
func TestR4TheOldEnvironmentServes(t *testing.T) {
	s := store(t, t.TempDir())
	gate := filepath.Join(t.TempDir(), "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	from := shell(t, "cat "+gate+"; grep -q new requirements.txt && touch $ORLA_ENV/new; ! grep -q broken requirements.txt")
	file := from.Folders[0] + "/requirements.txt"
	put(t, file, "old")
	open := func() { put(t, gate, "x") }
	tool := s.Tool(from)
	go open()
	if err := tool.Ensure(t.Context(), quiet); err != nil {
		t.Fatal(err)
	}
	old, _ := tool.Env()
	put(t, file, "new")
	if err := tool.Ensure(t.Context(), quiet); err != nil {
		t.Fatal(err)
	}
	if env, _ := tool.Env(); env.Dir != old.Dir {
		t.Error("the old environment is not used while the new one is built")
	}
	open()
	testkit.Eventually(t, "it happens", func() bool {
		if err := tool.Ensure(t.Context(), quiet); err != nil {
			t.Fatal(err)
		}
		env, _ := tool.Env()
		return exists(filepath.Join(env.Dir, "new"))
	})
	old, _ = tool.Env()
	put(t, file, "broken")
	go open()
	if err := tool.Install(t.Context(), quiet); err == nil {
		t.Error("no error")
	}
	if env, _ := tool.Env(); env.Dir != old.Dir || tool.Missing() {
		t.Error("after a failed build the old environment is not used")
	}
	put(t, file, "-r nowhere.txt")
	if !tool.Missing() {
		t.Error("what cannot be read is not noticed")
	}
	if err := tool.Install(t.Context(), quiet); err == nil || !strings.Contains(err.Error(), "nowhere.txt") {
		t.Errorf("the error of what cannot be read is %v", err)
	}
	if env, _ := tool.Env(); env.Dir != old.Dir || tool.Missing() {
		t.Error("after what cannot be read the old environment is not used")
	}
	if tool.Retry(); !tool.Missing() {
		t.Error("it cannot be tried again")
	}
}

// SPEC R4: a full disk is a failed build.
func TestR4AFullDisk(t *testing.T) {
	needs.Root(t, "mount a small disk")
	dir := t.TempDir()
	if err := mountSmall(dir); err != nil {
		needs.Missing(t, "a tmpfs cannot be mounted: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, 0) })
	s := store(t, dir)
	_, err := s.Build(t.Context(), detect(t, s, shell(t, "head -c 4000000 /dev/zero >$ORLA_ENV/large")), quiet)
	if err == nil || !strings.Contains(err.Error(), "No space left") {
		t.Errorf("the error is %v", err)
	}
	if got := left(t, dir); len(got) != 0 {
		t.Errorf("it leaves %q", got)
	}
	if _, err := s.Build(t.Context(), detect(t, s, shell(t, "touch $ORLA_ENV/small")), quiet); err != nil {
		t.Errorf("the next build: %v", err)
	}
}

// SPEC R3: a file that has other names as well, in a cache or anywhere, keeps its mode.
func TestR3FilesWithOtherNamesKeepTheirMode(t *testing.T) {
	dir, other := t.TempDir(), filepath.Join(t.TempDir(), "private")
	if err := os.WriteFile(other, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(other, filepath.Join(dir, "linked")); err != nil {
		t.Fatal(err)
	}
	if err := envfiles.OpenToRead(dir); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]os.FileMode{other: 0o600, filepath.Join(dir, "linked"): 0o644} {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", file, info.Mode(), err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, "linked")); err != nil || string(text) != "x" {
		t.Errorf("the copy has %q, %v", text, err)
	}
}
