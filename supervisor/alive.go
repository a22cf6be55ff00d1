package supervisor

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/thejerf/suture/v4"
)

// Alive checks that the supervisor is not stuck: it takes the locks that Apply and calls take, and asks
// its suture tree and those in trees. If ctx ends first, it returns an error that says what did not
// answer.
//
// A wait for a lock cannot be cancelled, so that each stuck check keeps a goroutine.
func (s *Supervisor) Alive(ctx context.Context, trees ...*suture.Supervisor) error {
	var at atomic.Value // what is asked
	say := func(what string) { at.Store(what) }
	say("the lock of the tools")
	done := make(chan struct{})
	go func() {
		defer close(done)
		touch(&s.applying)
		say("the lock of the calls")
		touch(s.Lock())
		for _, tree := range append(trees, s.tree) {
			say("the supervisor " + tree.String())
			_ = tree.Services() // answered by the tree's own goroutine; one that has ended is not asked
		}
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s does not answer: %w", at.Load(), context.Cause(ctx))
	}
}

// touch takes the lock once.
func touch(lock sync.Locker) {
	lock.Lock()
	defer lock.Unlock()
}
