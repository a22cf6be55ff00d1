package control

import (
	"encoding/json"
)

// Routes lists what can be asked, as docs/control-api.yaml writes it.
func Routes() []string {
	var patterns []string
	for _, r := range routes() {
		patterns = append(patterns, r.pattern)
	}
	return patterns
}

// Watcher is a watch without a client.
type Watcher struct{ w *watcher }

// NewWatcher returns a Watcher that has no lines.
func NewWatcher() Watcher { return Watcher{&watcher{wake: make(chan struct{}, 1)}} }

// Log adds a line.
func (w Watcher) Log(line string) { w.w.log(json.RawMessage(line), 0) }

// Taken returns what would be sent.
func (w Watcher) Taken() LogLines { return w.w.taken() }
