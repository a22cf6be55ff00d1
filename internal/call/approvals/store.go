package approvals

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
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
	"github.com/orla-project/orla/internal/observe/brief"
	"github.com/orla-project/orla/manifest"
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
	// Dir is the folder of the records. Each process that serves has one of its own in it. Required.
	Dir string
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
	folder
	ttl atomic.Int64
	bounds

	mu    sync.Mutex // guards the fields that follow
	all   map[string]*entry
	open  map[key]*entry // that a call like theirs is attached to
	ended []*entry       // the oldest first
	size  int            // bytes of the arguments of ended
	changes
	closed bool
}

type entry struct {
	Record
	changed chan struct{} // closed when the record changes
	late    *time.Timer
	counted bool // in shares and bytes
	old     bool // the rules have changed since it was used
	commit
	place
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
		bounds: bounds{turns.NewQueue(1, 0), turns.NewShares(maxOpen), turns.NewShares(maxOpenBytes)},
	}
	s.SetTTL(DefaultTTL)
	if err := s.claim(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readLocked()
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

// Close ends the timers, and lets another process have the records.
func (s *Store) Close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.closed = true
	for _, e := range s.open {
		e.late.Stop()
	}
	s.mu.Unlock()
	defer s.turn("")() // what is being written is on the disk before another process reads it
	_ = s.lock.Close() // nothing was written to it
}

