package approvals

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/cluster/documents"
	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// common keeps records where all replicas have them (docs/decisions/0054): for each call one document, named by the
// call, with the last record of it. A Store is what this process knows of them: each put names the version that it
// replaces, so a Store that has not heard of a change changes nothing.
type common struct {
	s    *Store
	docs *documents.Documents
	me   string

	end  context.CancelFunc
	work sync.WaitGroup
	wake chan struct{} // holds that todo is not empty

	// The mu of s guards the fields that follow.
	ready bool
	first []documents.Document // what came before ready
	slots map[string]*slot     // by the names of documents
	todo  []func() (done bool)
}

// slot is a document, as far as it is known.
type slot struct {
	doc     documents.Document
	current *entry              // whose record it has; nil for none
	stored  Record              // what it has
	busy    bool                // it is being written
	pending *documents.Document // what came meanwhile
}

// kept is what a process with others knows of a record beside it.
type kept struct {
	unsure    []Event // of puts that may have been done
	unsureUse bool    // a Use may have been done, and its call did not go on
	toTell    *Event  // when the end of the record is kept
}

// maxUnsure bounds the events of a record that may have been.
const maxUnsure = 8

// mendPause is the time between two attempts to keep what the API server has not taken.
const mendPause = time.Second

// follow makes a Store follow the records of all replicas, until stop.
func follow(s *Store, docs *documents.Documents) *common {
	ctx, end := context.WithCancel(context.Background())
	c := &common{s: s, docs: docs, me: rand.Text(), end: end, wake: make(chan struct{}, 1), slots: map[string]*slot{}}
	c.work.Go(func() {
		defer recovered.To(s.opts.Log, "follow the approvals of all replicas", nil)
		docs.Serve(ctx, c.heard, c.begin)
	})
	c.work.Go(func() {
		defer recovered.To(s.opts.Log, "keep approvals", nil)
		c.catchUp(ctx)
	})
	return c
}

func nameOf(q *Question) string {
	k := q.key()
	return hex.EncodeToString(k[:])
}

// heard takes a document that has changed.
func (c *common) heard(d documents.Document) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if !c.ready {
		c.first = append(c.first, d)
		return
	}
	c.adoptLocked(d, false)
}

// begin takes all documents that were there at the start, the oldest record first.
func (c *common) begin() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	created := func(d documents.Document) time.Time {
		var r Record
		_ = json.Unmarshal(d.Content, &r) // adoptLocked says what is wrong with it
		return r.Created
	}
	slices.SortStableFunc(c.first, func(a, b documents.Document) int { return created(a).Compare(created(b)) })
	for _, d := range c.first {
		c.adoptLocked(d, false)
	}
	c.ready, c.first = true, nil
	for _, e := range c.s.open {
		if c.s.policy != "" && e.Policy != c.s.policy {
			c.s.withdrawLocked(e)
		}
	}
}

func (c *common) slotLocked(name string) *slot {
	at := c.slots[name]
	if at == nil {
		at = &slot{doc: documents.Document{Name: name}}
		c.slots[name] = at
	}
	return at
}

// put implements keeper.
func (c *common) put(e *entry, next *Record) error {
	raw, err := rawjson.Line(next)
	if err != nil {
		return err
	}
	if !c.ready {
		return notKept(c.docs.Err())
	}
	at := c.slotLocked(nameOf(&next.Question))
	doc := at.doc
	at.busy = true
	c.s.mu.Unlock()
	ctx := context.Background() // it has a bound, and is not given up
	written, err := c.docs.Put(ctx, doc.With("approval "+next.ID+", "+string(next.Phase), raw))
	others := errors.Is(err, documents.ErrConflict)
	if others {
		written, err = c.docs.Get(ctx, doc)
	}
	c.s.mu.Lock()
	at.busy = false
	switch {
	case err != nil:
		err = notKept(err)
	case others:
		c.adoptLocked(written, true)
		err = errOthers
	default:
		if was := at.current; was != nil && was != e {
			c.tellLocked(was) // its end is kept by this
		}
		at.doc, at.current, at.stored = written, e, *next
	}
	if later := at.pending; later != nil {
		at.pending = nil
		c.laterLocked(func() bool { // when what is put is known to be
			c.heard(*later)
			return true
		})
	}
	return err
}

