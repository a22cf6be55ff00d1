package unixsocket_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orla-project/orla/internal/app/control/unixsocket"
)

var here = unixsocket.Owner{Pid: os.Getpid(), ToolsDir: "/tools", URL: "http://here", Started: time.Unix(1, 0).UTC(), Dir: "/"}

// occupied is a socket of this process, which is given up at the end of the test.
func occupied(t *testing.T, socket string) *unixsocket.Socket {
	t.Helper()
	s, err := unixsocket.Occupy(t.Context(), unixsocket.Location{Socket: socket, Private: true}, here)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Release)
	return s
}

// names are those of the files of a folder.
func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := make([]string, 0, len(entries))
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}

// SPEC J2: a socket is for its user alone, one Orla has it, others learn which, and nothing of it is left.
func TestJ2ASocketHasOneOrla(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "for it")
	socket := filepath.Join(dir, "orla.sock")
	s := occupied(t, socket)
	for path, want := range map[string]fs.FileMode{filepath.Dir(dir): fs.ModeDir | 0o700, dir: fs.ModeDir | 0o700, socket: fs.ModeSocket | 0o600, filepath.Join(dir, "orla.lock"): 0o600} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%s has mode %s, want %s", path, info.Mode(), want)
		}
	}
	_, err := unixsocket.Occupy(t.Context(), unixsocket.Location{Socket: socket, Private: true}, unixsocket.Owner{Pid: 1})
	if taken, ok := errors.AsType[*unixsocket.TakenError](err); !ok || taken.Owner != here || !strings.Contains(err.Error(), "which serves http://here") {
		t.Errorf("a second one: %v", err)
	}
	s.Sign(unixsocket.Owner{Pid: 7, URL: "x"})
	text, err := os.ReadFile(filepath.Join(dir, "orla.lock"))
	var owner unixsocket.Owner
	if err != nil || json.Unmarshal(text, &owner) != nil || owner.Pid != 7 {
		t.Errorf("a shorter Owner is written as %q, %v", text, err)
	}
	found, err := unixsocket.Find(t.Context(), socket)
	if err != nil || found.Socket != socket || found.Owner != owner {
		t.Errorf("found %+v, %v", found, err)
	}
	if conn, err := s.Listener.Accept(); err != nil {
		t.Error(err)
	} else {
		_ = conn.Close()
	}
	if !s.Intact() {
		t.Error("it is not intact")
	}
	s.Release()
	if _, err := s.Listener.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("it still accepts: %v", err)
	}
	if left := names(t, dir); left != "" || s.Intact() {
		t.Errorf("%q is left, intact: %v", left, s.Intact())
	}
	if _, err := unixsocket.Find(t.Context(), socket); !errors.Is(err, unixsocket.ErrNotRunning) {
		t.Errorf("afterwards: %v", err)
	}
	occupied(t, socket)
}

// SPEC J2: a path may be longer than the address of a socket.
func TestJ2ALongPath(t *testing.T) {
	socket := filepath.Join(t.TempDir(), strings.Repeat("long", 40), "orla.sock")
	if _, err := unixsocket.Find(t.Context(), socket); !errors.Is(err, unixsocket.ErrNotRunning) {
		t.Errorf("before there is a folder: %v", err)
	}
	s := occupied(t, socket)
	if _, err := unixsocket.Find(t.Context(), socket); err != nil || !s.Intact() {
		t.Errorf("%v, intact: %v", err, s.Intact())
	}
	s.Release()
	if left := names(t, filepath.Dir(socket)); left != "" {
		t.Errorf("%q is left", left)
	}
}