// Ask returns the record of a call: that of the same call, if it waits, is approved or was denied, else a
// new one, which is on the disk. changed is closed when the record is not as it was returned. An error is a
// *fault.Error.
func (s *Store) Ask(q Question) (_ Record, changed <-chan struct{}, _ error) {
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
	now := time.Now().Round(0)
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
	if now := time.Now(); !now.Before(e.Expires) {
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

// watchLocked ends a record when its time is over.
func (s *Store) watchLocked(e *entry) {
	if e.late != nil {
		e.late.Stop()
	}
	e.late = time.AfterFunc(time.Until(e.Expires), func() {
		defer recovered.To(s.opts.Log, "end an approval", nil)
		s.mu.Lock()
		defer s.mu.Unlock()
		now := time.Now()
		switch {
		case s.closed || s.open[e.key()] != e:
		case now.Before(e.Expires): // it was extended, or the clock was set back
			s.watchLocked(e)
		default:
			s.expireLocked(e, now)
		}
	})
}

// expireLocked ends a record whose time is over.
func (s *Store) expireLocked(e *entry, now time.Time) {
	was := e.Phase
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

// endLocked keeps a record only to be shown, and removes the oldest of those that are too many.
func (s *Store) endLocked(e *entry) {
	if e.late != nil {
		e.late.Stop()
	}
	if s.open[e.key()] == e {
		delete(s.open, e.key())
	}
	s.uncountLocked(e)
	e.overtaken = e.writing
	s.ended = append(s.ended, e)
	s.size += int(e.bytes())
	for len(s.ended) > maxEnded || s.size > maxEndedBytes {
		oldest := s.ended[0]
		s.ended = s.ended[1:]
		s.size -= int(oldest.bytes())
		delete(s.all, oldest.ID)
		s.forgetLocked(oldest)
		oldest.overtaken = oldest.writing
		s.remove(oldest)
	}
}

// Decision is what somebody has decided.
type Decision struct {
	Approve bool
	By      string            // who; authenticated by the caller of Decide
	How     manifest.Approver // with what
	Reason  string            // of a denial, for the caller
	TTL     time.Duration     // how long an approval is good; 0 for as long as the record waits
	Digest  string            // of the record that was shown; "" if it is not known
	Proof   json.RawMessage   // of a passkey
}

// Decide notes a decision on the disk. The first one counts.
func (s *Store) Decide(id string, d Decision) (Record, error) {
	defer s.turn(d.By)()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.all[id]
	now := time.Now().Round(0)
	switch {
	case e == nil:
		return Record{}, ErrUnknown
	case e.Phase != Pending || !now.Before(e.Expires) || s.closed:
		return e.Record, &DecidedError{e.Record}
	case !e.Allows(d.How) && (d.Approve || d.How != manifest.ApproverOperator): // an operator may always deny
		return e.Record, ErrApprover
	case e.own(d.By):
		return e.Record, ErrOwn
	case d.Digest != "" && d.Digest != e.Digest():
		return e.Record, ErrDigest
	}
	if err := s.unrecorded(); err != nil {
		return e.Record, err
	}
	next := e.Record
	next.By, next.How, next.Decided, next.Proof = d.By, d.How, now, d.Proof
	next.Reason = brief.Cut(d.Reason, maxReason)
	next.Phase = Denied
	if d.Approve {
		next.Phase = Approved
	}
	next.Expires = now.Add(min(cmp.Or(max(d.TTL, 0), e.TTL), MaxTTL))
	if err := s.replaceLocked(e, next); err != nil {
		return e.Record, err
	}
	s.watchLocked(e)
	s.changeLocked(e)
	s.opts.Log.Info("an approval was decided", "approval", e.ID, "tool", e.Tool, "caller", e.Caller, "phase", string(e.Phase), "by", e.By, "how", string(e.How))
	s.tell(Event{What: Decided, Record: e.Record})
	return e.Record, nil
}

// replaceLocked is commitLocked for a record that waits or is good. It fails if the record has ended meanwhile.
func (s *Store) replaceLocked(e *entry, next Record) error {
	kept, err := s.commitLocked(e, next)
	if err == nil && !kept {
		err = &DecidedError{e.Record}
	}
	return err
}

// Extend changes how long a record that nobody has decided about waits from now on, or an approval is good: for the TTL
// of d, or that of the record. d says who does it, and with what. How long a later approval is good stays as it is.
func (s *Store) Extend(id string, d Decision) (Record, error) {
	defer s.turn("")()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.all[id]
	now := time.Now().Round(0)
	switch {
	case e == nil:
		return Record{}, ErrUnknown
	case e.ended(now) || e.Phase == Denied || s.closed:
		return e.Record, &DecidedError{e.Record}
	case e.own(d.By):
		return e.Record, ErrOwn
	}
	if err := s.unrecorded(); err != nil {
		return e.Record, err
	}
	next := e.Record
	next.Expires = now.Add(min(cmp.Or(max(d.TTL, 0), next.TTL), MaxTTL))
	if err := s.replaceLocked(e, next); err != nil {
		return e.Record, err
	}
	s.watchLocked(e)
	s.changeLocked(e)
	s.tell(Event{What: Extended, ExtendedBy: d.By, ExtendedWith: d.Proof, Record: e.Record})
	return e.Record, nil
}

// Use makes an approval be used by the call that goes on now. It fails if it is not good, or if the disk does not
// keep that.
func (s *Store) Use(id string) error {
	defer s.turn(s.callerOf(id))()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.all[id]
	now := time.Now().Round(0)
	if e == nil || e.Phase != Approved || e.ended(now) || s.closed {
		return ErrUsed
	}
	if err := s.unrecorded(); err != nil {
		return err
	}
	next := e.Record
	next.Used = now
	if kept, err := s.commitLocked(e, next); err != nil || !kept {
		return cmp.Or(err, ErrUsed)
	}
	s.endLocked(e)
	s.changeLocked(e)
	return nil
}

// GiveBack makes an approval good again, for a call that has not reached its tool. If the same call has been asked
// about since, that question is withdrawn. The approval stays used if its time is over, if somebody has decided about
// that question, or if the disk does not keep it.
func (s *Store) GiveBack(id string) {
	defer s.turn(s.callerOf(id))()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.all[id]
	if e == nil || e.Used.IsZero() || !time.Now().Before(e.Expires) || s.closed || e.old {
		return
	}
	since := s.open[e.key()]
	if since != nil && since.Phase != Pending || !s.countLocked(e) {
		return
	}
	next := e.Record
	next.Used = time.Time{}
	if kept, _ := s.commitLocked(e, next); !kept {
		s.uncountLocked(e)
		return
	}
	since = s.open[e.key()] // it may have ended meanwhile
	s.ended = slices.DeleteFunc(s.ended, func(other *entry) bool { return other == e })
	s.size -= int(e.bytes())
	if since != nil {
		since.Phase, since.Reason = Expired, "the approval "+e.ID+" of the same call is good again"
		_ = s.noteLocked(since) // at worst it is asked again after a restart
		s.endLocked(since)
		s.tell(Event{What: Withdrawn, Was: Pending, Record: since.Record})
	}
	s.open[e.key()] = e
	s.watchLocked(e)
	s.changeLocked(e)
	if since != nil {
		s.changeLocked(since)
	}
}

// Withdraw ends all records that were made under other rules than those of a version.
func (s *Store) Withdraw(policy string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.all {
		if e.Policy != policy && !e.Used.IsZero() {
			e.old, e.overtaken = true, e.writing
		}
	}
	for _, e := range s.open {
		if e.Policy == policy {
			continue
		}
		was := e.Phase
		if was != Denied {
			e.Phase, e.Reason = Expired, "the rules have changed"
		}
		_ = s.noteLocked(e) // a record of other rules is good for no call, also if the disk loses this
		s.endLocked(e)
		if was != Denied {
			s.tell(Event{What: Withdrawn, Was: was, Record: e.Record})
		}
		s.changeLocked(e)
	}
}