// notKept returns the error of a call whose record cannot be kept.
func notKept(err error) error {
	switch {
	case err == nil:
		err = errors.New("they have not been listed yet")
	case errors.Is(err, documents.ErrTooLarge):
		return fault.Wrap(fault.InvalidInput, err, "somebody has to read the arguments of this call before it may go on, and they are too large to be kept")
	}
	return fault.Wrap(fault.NotReady, err, "the approval cannot be kept at the API server of the cluster, where all replicas have it, and no call goes on without that; try again")
}

// adoptLocked makes what is kept of a call what the Store knows. sure is for what is later than all that is known.
func (c *common) adoptLocked(d documents.Document, sure bool) {
	at, gone := c.slotLocked(d.Name), d.Content == nil
	switch {
	case at.busy:
		at.pending = &d
		return
	case sure:
	case gone && !d.Same(at.doc):
		if at.current == nil {
			delete(c.slots, d.Name)
		}
		return
	case !gone && !d.After(at.doc):
		return
	}
	at.doc = d
	var r Record
	if !gone {
		if err := json.Unmarshal(d.Content, &r); err != nil || !slices.Contains(phases(), r.Phase) || nameOf(&r.Question) != d.Name {
			c.s.opts.Log.Warn("an approval cannot be read, and does not count", "err", err)
			gone = true
		}
	}
	if gone {
		c.goneLocked(at)
		if !sure && d.Content == nil {
			delete(c.slots, d.Name)
		}
		return
	}
	if was := at.current; was != nil && was.ID != r.ID {
		was.toTell = nil // whoever has replaced it tells of its end
		c.leaveLocked(was, "another record of the same call is good")
	}
	e := c.s.all[r.ID]
	if e == nil {
		e = &entry{changed: make(chan struct{})}
		c.s.all[r.ID] = e
	}
	at.current, at.stored = e, r
	c.applyLocked(e, r)
}

// leaveLocked ends a record that is not kept any more.
func (c *common) leaveLocked(e *entry, why string) {
	if c.s.open[e.key()] != e {
		return
	}
	e.Phase, e.Reason = Expired, why
	c.s.endLocked(e)
	c.s.changeLocked(e)
}

// goneLocked forgets the record of a document that was removed.
func (c *common) goneLocked(at *slot) {
	e := at.current
	at.current = nil
	if e == nil || c.s.all[e.ID] != e {
		return
	}
	if c.s.open[e.key()] == e {
		c.s.opts.Log.Warn("the record of an approval was removed; the call has to ask again", "approval", e.ID, "tool", e.Tool, "caller", e.Caller)
		c.leaveLocked(e, "its record was removed")
		return
	}
	c.s.unendLocked(e)
	delete(c.s.all, e.ID)
	c.s.forgetLocked(e)
}

// applyLocked makes a record what it is kept as.
func (c *common) applyLocked(e *entry, r Record) {
	s, isNew := c.s, e.at == nil
	wasOpen := !isNew && s.open[e.key()] == e
	now := s.now()
	e.Record = r
	switch {
	case e.old && !r.ended(now): // it was withdrawn here, and another replica was faster
		if e.Phase != Denied {
			e.Phase, e.Reason = Expired, "the rules have changed"
			s.noteLocked(e, &Event{What: Withdrawn, Was: r.Phase, Record: e.Record})
		}
	case r.ended(now):
		e.expireAt(now)
		if wasOpen || isNew {
			s.endLocked(e)
		}
		s.endedLocked(e, r.Phase)
	default:
		if !wasOpen {
			s.unendLocked(e)
			s.open[e.key()] = e
			s.countLocked(e) // what does not fit any more is kept all the same
		}
		s.watchLocked(e)
	}
	c.sureLocked(e)
	s.changeLocked(e)
}

