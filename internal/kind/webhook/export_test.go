package webhook

import "time"

// Hurry makes the pauses between polls short.
func (t *Tool) Hurry(first, most, patience time.Duration) {
	t.pace = pace{first: first, most: most, patience: patience, room: usualPace.room}
}

// PlainCallbacks returns Callbacks for which the id of a request is that of its call.
func PlainCallbacks() *Callbacks { return &Callbacks{waits: map[string]*wait{}} }

// Waiting returns how many calls wait for a callback.
func (c *Callbacks) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waits)
}

// SetRoomPatience is how long an answer that is pushed waits for room.
func (t *Tool) SetRoomPatience(d time.Duration) { t.pace.room = d }
