package unixsocket

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// hold takes a lock as a server does. release removes it and gives it back.
func hold(ctx context.Context, path string) (release func(), err error) {
	lock, err := takeLock(ctx, path)
	if err != nil {
		return nil, err
	}
	(&Socket{lock: lock}).Sign(Owner{Pid: os.Getpid()})
	return func() {
		_ = os.Remove(path)
		_ = lock.Close()
	}, nil
}

// A lock that is removed while somebody waits for it is nobody's.
func TestJ2ALockHasOneHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orla.lock")
	var holders atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for had := 0; had < 200; {
				release, err := hold(t.Context(), path)
				if _, taken := errors.AsType[*TakenError](err); taken {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				had++
				if n := holders.Add(1); n != 1 {
					t.Errorf("%d have the lock", n)
				}
				holders.Add(-1)
				release()
			}
		})
	}
	all.Wait()
}

// SPEC J2: who opened a lock file before its owner removed it does not have the lock, also if there is a new file.
func TestJ2TheLockOfARemovedFileIsNobodys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orla.lock")
	for _, again := range []bool{false, true} {
		release, err := hold(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		if err := tryLock(f, path); !errors.Is(err, unix.EWOULDBLOCK) {
			t.Errorf("while another has it: %v", err)
		}
		if release(); again {
			defer func() { _ = os.Remove(path) }()
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := tryLock(f, path); !errors.Is(err, errRemoved) {
			t.Errorf("once it was removed, with a new one: %v: %v", again, err)
		}
	}
}

// The name follows the folder that links lead to, also before it exists.
func TestJ2TheNameComesFromTheFolder(t *testing.T) {
	dir := t.TempDir()
	real := filepath.Join(dir, "real")
	link := filepath.Join(dir, "link")
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	before := Name(real)
	if err := os.Mkdir(real, 0o755); err != nil {
		t.Fatal(err)
	}
	if after := Name(real); after != before {
		t.Errorf("%s before the folder was made, %s after", before, after)
	}
	if a, b := Name(link+"/"), Name(real); a != b {
		t.Errorf("by the link %s, by the folder %s", a, b)
	}
	if Name(real) == Name(dir) {
		t.Error("two folders have one name")
	}
	t.Chdir(dir)
	if a, b := Name("real"), Name(real); a != b {
		t.Errorf("relative %s, absolute %s", a, b)
	}
}

// SPEC J2: a socket is in no folder in which others could put theirs. A folder that the user's own group may write is the user's.
func TestJ2AFolderThatOthersMayWriteHasNoSocket(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a folder to another group")
	}
	for name, c := range map[string]struct {
		mode  os.FileMode
		group int
		want  string
	}{
		"own group":     {0o775, os.Getegid(), ""},
		"another group": {0o775, 4711, "the users of another group (4711) may write"},
		"read by group": {0o755, 4711, ""},
		"everybody":     {0o777, os.Getegid(), "every user may write"},
	} {
		dir := t.TempDir()
		if err := errors.Join(os.Chown(dir, 0, c.group), os.Chmod(dir, c.mode)); err != nil {
			t.Fatal(err)
		}
		err := Location{Socket: filepath.Join(dir, "orla.sock")}.prepare()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
