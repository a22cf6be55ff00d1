package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/control/unixsocket"
)

// names lists a folder.
func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}

func TestJ2TheSocketIsForItsUserAlone(t *testing.T) {
	s := serve(t, newBackend())
	dir := filepath.Dir(s.socket)
	for path, want := range map[string]fs.FileMode{
		dir:                             fs.ModeDir | 0o700,
		s.socket:                        fs.ModeSocket | 0o600,
		filepath.Join(dir, "orla.lock"): 0o600,
	} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%s has mode %s; want %s", path, info.Mode(), want)
		}
	}
	var owner unixsocket.Owner
	raw, err := os.ReadFile(filepath.Join(dir, "orla.lock"))
	if err != nil || json.Unmarshal(raw, &owner) != nil || owner.Pid != os.Getpid() || owner.URL != "http://here" || owner.ToolsDir != "/tools" {
		t.Errorf("the lock says %s, %v", raw, err)
	}
	s.stop()
	if left := names(t, dir); left != "" {
		t.Errorf("%s is left", left)
	}
}

// Beyond the 108 bytes of a socket's address there are folders too.
func TestJ2ALongPathIsServed(t *testing.T) {
	s := start(t, newBackend())
	s.point(filepath.Join(t.TempDir(), strings.Repeat("long", 40), "orla.sock"))
	s.waitSocket()
	if _, err := control.NewClient(s.socket).Status(t.Context()); err != nil {
		t.Error(err)
	}
	s.stop()
	if left := names(t, filepath.Dir(s.socket)); left != "" {
		t.Errorf("%s is left", left)
	}
}

// abandon leaves a socket behind as a process does that is killed: nobody
// listens, and nobody has the lock.
func abandon(t *testing.T, socket string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	lock := strings.TrimSuffix(socket, ".sock") + ".lock"
	if err := os.WriteFile(lock, []byte(`{"pid":1,"url":"http://gone","tools_dir":"/gone and far longer than the next","started":"2026-01-02T15:04:05Z"}`), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestJ2AStaleSocketIsReplaced(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "run", "orla.sock")
	abandon(t, socket)
	if _, err := unixsocket.Find(t.Context(), socket); !errors.Is(err, unixsocket.ErrNotRunning) {
		t.Errorf("a stale socket: %v", err)
	}
	if found, err := unixsocket.All(t.Context(), []string{filepath.Dir(socket)}); err != nil || len(found) > 0 {
		t.Errorf("a folder with a stale socket: %v, %v", found, err)
	}
	s := start(t, newBackend())
	s.point(socket)
	s.waitSocket()
	found, err := unixsocket.Find(t.Context(), socket)
	if err != nil || found.Pid != os.Getpid() || found.URL != "http://here" {
		t.Errorf("found %+v, %v", found, err)
	}
}

// A second Orla says who has the socket, and takes it once it is free.
func TestJ2TheSecondOneTakesOver(t *testing.T) {
	first := serve(t, newBackend())
	second := start(t, newBackend())
	second.point(first.socket)
	eventually(t, "the second one says who has it", func() bool {
		log := second.log.String()
		return strings.Contains(log, "another Orla serves this folder") && strings.Contains(log, "url=http://here") && strings.Contains(log, "pid=")
	})
	second.point(first.socket)
	if second.Socket() != "" {
		t.Error("both have the socket")
	}
	first.stop()
	second.waitSocket()
	if _, err := control.NewClient(second.socket).Status(t.Context()); err != nil {
		t.Error(err)
	}
}

// However many start at once, one has the socket at any time, and each has it
// once the ones before are gone.
func TestJ2StartingAtOnceHasOneWinner(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "run", "orla.sock")
	abandon(t, socket)
	var holders, had atomic.Int32
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			ctx, leave := context.WithCancel(context.Background())
			defer leave()
			s := start(t, newBackend())
			defer s.stop()
			for s.Socket() == "" {
				s.Point(unixsocket.Location{Socket: socket, Private: true}, unixsocket.Owner{Pid: os.Getpid(), Started: time.Now()})
				pause := time.NewTimer(time.Millisecond)
				select {
				case <-pause.C:
				case <-ctx.Done():
				}
			}
			if n := holders.Add(1); n != 1 {
				t.Errorf("%d have the socket", n)
			}
			if _, err := control.NewClient(socket).Status(ctx); err != nil {
				t.Errorf("the one that has it does not answer: %v", err)
			}
			had.Add(1)
			holders.Add(-1)
		})
	}
	all.Wait()
	if n := had.Load(); n != 16 {
		t.Errorf("%d of 16 had the socket", n)
	}
	if left := names(t, filepath.Dir(socket)); left != "" {
		t.Errorf("%s is left", left)
	}
}

