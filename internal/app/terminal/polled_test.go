package terminal

import (
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// blockingPipe is a pipe as a parent gives it: both ends wait.
func blockingPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe(fds[:]); err != nil {
		t.Fatal(err)
	}
	return ends(t, fds)
}

func ends(t *testing.T, fds [2]int) (a, b *os.File) {
	t.Helper()
	a, b = os.NewFile(uintptr(fds[0]), "a"), os.NewFile(uintptr(fds[1]), "b")
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return a, b
}

// TestG1StdinIsPolled: the runtime waits for a client's next request, no thread
// does, and stdin is afterwards what it was.
func TestG1StdinIsPolled(t *testing.T) {
	r, w := blockingPipe(t)
	in, done := Streams{In: r, Out: io.Discard, Err: os.Stderr}.Polled()
	polled, ok := in.(interface{ SetReadDeadline(time.Time) error })
	if !ok || polled.SetReadDeadline(time.Time{}) != nil {
		t.Error("it is not polled")
	}
	if _, err := w.WriteString("hello"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(in, make([]byte, 5)); err != nil {
		t.Error(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := in.Read(make([]byte, 1))
		ended <- err
	}()
	done()
	if err := <-ended; err == nil {
		t.Error("a read goes on after the end")
	}
	if !blocks(r) {
		t.Error("who reads it next does not wait")
	}
}

// TestG1OneSocketForAllStreams: socat and inetd give one socket three times. What
// is written to it waits for its reader, as before (SPEC G1).
func TestG1OneSocketForAllStreams(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	in, _ := ends(t, fds)
	fd, err := duplicate(in)
	if err != nil {
		t.Fatal(err)
	}
	out := os.NewFile(uintptr(fd), "out")
	defer func() { _ = out.Close() }()
	got, done := Streams{In: in, Out: out, Err: os.Stderr}.Polled()
	defer done()
	if got != in || !blocks(out) {
		t.Errorf("it is %v; blocks: %v", got, blocks(out))
	}
}

// TestG1StdinThatIsLeftAlone: a file cannot be polled, and whoever gave a pipe
// that does not block has seen to it.
func TestG1StdinThatIsLeftAlone(t *testing.T) {
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	r, _, err := os.Pipe() // does not block
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	for _, in := range []*os.File{file, r} {
		got, done := Streams{In: in, Out: io.Discard, Err: io.Discard}.Polled()
		done()
		if got != in {
			t.Errorf("it is not what was given: %v", got)
		}
	}
}
