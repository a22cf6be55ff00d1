package approvals

import (
	"cmp"
	"encoding/json"
	"errors"
	"time"

	"github.com/orla-project/orla/internal/cluster/documents"
	"github.com/orla-project/orla/internal/observe/brief"
	"github.com/orla-project/orla/manifest"
)

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
func (s *Store) Decide(id string, d Decision) (r Record, err error) {
	err = retry(func() error {
		r, err = s.decide(id, d)
		return err
	})
	return r, err
}

func (s *Store) decide(id string, d Decision) (Record, error) {
	defer s.turn(d.By)()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.all[id]
	now := s.now()
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
	return s.replaceLocked(e, Event{What: Decided, Record: next})
}

// replaceLocked is commitLocked for a record that waits or is good, and tells of it. It fails if the record has ended
// meanwhile.
func (s *Store) replaceLocked(e *entry, ev Event) (Record, error) {
	kept, err := s.commitLocked(e, ev.Record)
	switch {
	case errors.Is(err, documents.ErrUnsure):
		e.unsure = append(e.unsure[max(0, len(e.unsure)-maxUnsure+1):], ev)
		return e.Record, err
	case err != nil:
		return e.Record, err
	case !kept:
		return e.Record, &DecidedError{e.Record}
	}
	s.watchLocked(e)
	s.changeLocked(e)
	s.replaced(ev)
	return e.Record, nil
}

// replaced tells of what was decided or extended.
func (s *Store) replaced(ev Event) {
	if ev.What == Decided {
		s.opts.Log.Info("an approval was decided", "approval", ev.ID, "tool", ev.Tool, "caller", ev.Caller, "phase", string(ev.Phase), "by", ev.By, "how", string(ev.How))
	}
	s.tell(ev)
}

// Extend changes how long a record that nobody has decided about waits from now on, or an approval is good: for the TTL
// of d, or that of the record. d says who does it, and with what: to make it longer needs the means that approving
// needs. How long a later approval is good stays as it is.
func (s *Store) Extend(id string, d Decision) (r Record, err error) {
	err = retry(func() error {
		r, err = s.extend(id, d)
		return err
	})
	return r, err
}

func (s *Store) extend(id string, d Decision) (Record, error) {
	defer s.turn("")()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.all[id]
	now := s.now()
	if e == nil {
		return Record{}, ErrUnknown
	}
	next := e.Record
	next.Expires = now.Add(min(cmp.Or(max(d.TTL, 0), next.TTL), MaxTTL))
	switch {
	case e.ended(now) || e.Phase == Denied || s.closed:
		return e.Record, &DecidedError{e.Record}
	case !e.Allows(d.How) && next.Expires.After(e.Expires): // to shorten it allows nothing
		return e.Record, ErrApprover
	case e.own(d.By):
		return e.Record, ErrOwn
	}
	if err := s.unrecorded(); err != nil {
		return e.Record, err
	}
	return s.replaceLocked(e, Event{What: Extended, ExtendedBy: d.By, ExtendedWith: d.Proof, Record: next})
}
