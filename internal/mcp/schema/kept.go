package schema

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"

	"github.com/orla-project/orla/internal/call/turns"
)

// maxKept is how many bytes the compiled schemas that are kept take together, more or less.
const maxKept = 32 << 20

// kept are the compiled schemas of this process that were used lately. A schema is a few
// hundred bytes, and compiled a hundred times as much, up to some megabytes; those that
// capsules list are many, and most are never used.
var kept = &cache{most: maxKept}

// building are held by those who compile a schema for a call, a few at a time, and not all
// of them by one caller beside others (SPEC N2).
var building = turns.NewQueue(2, 1)

// source is what a schema is compiled from, and what of it is kept.
type source struct {
	raw  []byte
	kept atomic.Pointer[keptSchema]

	mu sync.Mutex // held by who compiles it
}

// keptSchema is a compiled schema that is kept.
type keptSchema struct {
	of       *source
	compiled *compiled
	used     atomic.Bool // since the cache looked at it last
	at       *list.Element
}

// get returns the compiled schema, which may have to be compiled again. The error is ctx's
// cause.
func (s *source) get(ctx context.Context) (*compiled, error) {
	if h := s.kept.Load(); h != nil { // as a rule
		if !h.used.Load() {
			h.used.Store(true)
		}
		return h.compiled, nil
	}
	owner := turns.AccountOf(ctx).Owner()
	if err := building.Take(ctx, owner); err != nil {
		return nil, err
	}
	defer building.Give(owner)
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.kept.Load(); h != nil { // somebody has, meanwhile
		return h.compiled, nil
	}
	again, err := compiledOf(s.raw)
	if err != nil {
		panic(err) // it could be compiled before
	}
	kept.put(s, again, true)
	return again, nil
}

// cache keeps compiled schemas, those that were used lately rather than others.
type cache struct {
	most int64

	mu     sync.Mutex // guards the fields that follow
	weight int64
	order  list.List // *keptSchema; those that are looked at next come first
}

// put keeps a compiled schema, in place of others that were not used. One that is not
// used yet is kept only if there is room.
func (c *cache) put(s *source, found *compiled, used bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !used && c.weight+found.weight > c.most {
		return
	}
	h := &keptSchema{of: s, compiled: found}
	h.used.Store(used)
	h.at = c.order.PushBack(h)
	c.weight += found.weight
	s.kept.Store(h)
	for c.weight > c.most {
		first := c.order.Front().Value.(*keptSchema)
		if first.used.Swap(false) && first != h {
			c.order.MoveToBack(first.at)
			continue
		}
		c.order.Remove(first.at)
		c.weight -= first.compiled.weight
		first.of.kept.CompareAndSwap(first, nil)
		if first == h { // larger than all that may be kept
			return
		}
	}
}
