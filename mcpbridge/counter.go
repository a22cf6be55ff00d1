package mcpbridge

import (
	"sync"
)

// counter counts what is open.
type counter struct {
	mu   sync.Mutex // guards the fields that follow
	open int
	zero chan struct{} // closed at the next 0; nil while nobody waits
}

func (c *counter) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open += n; c.open == 0 && c.zero != nil {
		close(c.zero)
		c.zero = nil
	}
}

// none returns a channel that is closed when nothing is open.
func (c *counter) none() <-chan struct{} {
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
