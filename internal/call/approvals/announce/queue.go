package announce

import (
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/orla-project/orla/internal/call/approvals"
	"github.com/orla-project/orla/internal/call/turns"
)

const (
	firstPause = time.Second
	maxPause   = time.Minute
	// maxWait bounds what a receiver can have the events of one caller wait for.
	maxWait = 5 * time.Minute
	// maxPauseForAll bounds the pause of all callers after a failure of one.
	maxPauseForAll = 2 * time.Second
	// useful is how long after it an end of a record is announced.
	useful = time.Hour
	// maxSending bounds the requests at a time. No caller has more of them than it leaves free.
	maxSending = 4
	// fewEvents is a number of events at which looking for those without a record is not worthwhile.
	fewEvents = 4096
)

// news is what there is to tell of a record. Other news are another event.
type news struct {
	phase    approvals.Phase
	expires  time.Time // which changes when somebody extends it
	extended bool      // the receiver knows the phase already
}

// newsOf returns what there is to tell of a record.
func newsOf(r *approvals.Record) news { return news{phase: r.Phase, expires: r.Expires} }

// same reports whether both are about the same state of a record.
func (n news) same(other news) bool { return n.phase == other.phase && n.expires.Equal(other.expires) }

// word names the news in the type of an event.
func (n news) word() string {
	if n.extended {
		return "extended"
	}
	switch n.phase {
	case approvals.Pending:
		return "requested"
	case approvals.Approved, approvals.Denied:
		return "decided"
	case approvals.Expired:
	}
	return "expired"
}

// event is what is to be announced of a record, or what was last.
type event struct {
	id      string    // of the record
	of      *caller   // nil before it has to be sent
	news              // that is to be announced
	since   time.Time // when the record came to it
	created time.Time
	waits   bool      // it has to be sent
	sending bool      // it is being sent, maybe with an earlier phase
	at      time.Time // of the next attempt
	pauses  *backoff.ExponentialBackOff
	err     error // of the last attempt
	turns.Position
}

// Before implements turns.Item.
func (e *event) Before(other *event) bool {
	return e.at.Before(other.at) || e.at.Equal(other.at) && e.created.Before(other.created)
}

// begin has an event announce what a record is now.
func (e *event) begin(r *approvals.Record, now time.Time) {
	next := newsOf(r)
	next.extended = next.phase == e.phase && (!e.waits || e.extended) // else the receiver does not know it yet
	e.news, e.since, e.at, e.waits, e.err = next, sinceOf(r, now).UTC(), now, true, nil
	if next.extended {
		e.since = now.UTC()
	}
	e.pauses = newPauses(maxPause)
}

// sinceOf returns when a record came to its phase.
func sinceOf(r *approvals.Record, now time.Time) time.Time {
	switch r.Phase {
	case approvals.Pending:
		return r.Created
	case approvals.Approved, approvals.Denied:
		return r.Decided
	case approvals.Expired:
	}
	return now
}

func newPauses(most time.Duration) *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(firstPause), backoff.WithMultiplier(2), backoff.WithMaxInterval(most),
		backoff.WithMaxElapsedTime(0), // the record says when it is over
	)
}

// caller is whose calls events are about. It is in at most one of the heaps of a queue.
type caller struct {
	name    string
	events  turns.Heap[*event] // that wait and are not being sent
	sending int
	turn    uint64                      // of its last request; the caller with the least is next
	quiet   time.Time                   // no attempt before it
	pauses  *backoff.ExponentialBackOff // between its failures
	failing bool
	in      *turns.Heap[*caller] // nil if no event of it waits
	from    time.Time            // when it can be next
	due     bool                 // from is over
	turns.Position
}

// Before implements turns.Item.
func (c *caller) Before(other *caller) bool {
	if c.due != other.due || !c.due {
		return c.from.Before(other.from)
	}
	if c.sending != other.sending {
		return c.sending < other.sending
	}
	return c.turn < other.turn
}

// queue has the newest event of each record. Callers take turns, so that what one makes does not delay the others.
type queue struct {
	begun  bool   // it has noted what was there
	asked  uint64 // the changes of records that are noted
	events map[string]*event
	most   int // the number of events at which to look for those without a record

	callers map[string]*caller
	later   turns.Heap[*caller] // whose next event waits for its time
	due     turns.Heap[*caller]
	sending int
	turn    uint64

	pauses  *backoff.ExponentialBackOff // between the failures of all
	quiet   time.Time                   // no attempt before it
	failing int                         // how many callers are
}

func newQueue() *queue {
	return &queue{events: map[string]*event{}, most: fewEvents, callers: map[string]*caller{}, pauses: newPauses(maxPauseForAll)}
}

