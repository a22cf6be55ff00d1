package supervisor

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/orla-project/orla/internal/call/recovered"
)

// A Giver is a Provider whose process can go on when another program is executed in this one
// (docs/decisions/0051).
type Giver interface {
	// Give gives the process away, and returns what that program needs to go on with it. It reports false if that is
	// not possible. No call is in flight, and none comes any more.
	Give(ctx context.Context) (state json.RawMessage, ok bool)
}

// Give gives away the processes of all Givers, and returns their states by the names of their manifests. Calls must
// have been refused and drained.
func (s *Supervisor) Give(ctx context.Context) map[string]json.RawMessage {
	s.applying.Lock()
	givers := map[string]Giver{}
	for name, l := range s.living {
		if g, ok := l.provider.(Giver); ok {
			givers[name] = g
		}
	}
	s.applying.Unlock()
	var mu sync.Mutex // guards given
	given := map[string]json.RawMessage{}
	var giving sync.WaitGroup
	for name, g := range givers {
		giving.Go(func() {
			defer recovered.To(s.opts.Log, "give a process to the next program", func(any) {})
			if state, ok := g.Give(ctx); ok {
				mu.Lock()
				defer mu.Unlock()
				given[name] = state
			}
		})
	}
	giving.Wait()
	return given
}
