package approvals

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/cluster/documents"
)

const (
	// DefaultTTL is how long a record waits, and how long an approval is good.
	DefaultTTL = 10 * time.Minute
	// MaxTTL bounds both.
	MaxTTL = 7 * 24 * time.Hour

	// maxOpen bounds the records that wait or are good, and maxOpenBytes the bytes of their arguments and inputs. No caller has
	// more than half of what is free.
	maxOpen      = 1024
	maxOpenBytes = 64 << 20
	// maxEnded bounds the records that are kept to be shown, and maxEndedBytes their arguments.
	maxEnded      = 1000
	maxEndedBytes = 16 << 20
	// Of records that all replicas have, these bound the bytes: the API server lists all of them.
	maxOpenBytesCommon, maxEndedBytesCommon = 24 << 20, 8 << 20

	maxReason = 1000 // bytes
)

var (
	// ErrUnknown is for an id that no record has.
	ErrUnknown = errors.New("there is no such approval")
	// ErrUsed is for an approval that is not good any more.
	ErrUsed = errors.New("the approval has been used, or is not good any more")
	// ErrApprover is for a decision by somebody who may not decide.
	ErrApprover = errors.New("may not decide about this call")
	// ErrOwn is for a decision by whoever makes the call.
	ErrOwn = errors.New("whoever makes a call does not decide about it")
	// ErrDigest is for a decision about something else than the record.
	ErrDigest = errors.New("the call is not the one that was shown")
)

// DecidedError is for a decision that comes too late.
type DecidedError struct{ Record Record }

// Error says what came first.
func (e *DecidedError) Error() string {
	r := &e.Record
	switch r.Phase {
	case Expired:
		return "it has expired: " + cmp.Or(r.Reason, "nobody decided in time")
	case Pending:
		return "it has expired"
	case Approved, Denied:
	}
	return fmt.Sprintf("it was %s by %s already", strings.ToLower(string(r.Phase)), r.By)
}

// Options configures a Store.
type Options struct {
	// Dir is the folder of the records. Each process that serves has one of its own in it. Required without Common.
	Dir string
	// Common, if not nil, has the records of all replicas. The Store serves it.
	Common *documents.Documents
	// Told, if not nil, is called with each Event, one at a time. It must not call the Store.
	Told func(Event)
	// Unrecorded, if not nil, returns why an Event could not be recorded now; nil if it could. Then nobody can decide, and
	// no call goes on.
	Unrecorded func() error
	Log        *slog.Logger // required
}

// Store holds all records. Its methods may be called from any goroutine.
type Store struct {
	opts Options
	keeper
	ttl atomic.Int64
	bounds

	mu    sync.Mutex // guards the fields that follow
	all   map[string]*entry
	open  map[key]*entry // that a call like theirs is attached to
	ended []*entry       // the oldest first
	size  int            // bytes of the arguments of ended
	changes
	policy string // of the last Withdraw
	closed bool
}

type entry struct {
	Record
	changed chan struct{} // closed when the record changes
	end     *time.Timer
	counted bool // in shares and bytes
	old     bool // the rules have changed since it was asked or used
	over    bool // its time has passed, whatever the clock says
	commit
	place
	kept
}

// commit is how far the write of a record is that its next state waits for.
type commit struct {
	writing   bool
	overtaken bool // it has ended meanwhile, or is old
}

// bytes is what a record counts as.
func (e *entry) bytes() int64 { return int64(len(e.Args) + len(e.Input)) }

// Open reads the records of an earlier process, and makes the folder. A record that cannot be read is
// left out: what is not known to be approved is not.
func Open(opts Options) (*Store, error) {
	s := &Store{
		opts: opts, all: map[string]*entry{}, open: map[key]*entry{}, changes: newChanges(),
		bounds: bounds{turns.NewQueue(1, 0), turns.NewShares(maxOpen), turns.NewShares(maxOpenBytes), maxEndedBytes},
	}
	s.SetTTL(DefaultTTL)
	if opts.Common != nil {
		s.bytes, s.endedBytes = turns.NewShares(maxOpenBytesCommon), maxEndedBytesCommon
		s.mu.Lock() // what follows them waits for it
		defer s.mu.Unlock()
		s.keeper = follow(s, opts.Common)
		return s, nil
	}
	f, err := s.claim()
	if err != nil {
		return nil, err
	}
	s.keeper = f
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readLocked(f)
	return s, nil
}

// expireAt notes that the time of a record is over.
func (e *entry) expireAt(now time.Time) {
	if e.Used.IsZero() && !now.Before(e.Expires) && (e.Phase == Pending || e.Phase == Approved) {
		e.Reason = map[Phase]string{Pending: "nobody decided in time", Approved: "the approval was not used in time"}[e.Phase]
		e.Phase = Expired
	}
}

// SetTTL changes how long new records wait.
func (s *Store) SetTTL(ttl time.Duration) { s.ttl.Store(int64(ttl)) }

