package approvals

import (
	"errors"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
)

// keeper keeps records where they outlive the process: in a folder of its own, or where all replicas have them.
type keeper interface {
	// put keeps next as the record of an entry. If another replica has changed what was kept for the same call, the error is
	// errOthers, and the Store knows what is kept now. The caller holds mu, which put releases while it writes, and has the
	// turn to write.
	put(e *entry, next *Record) error
	// note keeps an entry that has ended, if possible. It reports whether it tells of that itself, once. mu is held.
	note(e *entry, ev *Event) (told bool)
	// remove forgets an entry. mu is held.
	remove(e *entry)
	// later does something that the keeper could not take, when it can: until it reports true.
	later(do func() (done bool))
	// self is the name of this process among those that have the records; "" if it has them alone.
	self() string
	// now is the time by which records expire.
	now() time.Time
	// stop ends what runs beside the Store. close is called after it, when nothing is written any more.
	stop()
	close()
}

// errOthers is for a record that another replica has changed.
var errOthers = errors.New("another replica was faster")

// tries is how often something is tried that other replicas prevent.
const tries = 8

// retry does something again if another replica was faster.
func retry(do func() error) error {
	for range tries {
		if err := do(); !errors.Is(err, errOthers) {
			return err
		}
	}
	return fault.New(fault.NotReady, "other replicas change the approval at the same time; try again")
}

// commitLocked makes next of a record, once it is kept. Others go on meanwhile, and see what the record was: mu is
// not held. If they have ended it by then, it stays ended, where it is kept too, and kept is false. The caller holds the
// turn to write.
func (s *Store) commitLocked(e *entry, next Record) (kept bool, err error) {
	e.writing = true
	err = s.put(e, &next)
	e.writing = false
	switch {
	case e.overtaken:
		e.overtaken = false
		if s.all[e.ID] == e {
			s.noteLocked(e, nil) // what was written is not so, or is good for no call
		} else {
			s.remove(e)
		}
		return false, err
	case err != nil:
		return false, err
	}
	e.Record = next
	return true, nil
}

// noteLocked writes a record that has ended, which may be lost with the machine, and tells of it. While the record is
// committed, that writes it.
func (s *Store) noteLocked(e *entry, ev *Event) {
	told := false
	if e.writing {
		e.overtaken = true
	} else {
		told = s.note(e, ev)
	}
	if ev != nil && !told {
		s.tell(*ev)
	}
}
