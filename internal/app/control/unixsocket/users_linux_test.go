package unixsocket_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/orla-project/orla/internal/app/control/unixsocket"
	"github.com/orla-project/orla/internal/testing/needs"
)

const nobody = 65534

// as runs f as another user. Only the thread that f runs on is that user's, and it ends with its goroutine.
func as(t *testing.T, uid int, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); errno != 0 {
			t.Errorf("become user %d: %v", uid, errno)
			return
		}
		f()
	}()
	<-done
}

// SPEC J2: a user who is neither Orla's nor root gets no answer, also if the mode of the socket does not keep them out.
func TestJ2AnotherUserMayNotAsk(t *testing.T) {
	needs.Root(t, "it becomes another user")
	outer := t.TempDir()
	s := occupied(t, filepath.Join(outer, "own", "orla.sock"))
	for _, path := range []string{filepath.Dir(outer), outer, filepath.Dir(s.Path), s.Path} {
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		client, server int
		want           string
	}{{nobody, 0, "it belongs to user 65534"}, {0, nobody, ""}, {nobody, nobody, ""}, {0, 0, ""}} {
		as(t, c.client, func() {
			conn, err := unixsocket.Dial(t.Context(), s.Path)
			if err != nil {
				t.Error(err)
				return
			}
			_ = conn.Close()
		})
		conn, err := s.Listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		as(t, c.server, func() {
			uid, err := unixsocket.Enter(conn)
			if c.want == "" && (err != nil || uid != c.client) || c.want != "" && (err == nil || err.Error() != c.want) {
				t.Errorf("user %d asks an Orla of %d: %d, %v; want %q", c.client, c.server, uid, err, c.want)
			}
		})
		_ = conn.Close()
	}
}

// SPEC J2: an Orla that this user may not ask is not said to be absent, unless there is one that may be asked.
func TestJ2NoPermissionIsSaid(t *testing.T) {
	needs.Root(t, "it becomes another user")
	outer := t.TempDir()
	open, closed := filepath.Join(outer, "open"), filepath.Join(outer, "closed")
	theirs := occupied(t, filepath.Join(open, "theirs.sock"))
	occupied(t, filepath.Join(closed, "unseen.sock"))
	for _, path := range []string{filepath.Dir(outer), outer, open} {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	as(t, nobody, func() {
		if _, err := unixsocket.Find(t.Context(), theirs.Path); !errors.Is(err, syscall.EACCES) || !strings.HasPrefix(err.Error(), theirs.Path+": ") {
			t.Errorf("found with %v", err)
		}
		for _, dir := range []string{open, closed} {
			if found, err := unixsocket.All(t.Context(), []string{dir, filepath.Join(outer, "absent")}); !errors.Is(err, fs.ErrPermission) || found != nil {
				t.Errorf("in %s there is %+v, %v", dir, found, err)
			}
		}
	})
	occupied(t, filepath.Join(outer, "mine", "mine.sock"))
	for path, uid := range map[string]int{"mine": nobody, "mine/mine.sock": nobody} {
		if err := os.Chown(filepath.Join(outer, path), uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	as(t, nobody, func() {
		if found, err := unixsocket.All(t.Context(), []string{open, filepath.Join(outer, "mine"), closed}); err != nil || len(found) != 1 || found[0].Socket != filepath.Join(outer, "mine", "mine.sock") {
			t.Errorf("with one that may be asked: %+v, %v", found, err)
		}
	})
}
