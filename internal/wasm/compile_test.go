package wasm_test

import (
	"context"
	"runtime"
	"sync"
	"testing"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/testing/testkit"
	"github.com/orla-project/orla/internal/wasm"
)

// SPEC S2, N2: what is compiled leaves a processor to all of Orla, also when nobody waits for it any
// more; and who has many modules compiled does not go before one who has one.
func TestS2CompilationsLeaveAProcessor(t *testing.T) {
	open := make(chan struct{})
	r := newRuntime(t, wasm.Options{})
	r.Gate(open)
	var compiling sync.WaitGroup
	defer compiling.Wait()
	defer close(open)
	begin := func(caller string, number int64) (done chan struct{}) {
		done = make(chan struct{})
		module := buffered(i64Const, number).bytes()
		compiling.Go(func() {
			defer close(done)
			owner, read := turns.Owner{Caller: caller, Session: caller}, func(context.Context) ([]byte, error) { return module, nil }
			if _, err := r.Load(t.Context(), owner, owner, read, wasm.Limits{}); err != nil {
				t.Error(err)
			}
		})
		return done
	}
	const many = 5
	for i := range many {
		begin("greedy", int64(i))
	}
	most := min(2, max(1, runtime.GOMAXPROCS(0)-1))
	testkit.Eventually(t, "the others wait", func() bool { n, waiting := r.Compilations(); return n == most && waiting == many-most })
	done := begin("other", many)
	testkit.Eventually(t, "it waits", func() bool { _, waiting := r.Compilations(); return waiting == many-most+1 })
	for range most + 2 { // the turn of the other may come after one more of greedy
		open <- struct{}{}
	}
	testkit.Eventually(t, "it has had its turn", func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	})
}
