package announce

import (
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/orla-project/orla/internal/call/approvals"
)

const (
	firstPause = time.Second
	maxPause   = time.Minute
	// maxWait bounds what a receiver can have us wait for.
	maxWait = 5 * time.Minute
	// useful is how long after it an end of a record is announced.
	useful = time.Hour
)

// event is what is to be announced of a record.
type event struct {
	record approvals.Record
	since  time.Time
	at     time.Time // of the next attempt
	pauses *backoff.ExponentialBackOff
	err    error // of the last attempt
}

func newEvent(r *approvals.Record, now time.Time) *event {
	e := &event{record: *r, since: now, at: now, pauses: newPauses()}
	switch r.Phase {
	case approvals.Pending:
		e.since = r.Created
	case approvals.Approved, approvals.Denied:
		e.since = r.Decided
	case approvals.Expired:
	}
	e.since = e.since.UTC()
	return e
}

// what is the type of the event, which has a name of its own for each.
func (e *event) what() string {
	switch e.record.Phase {
	case approvals.Pending:
		return "requested"
	case approvals.Approved, approvals.Denied:
		return "decided"
	case approvals.Expired:
	}
	return "expired"
}

// id is the same for all attempts, also those of another process.
func (e *event) id() string { return e.record.ID + "-" + e.what() }

func newPauses() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(firstPause), backoff.WithMultiplier(2), backoff.WithMaxInterval(maxPause),
		backoff.WithMaxElapsedTime(0), // the record says when it is over
	)
}

// queue has the newest event of each record that was not accepted yet. So it is as bounded as the records are.
type queue struct {
	seen   map[string]approvals.Phase // what the last note had; nil before the first
	events map[string]*event

	pauses  *backoff.ExponentialBackOff // between the failures of all events
	quiet   time.Time                   // no attempt before it
	failing bool
}

func newQueue() *queue { return &queue{events: map[string]*event{}, pauses: newPauses()} }

// note takes the records as they are. It returns the events that are given up.
func (q *queue) note(list []approvals.Record, now time.Time) (lost []*event) {
	seen := make(map[string]approvals.Phase, len(list))
	for i := range list {
		r := &list[i]
		seen[r.ID] = r.Phase
		was, known := q.seen[r.ID]
		switch {
		case q.seen == nil && r.Phase != approvals.Pending: // the receiver may know it from an earlier process
		case !known || was != r.Phase:
			q.events[r.ID] = newEvent(r, now)
		case q.events[r.ID] != nil:
			q.events[r.ID].record = *r
		}
	}
	q.seen = seen
	for id, e := range q.events {
		_, kept := seen[id]
		if !kept || e.record.Phase != approvals.Pending && now.Sub(e.since) > useful {
			delete(q.events, id)
			lost = append(lost, e)
		}
	}
	return lost
}

// next returns the event that is to be sent next, and when; nil for none.
func (q *queue) next() (next *event, at time.Time) {
	for _, e := range q.events {
		if next == nil || e.at.Before(next.at) || e.at.Equal(next.at) && e.record.Created.Before(next.record.Created) {
			next = e
		}
	}
	if next == nil || next.at.After(q.quiet) {
		if next == nil {
			return nil, at
		}
		return next, next.at
	}
	return next, q.quiet
}

// accepted removes an event. It reports whether the receiver did not accept before.
func (q *queue) accepted(e *event) (recovered bool) {
	delete(q.events, e.record.ID)
	recovered, q.failing = q.failing, false
	q.pauses.Reset()
	return recovered
}

// refused plans the next attempt. It reports whether the receiver accepted before.
func (q *queue) refused(e *event, err error, again time.Duration, now time.Time) (news bool) {
	e.err = err
	e.at = now.Add(max(e.pauses.NextBackOff(), min(again, maxWait)))
	q.quiet = now.Add(max(q.pauses.NextBackOff(), min(again, maxWait)))
	news, q.failing = !q.failing, true
	return news
}
