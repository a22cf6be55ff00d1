package held

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// Stream is the answer to one request, as events. The connection of the request writes them until a client comes back:
// then Pass does. Its methods may be called from any goroutine.
type Stream struct {
	of      *Session
	owner   turns.Owner
	name    string
	request string // its id, as it stands in the ids of events

	mu      sync.Mutex // guards the fields that follow
	taken   func()     // says to the connection that writes the events that it is not to any more; nil if none does
	events  [][]byte   // the newest ones, of which the last one has the number last
	last    int
	size    int64 // what it has taken of the room
	state   state
	readers int           // how many have begun to Pass; the newest one gets the events
	changed chan struct{} // closed when something has changed; nil while nobody waits
}

// state is how far a stream is.
type state int

const (
	running  state = iota
	answered       // nothing follows
	lost           // the same, but the answer is not held
)

// Prime adds an event without a message, which only has an id, and returns it.
func (s *Stream) Prime() wire.Parts {
	event, _ := s.Add(nil, false)
	return event
}

// What stands around the id and the message of an event.
const (
	idKey   = "id: "
	asEvent = "\nevent: message"
	dataKey = "\ndata: "
)

var eventEnd = []byte("\n\n")

// Add adds an event with a message, and returns it. With answer it is the last one. own says that the connection of the request
// is to write it. A message for which there is no room is not copied.
func (s *Stream) Add(message wire.Parts, answer bool) (event wire.Parts, own bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	event = s.eventLocked(message)
	kept := s.takeRoomLocked(int64(event.Size()), answer)
	if kept {
		whole := event.Join()
		s.events = append(s.events, whole)
		event = wire.Parts{whole}
	}
	switch {
	case answer && kept:
		s.state = answered
	case answer:
		s.state = lost
	}
	s.wakeLocked()
	return event, s.readers == 0
}

func (s *Stream) idLocked() string {
	return prefix + "." + s.name + "." + strconv.Itoa(s.last) + "." + s.request
}

// eventLocked returns the last event, with a message or none.
func (s *Stream) eventLocked(message wire.Parts) wire.Parts {
	head := idKey + s.idLocked()
	if message != nil {
		head += asEvent
	}
	return slices.Concat(wire.Parts{[]byte(head + dataKey)}, message, wire.Parts{eventEnd})
}

// takeRoomLocked takes room for an event of n bytes. For an answer, the events before make room.
func (s *Stream) takeRoomLocked(n int64, answer bool) bool {
	most := int64(maxBefore)
	if answer {
		most = maxAnswer
	}
	for len(s.events) > 0 && s.size+n > most {
		s.dropLocked()
	}
	if n > most {
		s.clearLocked() // else a client would get events after a gap
		return false
	}
	for !s.of.room.bytes.Try(s.owner, n) {
		if len(s.events) == 0 {
			return false
		}
		s.dropLocked()
	}
	s.size += n
	return true
}

func (s *Stream) dropLocked() {
	n := int64(len(s.events[0]))
	s.events[0] = nil
	s.events = s.events[1:]
	s.size -= n
	s.of.room.bytes.Give(s.owner, n)
}

func (s *Stream) clearLocked() {
	for len(s.events) > 0 {
		s.dropLocked()
	}
}

func (s *Stream) wakeLocked() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// End says that nothing follows. The stream is held for a while. It is called once.
func (s *Stream) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == running {
		s.clearLocked()
		s.last++ // for the answer
		s.state = lost
	}
	if s.readers == 0 {
		s.taken = nil
	}
	s.wakeLocked()
	time.AfterFunc(Keep, s.forget)
}

// forget lets go of the stream.
func (s *Stream) forget() {
	s.of.mu.Lock()
	delete(s.of.of, s.name)
	s.of.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clearLocked()
	s.of.room.bytes.Give(s.owner, s.size) // each
}

// Pass writes the events after one with a number, as they come, until the answer is written, ctx ends or done is closed. What there
// is then is written all the same. Whoever passes them on already stops: its Outlet is to give up.
func (s *Stream) Pass(ctx context.Context, done <-chan struct{}, after int, to Outlet) error {
	me := s.take(to.GiveUp)
	defer s.leave(me)
	for ended := false; ; {
		events, last, changed := s.after(after, me)
		for _, event := range events {
			if err := to.Write(event); err != nil {
				return err
			}
		}
		after = last
		switch {
		case changed == nil || ended:
			return nil
		case len(events) > 0:
			continue
		}
		select {
		case <-changed:
		case <-done:
			ended = true
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Outlet is the connection of a client that has come back.
type Outlet struct {
	Write  func(event []byte) error
	GiveUp func() // ends what is being written, and must not wait
}

// take makes the caller the one that gets the events.
func (s *Stream) take(giveUp func()) (me int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readers++
	s.wakeLocked()
	if s.taken != nil {
		s.taken()
	}
	s.taken = giveUp
	return s.readers
}

// leave says that a caller of take writes nothing more.
func (s *Stream) leave(me int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readers == me {
		s.taken = nil
	}
}

// after returns the events after one with a number, the number of the last one, and what is closed when there are more; nil if nothing follows.
// The answer that is lost is an error.
func (s *Stream) after(number, me int) (events [][]byte, last int, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readers != me {
		return nil, number, nil
	}
	if n := s.last - number; n > 0 {
		events = append(events, s.events[max(0, len(s.events)-n):]...)
		if s.state == lost {
			if text := Lost(s.idLocked()); text != nil {
				events = append(events, s.eventLocked(wire.Parts{text}).Join())
			}
		}
	}
	if s.state != running {
		return events, s.last, nil
	}
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return events, max(number, s.last), s.changed
}

// Over reports whether nothing follows an event with a number.
func (s *Stream) Over(number int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state != running && number >= s.last
}
