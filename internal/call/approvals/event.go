package approvals

import (
	"encoding/json"

	"github.com/orla-project/orla/internal/call/fault"
)

// Event is something that became of a record, after its question.
type Event struct {
	What         Outcome
	Was          Phase           // before the end of a record: Pending or Approved
	ExtendedBy   string          // who has extended it
	ExtendedWith json.RawMessage // the assertion of a passkey; nil for none
	Record
}

// Outcome is what became of a record.
type Outcome string

// The outcomes.
const (
	Decided   Outcome = "decided"
	Extended  Outcome = "extended"
	TimedOut  Outcome = "timed_out" // nobody decided in time, or the approval was not used in time
	Withdrawn Outcome = "withdrawn" // no call goes on with it any more, since the rules have changed for example
)

func (s *Store) tell(e Event) {
	if s.opts.Told != nil {
		s.opts.Told(e)
	}
}

// unrecorded returns why nothing can be decided now, and no call can go on; nil if it can.
func (s *Store) unrecorded() error {
	if s.opts.Unrecorded == nil {
		return nil
	}
	if why := s.opts.Unrecorded(); why != nil {
		return fault.Wrap(fault.NotReady, why, "the audit log cannot be written, and no decision counts without a line in it")
	}
	return nil
}

// endedLocked tells of a record whose time is over, once: the file says that too, so that the next start does not tell
// of it again.
func (s *Store) endedLocked(e *entry, was Phase) {
	if e.Phase != Expired || was == Expired {
		return
	}
	s.noteLocked(e, &Event{What: TimedOut, Was: was, Record: e.Record}) // at worst it is told again
}