// now returns the time by which records expire.
func (s *Store) now() time.Time { return s.keeper.now().Round(0) }

// Over reports whether a record has ended because its time is over.
func (s *Store) Over(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.all[id]
	return e != nil && e.Phase == Expired && (e.over || !s.now().Before(e.Expires))
}

// Close ends the timers, and lets another process have the records.
func (s *Store) Close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.closed = true
	for _, e := range s.open {
		e.end.Stop()
	}
	s.mu.Unlock()
	s.stop()
	defer s.turn("")() // what is being written is on the disk before another process reads it
	s.close()
}

// Ask returns the record of a call: that of the same call, if it waits, is approved or was denied, else a
// new one, which is on the disk. changed is closed when the record is not as it was returned. An error is a
// *fault.Error.
func (s *Store) Ask(q Question) (r Record, changed <-chan struct{}, err error) {
	err = retry(func() error {
		r, changed, err = s.ask(q)
		return err
	})
	return r, changed, err
}

func (s *Store) ask(q Question) (_ Record, changed <-chan struct{}, _ error) {
	k := q.key()
	if e := s.like(k); e != nil {
		return e.Record, e.changed, nil
	}
	defer s.turn(q.Caller)()
	if e := s.like(k); e != nil { // since then
		return e.Record, e.changed, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	ttl := time.Duration(s.ttl.Load())
	e := &entry{
		Record:  Record{ID: newID(), Question: q, Created: now, Expires: now.Add(ttl), TTL: ttl, Phase: Pending},
		changed: make(chan struct{}),
	}
	if s.closed {
		return Record{}, nil, fault.New(fault.NotReady, "Orla is stopping; try again when it is back")
	}
	if !s.countLocked(e) {
		return Record{}, nil, fault.Unsent(fault.New(fault.RateLimited,
			"too many calls wait for an approval: Orla keeps %d, and no caller has more than half of what is free; ask for decisions about those, or wait until they expire", maxOpen))
	}
	if _, err := s.commitLocked(e, e.Record); err != nil { // nobody knows it, and so nobody ends it
		s.uncountLocked(e)
		return Record{}, nil, err
	}
	s.all[e.ID], s.open[k] = e, e
	s.watchLocked(e)
	s.noteChangeLocked(e)
	s.opts.Log.Info("a call needs an approval", "approval", e.ID, "tool", e.Tool, "caller", e.Caller, "rule", e.Rule, "expires", e.Expires)
	return e.Record, e.changed, nil
}

// like returns the record that the same call is attached to, as it is now; nil if there is none.
func (s *Store) like(k key) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.open[k]
	if e == nil {
		return nil
	}
	if now := s.now(); !now.Before(e.Expires) {
		s.expireLocked(e, now) // before its timer
		return nil
	}
	now := *e
	return &now
}

// newID returns an id that nobody guesses and that is easy to type.
func newID() string { return "ap-" + strings.ToLower(rand.Text()[:16]) }

func (s *Store) countLocked(e *entry) bool {
	owner := turns.Owner{Caller: e.Caller}
	if !s.shares.Try(owner, 1) {
		return false
	}
	if !s.bytes.Try(owner, e.bytes()) {
		s.shares.Give(owner, 1)
		return false
	}
	e.counted = true
	return true
}

func (s *Store) uncountLocked(e *entry) {
	if e.counted {
		e.counted = false
		s.shares.Give(turns.Owner{Caller: e.Caller}, 1)
		s.bytes.Give(turns.Owner{Caller: e.Caller}, e.bytes())
	}
}

// watchLocked ends a record when its time is over: as measured, also if the clock is set back meanwhile. Whoever uses or
// decides looks at the clock as well, which may have been set forward.
func (s *Store) watchLocked(e *entry) {
	if e.end != nil {
		e.end.Stop()
	}
	var end *time.Timer
	end = time.AfterFunc(e.Expires.Sub(s.now()), func() {
		defer recovered.To(s.opts.Log, "end an approval", nil)
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.closed && s.open[e.key()] == e && e.end == end { // it was not extended
			s.expireLocked(e, e.Expires)
		}
	})
	e.end = end
}

// expireLocked ends a record whose time is over.
func (s *Store) expireLocked(e *entry, now time.Time) {
	was := e.Phase
	e.over = true
	e.expireAt(now)
	s.endLocked(e)
	s.endedLocked(e, was)
	s.changeLocked(e)
}

// changeLocked tells whoever waits for a record.
func (s *Store) changeLocked(e *entry) {
	close(e.changed)
	e.changed = make(chan struct{})
	s.noteChangeLocked(e)
}

