package budget

import (
	"sync"
)

// Counter counts what is open. Unlike a sync.WaitGroup, it may be added to while somebody waits.
type Counter struct {
	mu   sync.Mutex // guards the fields that follow
	open int
	zero chan struct{} // closed at the next 0; nil while nobody waits
}

// Add adds n, which may be negative.
func (c *Counter) Add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open += n; c.open == 0 && c.zero != nil {
		close(c.zero)
		c.zero = nil
	}
}

// Open returns how many are open.
func (c *Counter) Open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

// One reports whether exactly one is open.
func (c *Counter) One() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open == 1
}

// None returns a channel that is closed when nothing is open.
func (c *Counter) None() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	zero := c.zero
	if zero == nil {
		zero = make(chan struct{})
		if c.open == 0 {
			close(zero)
			return zero
		}
		c.zero = zero
	}
	return zero
}