// The socket moves with the folder; who is being answered is answered.
func TestJ2TheSocketMoves(t *testing.T) {
	b := newBackend()
	s := serve(t, b)
	old := s.socket
	heard := make(chan string, 10)
	var reader sync.WaitGroup
	reader.Go(func() {
		for line, err := range control.NewClient(old).Logs(context.Background(), control.Query{Last: 1, Follow: true}) {
			if err == nil {
				heard <- string(line)
			}
		}
	})
	<-heard
	s.point(filepath.Join(t.TempDir(), "elsewhere", "orla.sock"))
	s.waitSocket()
	if _, err := control.NewClient(s.socket).Status(t.Context()); err != nil {
		t.Error(err)
	}
	if left := names(t, filepath.Dir(old)); left != "" {
		t.Errorf("%s is left where the socket was", left)
	}
	b.add(`{"msg":"after the move"}`)
	if got := <-heard; !strings.Contains(got, "after the move") {
		t.Errorf("the open stream: %s", got)
	}
	s.Point(unixsocket.Location{}, unixsocket.Owner{})
	eventually(t, "there is no socket", func() bool { return s.Socket() == "" })
	if left := names(t, filepath.Dir(s.socket)); left != "" {
		t.Errorf("%s is left", left)
	}
	s.stop()
	reader.Wait()
}

// What somebody removed, as a log-out removes /run/user, is made again.
func TestJ2ARemovedSocketComesBack(t *testing.T) {
	s := serve(t, newBackend())
	if err := os.RemoveAll(filepath.Dir(s.socket)); err != nil {
		t.Fatal(err)
	}
	s.point(s.socket)
	eventually(t, "the socket is back", func() bool {
		_, err := control.NewClient(s.socket).Status(t.Context())
		return err == nil
	})
}

// A place that cannot be had is one warning, and what is served stays.
func TestJ2APlaceThatCannotBeHad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	file := write("file", "")
	precious := write("precious.sock", "not a socket")
	lock := write("yarn.lock", "not a lock")
	for _, c := range []struct {
		place unixsocket.Location
		why   string
	}{
		{unixsocket.Location{Socket: filepath.Join(open, "orla.sock")}, "every user may write to"},
		{unixsocket.Location{Socket: filepath.Join(dir, "absent", "orla.sock")}, "no such file or directory"},
		{unixsocket.Location{Socket: filepath.Join(file, "orla.sock"), Private: true}, "not a directory"},
		{unixsocket.Location{Socket: precious}, "is not a socket"},
		{unixsocket.Location{Socket: filepath.Join(dir, "yarn.sock")}, "is not a lock file of Orla's"},
	} {
		s := serve(t, newBackend())
		for range 3 {
			s.Point(c.place, unixsocket.Owner{Pid: os.Getpid()})
		}
		eventually(t, c.why, func() bool { return strings.Contains(s.log.String(), c.why) })
		if n := strings.Count(s.log.String(), "no control socket"); n != 1 {
			t.Errorf("%s: %d warnings:\n%s", c.why, n, s.log)
		}
		if _, err := control.NewClient(s.socket).Status(t.Context()); err != nil {
			t.Errorf("%s: what was served: %v", c.why, err)
		}
		s.stop()
	}
	for path, want := range map[string]string{precious: "not a socket", lock: "not a lock"} {
		if text, err := os.ReadFile(path); err != nil || string(text) != want {
			t.Errorf("%s is now %q, %v", path, text, err)
		}
	}
}

func TestJ2AllFindsEachOnce(t *testing.T) {
	one, two := serve(t, newBackend()), serve(t, newBackend())
	dirs := []string{filepath.Dir(one.socket), filepath.Dir(two.socket), filepath.Dir(one.socket), filepath.Join(t.TempDir(), "absent")}
	found, err := unixsocket.All(t.Context(), dirs)
	if err != nil || len(found) != 2 || found[0].Socket == found[1].Socket || found[0].ToolsDir != "/tools" {
		t.Errorf("found %+v, %v", found, err)
	}
}