// endLocked keeps a record only to be shown, and removes some of those that are too many.
func (s *Store) endLocked(e *entry) {
	if e.end != nil {
		e.end.Stop()
	}
	if s.open[e.key()] == e {
		delete(s.open, e.key())
	}
	s.uncountLocked(e)
	e.overtaken = e.writing
	s.ended = append(s.ended, e)
	s.size += int(e.bytes())
	for len(s.ended) > maxEnded || s.size > s.endedBytes {
		oldest := s.dispensableLocked()
		s.unendLocked(oldest)
		delete(s.all, oldest.ID)
		s.forgetLocked(oldest)
		oldest.overtaken = oldest.writing
		s.remove(oldest)
	}
}

// unendLocked takes a record out of those that have ended.
func (s *Store) unendLocked(e *entry) {
	if i := slices.Index(s.ended, e); i >= 0 {
		s.ended = slices.Delete(s.ended, i, i+1)
		s.size -= int(e.bytes())
	}
}

// Use makes an approval be used by the call that goes on now. It fails if it is not good, or if the disk does not
// keep that.
func (s *Store) Use(id string) error { return retry(func() error { return s.use(id) }) }

func (s *Store) use(id string) error {
	defer s.turn(s.callerOf(id))()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.all[id]
	now := s.now()
	if e == nil || e.Phase != Approved || e.ended(now) || s.closed {
		return ErrUsed
	}
	if err := s.unrecorded(); err != nil {
		return err
	}
	next := e.Record
	next.Used, next.UsedBy = now, s.self()
	kept, err := s.commitLocked(e, next)
	if errors.Is(err, documents.ErrUnsure) {
		e.unsureUse = true
	}
	if err != nil || !kept {
		return cmp.Or(err, ErrUsed)
	}
	e.unsureUse = false
	s.endLocked(e)
	s.changeLocked(e)
	return nil
}

// use is one of the uses of an approval.
type use struct {
	id   string
	when time.Time
	by   string
}

// useLocked returns the use of an approval that has one.
func (e *entry) useLocked() use { return use{e.ID, e.Used, e.UsedBy} }

// GiveBack makes an approval good again, for a call that has used it and has not reached its tool. If the same call has
// been asked about since, that question is withdrawn. The approval stays used if its time is over, if somebody has decided
// about that question, or if the disk does not keep it. Another use than that of this call stays what it is (SPEC P4): it
// may be one that came after this one was given back, and only the answer to that was lost.
func (s *Store) GiveBack(id string) {
	s.mu.Lock()
	e := s.all[id]
	if e == nil || e.Used.IsZero() || e.UsedBy != s.self() {
		s.mu.Unlock()
		return
	}
	of := e.useLocked()
	s.mu.Unlock()
	if err := retry(func() error { return s.giveBack(of) }); err != nil {
		s.later(func() bool { return s.giveBack(of) == nil })
	}
}

// giveBack takes one use back. It returns nil if there is nothing more to do.
func (s *Store) giveBack(of use) error {
	defer s.turn(s.callerOf(of.id))()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.all[of.id]
	if e == nil || e.Used.IsZero() || !e.Used.Equal(of.when) || e.UsedBy != of.by || !s.now().Before(e.Expires) || s.closed || e.old {
		return nil
	}
	since := s.open[e.key()]
	if since != nil && since.Phase != Pending || !s.countLocked(e) {
		return nil
	}
	next := e.Record
	next.Used, next.UsedBy = time.Time{}, ""
	if kept, err := s.commitLocked(e, next); !kept {
		s.uncountLocked(e)
		return err
	}
	e.unsureUse = false
	since = s.open[e.key()] // it may have ended meanwhile
	s.unendLocked(e)
	if since != nil {
		since.Phase, since.Reason = Expired, "the approval "+e.ID+" of the same call is good again"
		s.noteLocked(since, nil) // at worst it is asked again after a restart
		s.endLocked(since)
		s.tell(Event{What: Withdrawn, Was: Pending, Record: since.Record})
	}
	s.open[e.key()] = e
	s.watchLocked(e)
	s.changeLocked(e)
	if since != nil {
		s.changeLocked(since)
	}
	return nil
}

// Withdraw ends all records that were made under other rules than those of a version.
func (s *Store) Withdraw(policy string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.policy = policy
	for _, e := range s.all {
		if e.Policy != policy && !e.Used.IsZero() {
			e.old, e.overtaken = true, e.writing
		}
	}
	for _, e := range s.open {
		if e.Policy == policy {
			continue
		}
		s.withdrawLocked(e)
	}
}

// withdrawLocked ends a record of other rules.
func (s *Store) withdrawLocked(e *entry) {
	was := e.Phase
	e.old = true
	var ev *Event
	if was != Denied {
		e.Phase, e.Reason = Expired, "the rules have changed"
		ev = &Event{What: Withdrawn, Was: was, Record: e.Record}
	}
	s.endLocked(e)
	s.noteLocked(e, ev) // a record of other rules is good for no call, also if the disk loses this
	s.changeLocked(e)
}
