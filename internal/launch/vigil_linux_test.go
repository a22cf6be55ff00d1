package launch_test

import (
	"context"
	"flag"
	"runtime"
	"sync"
	"testing"

	"github.com/orla-project/orla/internal/launch"
)

// Calls one after the other have a processor of the runtime's kept for them, one
// more than there were (L1). A lone call has not, and it is given back when they
// end, and when they come beside each other.
func TestL1TheVigil(t *testing.T) {
	own := runtime.GOMAXPROCS(0)
	if own == 1 {
		t.Skip("there is but one processor")
	}
	if cpu := flag.Lookup("test.cpu"); cpu != nil && cpu.Value.String() != "" {
		t.Skip("-cpu sets another number than the runtime would")
	}
	l := newLocal(t)
	call := func() {
		if r := run(t.Context(), l, "true"); r.err != nil {
			t.Fatal(r.err)
		}
	}
	kept := func() bool { call(); return runtime.GOMAXPROCS(0) == own+1 }
	over := func() bool { return runtime.GOMAXPROCS(0) == own }
	call()
	if !over() {
		t.Errorf("there are %d processors after one call, not %d", runtime.GOMAXPROCS(0), own)
	}
	eventually(t, "a processor more", kept)
	eventually(t, "none more when calls are over", over)
	eventually(t, "a processor more again", kept)

	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	for range 2 {
		began := make(chan struct{})
		calls.Go(func() {
			spec := shell("echo begun; exec sleep 60")
			spec.Input = []byte{}
			first := sync.OnceFunc(func() { close(began) })
			if _, err := launch.Run(ctx, l.Launcher(), spec, func([]byte) { first() }, func([]byte) {}); err != nil {
				t.Error(err)
				first()
			}
		})
		<-began
	}
	eventually(t, "none more beside each other", over)
	cancel()
	calls.Wait()
}
