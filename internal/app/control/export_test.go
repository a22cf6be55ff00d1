package control

import (
	"context"
	"encoding/json"
	"os"
)

// TakeLock takes a lock as a server does. release removes it and lets go.
func TakeLock(ctx context.Context, path string) (release func(), err error) {
	lock, err := takeLock(ctx, path)
	if err != nil {
		return nil, err
	}
	(&ownSocket{lock: lock}).sign(Owner{Pid: os.Getpid()})
	return func() {
		_ = os.Remove(path)
		_ = lock.Close()
	}, nil
}

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
