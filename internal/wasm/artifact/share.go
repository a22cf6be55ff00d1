package artifact

import (
	"context"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
)

// fetch is one that is under way, and those who wait for it.
type fetch struct {
	done      chan struct{} // closed when the fields that follow are set
	module    []byte
	err       error
	abandoned bool // whoever fetched went away: another has to
}

// share fetches what k names. Of many who want the same, one fetches and the rest
// wait; when the one goes away, another fetches.
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
		// It counts for each, since whoever has fetched it may let go of it first.
		if err := turns.AccountOf(ctx).Need(ctx, int64(len(f.module))); err != nil {
			return nil, err
		}
		return f.module, f.err
	}
}

// lead fetches for all who wait for f.
func (s *Store) lead(ctx context.Context, k key, f *fetch) {
	f.err = fault.New(fault.ExecutionFailed, "the module was not fetched to the end") // unless what follows returns
	defer func() {
		f.abandoned = f.err != nil && ctx.Err() != nil
		s.mu.Lock()
		delete(s.fetches, k)
		s.mu.Unlock()
		close(f.done)
	}()
	f.module, f.err = s.fetch(ctx, k)
}