// SPEC J2: what somebody removed can be taken by another Orla, whose files the first one does not remove.
func TestJ2FilesOfAnotherOrlaStay(t *testing.T) {
	for _, removed := range []string{"orla.sock orla.lock", "orla.lock", "orla.sock"} {
		dir := filepath.Join(t.TempDir(), "own")
		socket := filepath.Join(dir, "orla.sock")
		first := occupied(t, socket)
		for name := range strings.FieldsSeq(removed) {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		if first.Intact() {
			t.Errorf("without %s it is intact", removed)
		}
		if removed == "orla.sock" { // the lock is still that of the first
			if err := os.WriteFile(socket, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if first.Intact() {
				t.Error("with a file in place of the socket it is intact")
			}
			first.Release()
			if left := names(t, dir); left != "orla.sock" {
				t.Errorf("%q is left", left)
			}
			continue
		}
		second := occupied(t, socket)
		first.Release()
		if _, err := unixsocket.Find(t.Context(), socket); err != nil || !second.Intact() || first.Intact() {
			t.Errorf("after %s was removed: %v, intact: %v", removed, err, second.Intact())
		}
	}
}

// SPEC J2: what is not Orla's stays as it is, and nothing of a socket that could not be had is left.
func TestJ2FilesOfOthersStay(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("precious.sock", "text")
	write("yarn.lock", "{\"name\":1}")
	write("short.lock", "{")
	write("target", "")
	if err := os.Symlink("target", filepath.Join(dir, "link.lock")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo.lock"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := names(t, dir)
	for socket, want := range map[string]string{
		"precious.sock": "precious.sock is there, and is not a socket", "yarn.sock": "yarn.lock exists, but is not a lock file of Orla's", "short.sock": "is not a lock file of Orla's",
		"fifo.sock": "is not a lock file of Orla's", "link.sock": "too many levels of symbolic links",
	} {
		_, err := unixsocket.Occupy(t.Context(), unixsocket.Location{Socket: filepath.Join(dir, socket)}, here)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", socket, err, want)
		}
		if found, err := unixsocket.Find(t.Context(), filepath.Join(dir, socket)); !errors.Is(err, unixsocket.ErrNotRunning) {
			t.Errorf("at %s there is %+v, %v", socket, found, err)
		}
	}
	if after := names(t, dir); after != before {
		t.Errorf("there are %s; want %s", after, before)
	}
	for name, want := range map[string]string{"precious.sock": "text", "yarn.lock": "{\"name\":1}", "short.lock": "{", "target": ""} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(text) != want {
			t.Errorf("%s is now %q, %v", name, text, err)
		}
	}
	write("empty.lock", "")
	s, err := unixsocket.Occupy(t.Context(), unixsocket.Location{Socket: filepath.Join(dir, "empty.sock")}, here)
	if err != nil {
		t.Fatal(err)
	}
	s.Release()
}

// SPEC J2: no socket is in a folder in which another user could put one; one that is Orla's own is closed to them.
func TestJ2TheFolderOfASocket(t *testing.T) {
	for name, c := range map[string]struct {
		private bool
		mode    fs.FileMode
		uid     int // who it belongs to; -1 for this user
		want    string
		then    fs.FileMode
	}{
		"a shared one":                       {false, 0o755, -1, "", 0o755},
		"one for a group":                    {false, 0o775, -1, "", 0o775},
		"one for everybody":                  {false, 0o777, -1, "every user may write to", 0o777},
		"one for everybody, with care":       {false, fs.ModeSticky | 0o777, -1, "every user may write to", fs.ModeSticky | 0o777},
		"its own":                            {true, 0o700, -1, "", 0o700},
		"its own, open to read":              {true, 0o755, -1, "", 0o700},
		"its own, open to write":             {true, 0o777, -1, "", 0o700},
		"of another user":                    {false, 0o755, 12345, "belongs to another user (12345)", 0o755},
		"of another user, as if it were own": {true, 0o700, 12345, "belongs to another user (12345)", 0o700},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "dir")
			if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, c.mode)); err != nil {
				t.Fatal(err)
			}
			if c.uid >= 0 {
				if os.Geteuid() != 0 {
					t.Skip("only root gives files away")
				}
				if err := os.Chown(dir, c.uid, c.uid); err != nil {
					t.Fatal(err)
				}
			}
			s, err := unixsocket.Occupy(t.Context(), unixsocket.Location{Socket: filepath.Join(dir, "orla.sock"), Private: c.private}, here)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if s != nil {
				s.Release()
			}
			info, err := os.Stat(dir)
			if err != nil || info.Mode() != fs.ModeDir|c.then || names(t, dir) != "" {
				t.Errorf("then it is %v with %q, %v; want %v", info.Mode(), names(t, dir), err, c.then)
			}
		})
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for socket, want := range map[string]string{filepath.Join(file, "orla.sock"): "is not a folder", filepath.Join(file+"s", "orla.sock"): "no such file"} {
		if _, err := unixsocket.Occupy(t.Context(), unixsocket.Location{Socket: socket}, here); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", socket, err, want)
		}
	}
}

