package watch

import "context"

// New returns a Watcher of root that has read its present state, as Look does.
func New(root string, opts Options) *Watcher {
	w := Unread(root, opts)
	w.Look(context.Background())
	return w
}
