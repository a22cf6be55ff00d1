package sealed

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/cluster/documents"
)

const (
	// readTime is how long a session that another replica goes on with waits for what its client has set.
	readTime = 2 * time.Second
	// retry is how long after a failure it is tried again to write.
	retry = time.Second
	// lastTime is how long a replica that stops tries to write what is left.
	lastTime = 2 * time.Second
)

// wishes are what clients have set in sessions: the level of log messages, and the resources that they follow. Unlike what
// they have declared, it changes after the id is given. So it is a document for each session that has set anything.
// It is written soon after the client has its answer, one after the other. Its methods may be called from any goroutine.
type wishes struct {
	docs    *documents.Documents
	log     *slog.Logger
	changed chan struct{} // holds a token if the queue may have grown

	mu    sync.Mutex // guards the fields that follow
	of    map[[sha256.Size]byte]*wish
	queue [][sha256.Size]byte // of sessions whose wish is to be written, the first first
}

// wish is what one client has set.
type wish struct {
	Level   string          `json:"level,omitempty"`
	Follows map[string]bool `json:"follows,omitempty"`

	replica string             // on which the session began
	doc     documents.Document // as it was last seen; its Content is nil if it was not
	queued  bool
	over    bool // the session has ended
}

func newWishes(docs *documents.Documents, log *slog.Logger) *wishes {
	return &wishes{docs: docs, log: log, changed: make(chan struct{}, 1), of: map[[sha256.Size]byte]*wish{}}
}

// nameOf names the document of a session. It does not tell the id.
func nameOf(sum [sha256.Size]byte) string { return hex.EncodeToString(sum[:]) }

// change changes what a client has set, and has it written.
func (w *wishes) change(id, replica string, change func(*wish)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sum := sha256.Sum256([]byte(id))
	one := w.of[sum]
	if one == nil {
		if len(w.of) >= maxEnded {
			return // it is lost when this replica goes
		}
		one = &wish{Follows: map[string]bool{}, replica: replica}
		w.of[sum] = one
	}
	change(one)
	if one.queued {
		return
	}
	one.queued = true
	w.queue = append(w.queue, sum)
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// known reports whether a session has set anything here.
func (w *wishes) known(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.of[sha256.Sum256([]byte(id))] != nil
}

// read returns what a client has set on another replica.
func (w *wishes) read(ctx context.Context, id, replica string) (level string, follows map[string]bool) {
	sum := sha256.Sum256([]byte(id))
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	doc, err := w.docs.Get(ctx, documents.Document{Name: nameOf(sum)})
	one := &wish{replica: replica, doc: doc}
	if err == nil && doc.Content != nil {
		err = json.Unmarshal(doc.Content, one)
	}
	if err != nil {
		w.log.Warn("another replica's session goes on without its log level and subscriptions", "replica", replica, "err", err)
		return "", nil
	}
	if doc.Content == nil {
		return "", nil
	}
	if one.Follows == nil {
		one.Follows = map[string]bool{}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := w.of[sum]; now != nil { // it has changed since
		one = now
	} else if len(w.of) < maxEnded {
		w.of[sum] = one
	}
	return one.Level, maps.Clone(one.Follows)
}

// serve writes what has changed, until ctx ends, and then what is left.
func (w *wishes) serve(ctx context.Context, owner func(replica string) documents.Owner) {
	lasting, failed := context.WithoutCancel(ctx), false // a write has a limit of its own
	for {
		err := w.writeFirst(lasting, owner)
		switch {
		case ctx.Err() != nil:
			last, cancel := context.WithTimeout(lasting, lastTime)
			defer cancel()
			for err == nil && w.left() > 0 {
				err = w.writeFirst(last, owner)
			}
			return
		case err == nil:
			failed = false
		case !failed:
			failed = true
			w.log.Warn("what clients have set in their sessions cannot be written; trying again", "err", err)
		}
		if err != nil {
			pace.Sleep(ctx, retry)
			continue
		}
		if w.left() == 0 {
			select {
			case <-w.changed:
			case <-ctx.Done():
			}
		}
	}
}

// left returns how many are to be written.
func (w *wishes) left() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queue)
}

// writeFirst writes the first that is to be written. One that fails is the last one after that.
func (w *wishes) writeFirst(ctx context.Context, owner func(replica string) documents.Owner) error {
	w.mu.Lock()
	if len(w.queue) == 0 {
		w.mu.Unlock()
		return nil
	}
	sum := w.queue[0]
	w.queue = w.queue[1:]
	one := w.of[sum]
	one.queued = false
	content, problem := json.Marshal(one)
	doc, over := one.doc, one.over
	w.mu.Unlock()
	if problem != nil { // texts
		panic(problem)
	}
	doc.Name, doc.Owner = nameOf(sum), owner(one.replica)
	doc, err := w.write(ctx, doc, content, over)
	if errors.Is(err, documents.ErrTooLarge) {
		w.log.Warn("a session follows too much for another replica to go on with that", "replica", one.replica, "err", err)
		err = nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err != nil && !one.queued:
		one.queued = true
		w.queue = append(w.queue, sum)
	case err != nil:
	case !over:
		one.doc = doc
	case one.queued: // it has changed meanwhile
		one.doc = documents.Document{}
	default:
		delete(w.of, sum)
	}
	return err
}

// write writes a document, or removes it. If another replica has written it too, the last one counts: the session is here.
func (w *wishes) write(ctx context.Context, doc documents.Document, content []byte, over bool) (documents.Document, error) {
	about := "log level and subscriptions of a session"
	if over && doc.Content != nil {
		return doc, w.docs.Remove(ctx, doc)
	}
	next, err := doc, error(nil)
	if !over {
		next, err = w.docs.Put(ctx, doc.With(about, content))
	}
	if !over && !errors.Is(err, documents.ErrConflict) {
		return next, err
	}
	now, err := w.docs.Get(ctx, doc)
	if err != nil {
		return doc, err
	}
	now.Name, now.Owner = doc.Name, doc.Owner
	switch {
	case !over:
		return w.docs.Put(ctx, now.With(about, content))
	case now.Content != nil:
		return now, w.docs.Remove(ctx, now)
	}
	return now, nil
}
