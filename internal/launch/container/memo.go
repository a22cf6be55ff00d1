package container

import (
	"context"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/launch"
)

// memo caches answers for some time. Callers that need the same one share one request.
type memo[T any] struct {
	good, bad time.Duration // how long an answer is kept, and how long an error
	mu        sync.Mutex    // guards byKey
	byKey     map[string]*answer[T]
}

type answer[T any] struct {
	known chan struct{} // closed when the fields that follow may be read
	value T
	err   error
	until time.Time
}

// fresh reports whether an answer may be used, or is on its way.
func (a *answer[T]) fresh() bool {
	return !launch.IsClosed(a.known) || time.Now().Before(a.until)
}

// get returns the cached answer for key, or that of ask. ask runs in the background for at most
// patience: it goes on when the callers stop waiting.
func (m *memo[T]) get(ctx context.Context, e *Engine, key string, patience time.Duration, ask func(context.Context) (T, error)) (T, error) {
	m.mu.Lock()
	a := m.byKey[key]
	if a == nil || !a.fresh() {
		if m.byKey == nil {
			m.byKey = map[string]*answer[T]{}
		}
		a = &answer[T]{known: make(chan struct{})}
		m.byKey[key] = a
		apart := context.WithoutCancel(ctx)
		e.work.Go(func() {
			defer close(a.known)
			defer recovered.To(e.opts.Log, "ask a container engine", func(any) {
				a.err, a.until = errPanicked, time.Now().Add(m.bad)
			})
			ctx, cancel := e.bounded(apart, patience)
			defer cancel()
			a.value, a.err = ask(ctx)
			a.until = time.Now().Add(m.good)
			if a.err != nil {
				a.until = time.Now().Add(m.bad)
			}
		})
	}
	m.mu.Unlock()
	select {
	case <-a.known:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, fault.From(context.Cause(ctx))
	}
}

// forget removes an answer that is there, so that the next caller asks again.
func (m *memo[T]) forget(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a := m.byKey[key]; a != nil && launch.IsClosed(a.known) {
		delete(m.byKey, key)
	}
}
