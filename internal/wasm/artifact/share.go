package artifact

import (
	"context"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
)

// fetch is a fetch in progress, shared by all callers that wait for it.
type fetch struct {
	done      chan struct{} // closed when the fields that follow are set
	module    []byte
	err       error
	abandoned bool // its caller's context ended: another caller has to fetch
}

// share fetches the module for k. Concurrent callers share one fetch; if the caller that makes it
// goes away, another one makes a new fetch.
func (s *Store) share(ctx context.Context, k key) ([]byte, error) {
	for {
		s.mu.Lock()
		f := s.fetches[k]
		if f == nil {
			f = &fetch{done: make(chan struct{})}
			s.fetches[k] = f
			s.mu.Unlock()
			s.lead(ctx, k, f)
			return f.module, f.err
		}
		s.mu.Unlock()
		select {
		case <-f.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if f.abandoned {
			continue
		}
		// Each caller reserves the memory, since the one that fetched may release its own first.
		if err := turns.AccountOf(ctx).Need(ctx, int64(len(f.module))); err != nil {
			return nil, err
		}
		return f.module, f.err
	}
}

// lead fetches for all callers that wait for f.
func (s *Store) lead(ctx context.Context, k key, f *fetch) {
	f.err = fault.New(fault.ExecutionFailed, "the module was not fetched completely") // replaced below unless fetch panics
	defer func() {
		f.abandoned = f.err != nil && ctx.Err() != nil
		s.mu.Lock()
		delete(s.fetches, k)
		s.mu.Unlock()
		close(f.done)
	}()
	f.module, f.err = s.fetch(ctx, k)
}
