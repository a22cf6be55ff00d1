package wishes

import (
	"context"
	"slices"
	"sync"
)

// maxURI bounds the URI of a resource that was updated, in bytes: nobody can follow one with a longer URI.
const maxURI = 4 << 10

// updates are the resources that were updated, and of which nobody has been told yet: each once.
type updates struct {
	mu      sync.Mutex          // guards the fields that follow
	line    []string            // in the order in which they were updated
	waits   map[string]struct{} // the same
	wake    chan struct{}       // holds a token when the line has become longer
	deliver chan string
}

// Updated delivers the URIs of resources that were updated, while Deliver runs.
func (w *Wishes) Updated() <-chan string { return w.news.deliver }

// Heard notes that a resource was updated. It never waits. Until it is delivered it is noted once. Of so
// many that there is no room for more, Orla drops the ones that nobody follows.
func (w *Wishes) Heard(uri string) {
	u := &w.news
	if len(uri) > maxURI {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, is := u.waits[uri]; is {
		return
	}
	if len(u.line) >= MaxSubscribed {
		if !w.follows(uri) {
			return
		}
		u.line = slices.DeleteFunc(u.line, func(of string) bool {
			if w.follows(of) {
				return false
			}
			delete(u.waits, of)
			return true
		})
	}
	u.line = append(u.line, uri)
	u.waits[uri] = struct{}{}
	select {
	case u.wake <- struct{}{}:
	default: // a token is there already
	}
}

// follows reports whether anybody follows a resource.
func (w *Wishes) follows(uri string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.times[uri] > 0
}

// Deliver gives what was heard to the reader of Updated until ctx ends.
func (w *Wishes) Deliver(ctx context.Context) {
	for {
		uri, ok := w.news.take()
		if !ok {
			select {
			case <-w.news.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		select {
		case w.news.deliver <- uri:
		case <-ctx.Done():
			w.Heard(uri) // for who delivers next
			return
		}
	}
}

// take takes the first out of the line.
func (u *updates) take() (uri string, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.line) == 0 {
		u.line = nil
		return "", false
	}
	uri, u.line = u.line[0], u.line[1:]
	delete(u.waits, uri)
	return uri, true
}