// note takes what has changed of the records. It returns a channel that is closed at the next change.
func (q *queue) note(store *approvals.Store, now time.Time) (later <-chan struct{}) {
	first := !q.begun
	list, asked, later := store.Since(q.asked)
	q.begun, q.asked = true, asked
	for i := range list {
		r := &list[i]
		e := q.events[r.ID]
		if e == nil {
			e = &event{id: r.ID, created: r.Created}
			q.events[r.ID] = e
			if first && r.Phase != approvals.Pending { // the receiver may know it from an earlier process
				e.news = newsOf(r)
				continue
			}
		} else if e.same(newsOf(r)) {
			continue
		}
		q.takeOut(e)
		if !e.waits {
			e.of = q.callerOf(r.Caller) // it may have been released
		}
		e.begin(r, now)
		q.putIn(e)
	}
	if len(q.events) > q.most {
		q.forget(store)
	}
	return later
}

// forget removes the events of records that are gone.
func (q *queue) forget(store *approvals.Store) {
	for id, e := range q.events {
		if !e.sending && !store.Has(id) {
			q.takeOut(e)
			delete(q.events, id)
			if e.of != nil {
				q.release(e.of)
			}
		}
	}
	q.most = max(fewEvents, 2*len(q.events)) // so that looking costs a constant time for each event
}

func (q *queue) callerOf(name string) *caller {
	c := q.callers[name]
	if c == nil {
		c = &caller{name: name, pauses: newPauses(maxPause)}
		q.callers[name] = c
	}
	return c
}

// release forgets a caller without requests.
func (q *queue) release(c *caller) {
	if c.in != nil || c.sending > 0 {
		return
	}
	if c.failing {
		q.failing--
	}
	delete(q.callers, c.name)
}

// takeOut takes an event out of those that wait. putIn puts one in that is not being sent.
func (q *queue) takeOut(e *event) {
	if e.waits && !e.sending {
		e.of.events.Remove(e)
		q.place(e.of)
	}
}

func (q *queue) putIn(e *event) {
	if e.waits && !e.sending {
		e.of.events.Push(e)
		q.place(e.of)
	}
}

// place puts a caller where it belongs now.
func (q *queue) place(c *caller) {
	if c.in != nil {
		c.in.Remove(c)
		c.in = nil
	}
	if c.events.Len() == 0 {
		return
	}
	c.from, c.due, c.in = c.events.First().at, false, &q.later
	if c.from.Before(c.quiet) {
		c.from = c.quiet
	}
	c.in.Push(c)
}

// next returns the event that is to be sent now; nil for none. sent has to follow.
func (q *queue) next(now time.Time) *event {
	for q.later.Len() > 0 && !now.Before(q.later.First().from) {
		c := q.later.First()
		q.later.Remove(c)
		c.due, c.in = true, &q.due
		c.in.Push(c)
	}
	if q.due.Len() == 0 || now.Before(q.quiet) {
		return nil
	}
	c := q.due.First()
	if c.sending >= maxSending-q.sending {
		return nil
	}
	e := c.events.First()
	c.events.Remove(e)
	e.sending = true
	q.sending++
	q.turn++
	c.sending++
	c.turn = q.turn
	q.place(c)
	return e
}

// wake returns when next is to be asked again, if no request ends before; the zero time for never.
func (q *queue) wake(now time.Time) (at time.Time) {
	switch {
	case q.due.Len() > 0 && now.Before(q.quiet):
		return q.quiet
	case q.later.Len() > 0:
		at = q.later.First().from
		if at.Before(q.quiet) {
			at = q.quiet
		}
	}
	return at
}

// sent notes that an event was sent, or is not to be sent any more.
func (q *queue) sent(e *event) {
	e.sending = false
	e.of.sending--
	q.sending--
}

// drop gives an event up.
func (q *queue) drop(e *event) {
	q.sent(e)
	e.waits = false
	q.place(e.of)
	q.release(e.of)
}

// accepted removes an event that was announced, unless there are other news since. It reports whether the receiver did not accept before.
func (q *queue) accepted(e *event, told news) (recovered bool) {
	q.sent(e)
	c := e.of
	if c.failing {
		c.failing = false
		q.failing--
		recovered = q.failing == 0
	}
	c.pauses.Reset()
	q.pauses.Reset()
	e.waits = e.waits && !e.same(told)
	e.extended = e.extended || e.phase == told.phase
	q.putIn(e)
	q.place(c)
	q.release(c)
	return recovered
}

// refused plans the next attempt. It reports whether the receiver accepted before. What it wants to wait for
// counts for the events of this caller.
func (q *queue) refused(e *event, told news, err error, again time.Duration, now time.Time) (first bool) {
	q.sent(e)
	c, again := e.of, min(again, maxWait)
	c.quiet = now.Add(max(c.pauses.NextBackOff(), again))
	q.quiet = now.Add(min(q.pauses.NextBackOff(), maxPauseForAll))
	if e.same(told) {
		e.err, e.at = err, now.Add(max(e.pauses.NextBackOff(), again))
	}
	if !c.failing {
		c.failing = true
		q.failing++
		first = q.failing == 1
	}
	q.putIn(e)
	q.place(c)
	return first
}
