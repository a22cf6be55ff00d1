package mcpbridge

import "context"

// turn lets one at a time tell peers something, so that what they are told last
// is what is true. It holds a token while somebody does.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// take waits for the turn until ctx ends, and reports whether the caller has it.
func (t turn) take(ctx context.Context) bool {
	select {
	case t <- struct{}{}:
		return true
	case <-ctx.Done():
	}
	select {
	case t <- struct{}{}: // it was free as well
		return true
	default:
		return false
	}
}

// try takes the turn if nobody has it.
func (t turn) try() bool {
	select {
	case t <- struct{}{}:
		return true
	default:
		return false
	}
}

func (t turn) give() { <-t }

// tell calls say in turn for as long as there is news. Who does not wait for the
// turn to the end is heard all the same: who has it looks again afterwards.
func (t turn) tell(ctx context.Context, news func() bool, say func() error) error {
	for news() {
		if !t.take(ctx) {
			return nil
		}
		err := say()
		t.give()
		if err != nil {
			return err
		}
	}
	return nil
}