// sureLocked ends what was not known of a record: what was done is told of, and an approval whose call did not go on is
// good again.
func (c *common) sureLocked(e *entry) {
	e.unsure = slices.DeleteFunc(e.unsure, func(ev Event) bool {
		done := e.Decided.Equal(ev.Decided) && e.By == ev.By
		if ev.What == Extended {
			done = e.Expires.Equal(ev.Expires)
		}
		if done {
			c.s.replaced(ev)
		}
		return done
	})
	if of := e.useLocked(); e.unsureUse && !e.Used.IsZero() && e.UsedBy == c.me {
		c.laterLocked(func() bool { return c.s.giveBack(of) == nil })
	}
}

// note implements keeper.
func (c *common) note(e *entry, ev *Event) (told bool) {
	if ev != nil {
		e.toTell = ev
	}
	caller := e.Caller // later it is read without the lock
	c.laterLocked(func() bool { return c.noteNow(e, caller) })
	return true
}

// noteNow keeps the end of a record, unless another replica has.
func (c *common) noteNow(e *entry, caller string) (done bool) {
	defer c.s.turn(caller)()
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	at := c.slots[nameOf(&e.Question)]
	next := e.Record
	if at == nil || at.current != e || c.s.open[e.key()] == e || at.stored.same(&next) {
		e.toTell = nil
		return true
	}
	err := c.put(e, &next)
	if err == nil {
		c.tellLocked(e)
	}
	return err == nil || errors.Is(err, errOthers)
}

// same reports whether nothing has become of a record since it was another one.
func (r *Record) same(other *Record) bool {
	return r.Phase == other.Phase && r.Used.Equal(other.Used) && r.Expires.Equal(other.Expires)
}

// tellLocked tells of the end of a record, which is kept now.
func (c *common) tellLocked(e *entry) {
	if ev := e.toTell; ev != nil {
		e.toTell = nil
		c.s.tell(*ev)
	}
}

// remove implements keeper.
func (c *common) remove(e *entry) {
	caller := e.Caller
	c.laterLocked(func() bool {
		defer c.s.turn(caller)()
		c.s.mu.Lock()
		at := c.slots[nameOf(&e.Question)]
		ours := at != nil && at.current == e && c.s.all[e.ID] == nil
		var doc documents.Document
		if ours {
			doc = at.doc
		}
		c.s.mu.Unlock()
		return !ours || c.docs.Remove(context.Background(), doc) == nil
	})
}

// later implements keeper.
func (c *common) later(do func() (done bool)) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.laterLocked(do)
}

func (c *common) laterLocked(do func() (done bool)) {
	c.todo = append(c.todo, do)
	select {
	case c.wake <- struct{}{}:
	default: // it holds that already
	}
}

// catchUp does what is to be done, each until it is.
func (c *common) catchUp(ctx context.Context) {
	for {
		select {
		case <-c.wake:
		case <-ctx.Done():
			return
		}
		c.s.mu.Lock()
		todo := c.todo
		c.todo = nil
		c.s.mu.Unlock()
		todo = slices.DeleteFunc(todo, func(do func() bool) bool { return ctx.Err() == nil && do() })
		if len(todo) == 0 {
			continue
		}
		if !pace.Sleep(ctx, mendPause) {
			return
		}
		c.s.mu.Lock()
		c.todo = append(todo, c.todo...)
		c.s.mu.Unlock()
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
}

// self implements keeper.
func (c *common) self() string { return c.me }

// now implements keeper.
func (c *common) now() time.Time { return c.docs.Now() }

// stop implements keeper.
func (c *common) stop() {
	c.end()
	c.work.Wait()
}

// close implements keeper.
func (c *common) close() {}
