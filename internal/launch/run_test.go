package launch_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/launch"
)

// ran is what Run gave and what the process printed.
type ran struct {
	launch.Ran
	stdout, stderr strings.Builder
	err            error
}

func run(ctx context.Context, l *launch.Local, script string) *ran {
	r := &ran{}
	spec := shell(script)
	spec.Input = []byte("input")
	spec.Grace = 100 * time.Millisecond
	r.Ran, r.err = launch.Run(ctx, l.Launcher(), spec,
		func(p []byte) { r.stdout.Write(p) }, func(p []byte) { r.stderr.Write(p) })
	return r
}

// standInStay runs a script the way Orla does for a call, and says what it
// prints.
func standInStay(script string, guard []string) {
	l, err := launch.NewLocal(launch.Options{Guard: guard, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	spec := shell(script)
	spec.Input = []byte{}
	_, err = launch.Run(context.Background(), l.Launcher(), spec, func(p []byte) { fmt.Printf("%s", p) }, func([]byte) {})
	fmt.Println("it has ended:", err)
	os.Exit(1)
}

// More at once than there are callers who keep a thread: all get what was
// printed, to the last byte, and the exit code.
func TestC3RunTakesAllThatIsPrinted(t *testing.T) {
	l := newLocal(t)
	const large = 300 << 10 // more than a pipe holds
	var all sync.WaitGroup
	for range 40 {
		all.Go(func() {
			r := run(t.Context(), l, `cat; head -c 307200 /dev/zero; echo trouble >&2; exit 3`)
			if r.err != nil || r.Code != 3 || r.Stopped || r.stdout.Len() != len("input")+large || r.stderr.String() != "trouble\n" {
				t.Errorf("got %+v, %v, %d bytes and %q", r.Ran, r.err, r.stdout.Len(), r.stderr.String())
			}
		})
	}
	all.Wait()
}

// A descendant that holds the streams open keeps nobody.
func TestC4RunEndsWithTheProcessItself(t *testing.T) {
	needCommands(t, "setsid")
	l := newLocal(t)
	r := run(t.Context(), l, `setsid sleep 1000 & echo $!; exec 2>&-`)
	if r.err != nil || r.Code != 0 || r.stdout.Len() == 0 {
		t.Errorf("got %+v, %v, %q", r.Ran, r.err, r.stdout.String())
	}
	pid, err := strconv.Atoi(strings.TrimSpace(r.stdout.String()))
	if err != nil || syscall.Kill(pid, syscall.SIGKILL) != nil {
		t.Errorf("the daemon %q is not there", r.stdout.String())
	}
}

// The end of the context ends the tree, and what was printed before is kept.
func TestC4RunStopsWithItsContext(t *testing.T) {
	l := newLocal(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := &ran{}
	spec := shell(`trap '' TERM; echo began; while :; do sleep 0.05; done`)
	spec.Input, spec.Grace = []byte{}, 100*time.Millisecond
	r.Ran, r.err = launch.Run(ctx, l.Launcher(), spec, func(p []byte) { r.stdout.Write(p); cancel() }, func([]byte) {})
	if r.err != nil || !r.Stopped || r.Signal != syscall.SIGKILL || r.stdout.String() != "began\n" {
		t.Errorf("got %+v, %v, %q", r.Ran, r.err, r.stdout.String())
	}
	if r := run(ctx, l, "echo late"); r.err == nil || r.stdout.Len() > 0 {
		t.Errorf("after its end: %v, %q", r.err, r.stdout.String())
	}
}

// SPEC F2: a panic over what a process prints ends that process, and is the caller's.
// Nothing of it is left that Close would wait for.
func TestAPanicOverWhatIsPrintedEndsTheProcess(t *testing.T) {
	l, err := launch.NewLocal(launch.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	const calls = 40 // more than there are callers who keep a thread
	var all sync.WaitGroup
	for range calls {
		all.Go(func() {
			defer func() {
				if p := fmt.Sprint(recover()); !strings.HasPrefix(p, "cursed") {
					t.Errorf("the caller got %s", p)
				}
			}()
			spec := shell("echo curse; exec sleep 1000")
			spec.Input, spec.Grace = []byte{}, 100*time.Millisecond
			_, err := launch.Run(t.Context(), l.Launcher(), spec, func([]byte) { panic("cursed") }, func([]byte) {})
			t.Errorf("Run returned %v", err)
		})
	}
	all.Wait()
	l.Close() // it waits for all
}