// SPEC J2: a process that has a lock and does not say who it is gets a moment, and then it is a process that is not known.
func TestJ2ALockThatNobodySigned(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "orla.sock")
	lock, err := os.Create(strings.TrimSuffix(socket, ".sock") + ".lock")
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	occupy := func(ctx context.Context) error {
		_, err := unixsocket.Occupy(ctx, unixsocket.Location{Socket: socket}, here)
		return err
	}
	synctest.Test(t, func(t *testing.T) {
		if taken, ok := errors.AsType[*unixsocket.TakenError](occupy(t.Context())); !ok || taken.Owner != (unixsocket.Owner{}) {
			t.Errorf("got %+v", taken)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := occupy(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("until its context ended: %v", err)
		}
		time.AfterFunc(50*time.Millisecond, func() { _, _ = lock.WriteString(`{"pid":7}`) })
		began := time.Now()
		if taken, ok := errors.AsType[*unixsocket.TakenError](occupy(t.Context())); !ok || taken.Owner.Pid != 7 || time.Since(began) > 60*time.Millisecond {
			t.Errorf("signed late: %+v after %s", taken, time.Since(began))
		}
	})
}

// SPEC J2: commands find every Orla whose socket is in the folders, once, and none that has ended.
func TestJ2AllThatRunAreFound(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sockets")
	one, two := occupied(t, filepath.Join(dir, "one.sock")), occupied(t, filepath.Join(dir, "two.sock"))
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	stale := occupied(t, filepath.Join(dir, "stale.sock"))
	_ = stale.Stop()
	for _, name := range []string{"text", "text.sock"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	other, err := net.Listen("unix", filepath.Join(dir, "other"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	found, err := unixsocket.All(t.Context(), []string{link, dir, filepath.Join(dir, "absent"), "", dir + "/"})
	if err != nil || len(found) != 2 || found[0].Socket != one.Path || found[1].Socket != two.Path || found[0].Owner != here {
		t.Errorf("found %+v, %v", found, err)
	}
	if found, err := unixsocket.All(t.Context(), []string{filepath.Join(dir, "absent")}); err != nil || found != nil {
		t.Errorf("in no folder: %+v, %v", found, err)
	}
}

// SPEC H4: the program that follows has the socket and its lock from the one before it, which no longer accepts anybody.
func TestH4ASocketGoesToTheNextProgram(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "own", "orla.sock")
	before := occupied(t, socket)
	state, err := before.Give()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := before.Listener.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the one before accepts: %v", err)
	}
	if _, err := unixsocket.Occupy(t.Context(), unixsocket.Location{Socket: socket, Private: true}, here); err == nil {
		t.Error("while it goes over, others can take it")
	}
	after, err := state.Take()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unixsocket.Find(t.Context(), socket); err != nil || !after.Intact() || after.Path != socket {
		t.Errorf("the next one: %v, %+v", err, after)
	}
	if conn, err := after.Listener.Accept(); err != nil {
		t.Error(err)
	} else {
		_ = conn.Close()
	}
	if _, err := state.Take(); err == nil {
		t.Error("it was taken twice")
	}
	_ = after.Stop()
	if !after.Intact() {
		t.Error("Stop removes it without its lock")
	}
	after.Release()
	if left := names(t, filepath.Dir(socket)); left != "" {
		t.Errorf("%q is left", left)
	}

	if none, err := (*unixsocket.State)(nil).Take(); none != nil || err != nil {
		t.Errorf("of no state: %v, %v", none, err)
	}
	state, err = occupied(t, socket).Give()
	if err != nil {
		t.Fatal(err)
	}
	listener := state.Listener
	state.Listener = -1
	if s, err := state.Take(); err == nil {
		t.Errorf("without its listener: %+v", s)
	}
	_ = syscall.Close(listener)
	occupied(t, socket) // its lock is free
}

// SPEC J2: only Orla's user and root may ask, and only over the socket.
func TestJ2WhoMayAsk(t *testing.T) {
	s := occupied(t, filepath.Join(t.TempDir(), "own", "orla.sock"))
	client, err := unixsocket.Dial(t.Context(), s.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	conn, err := s.Listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if uid, err := unixsocket.Enter(conn); err != nil || uid != os.Geteuid() {
		t.Errorf("this user: %d, %v", uid, err)
	}
	if _, err := unixsocket.Enter(dialed(t)); err == nil || err.Error() != "it came over tcp" {
		t.Errorf("over TCP: %v", err)
	}
	_ = conn.Close()
	if uid, err := unixsocket.Enter(conn); err == nil {
		t.Errorf("a connection that is closed is that of %d", uid)
	}
}

// dialed is a connection over TCP.
func dialed(t *testing.T) net.Conn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
