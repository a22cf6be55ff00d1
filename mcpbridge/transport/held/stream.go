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
	events  [][]byte   // the newest ones, of which the last one has the number last
	last    int
	size    int64 // what it has taken of the room
	state   state
	writer  writer
	offered *offer        // nil for none
	changed chan struct{} // closed when something has changed; nil while nobody waits
}

// writer is who writes the events.
type writer struct {
	readers int    // how many have begun to Pass; the newest one gets the events
	taken   func() // says to the connection that writes the events that it is not to any more; nil if none does
}

// offer is an event that is not held, for a client that has come back and waits for it. It is not copied, so whoever adds it waits
// until nobody writes it any more.
type offer struct {
	event   wire.Parts
	answer  bool
	writers int           // who write it now
	settled bool          // somebody has written it, or nobody is going to
	over    chan struct{} // closed when it is settled and nobody writes it
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
// is to write it. A message for which there is no room is not copied: if its client has come back, Add waits until the client has
// it, or has gone.
func (s *Stream) Add(message wire.Parts, answer bool) (event wire.Parts, own bool) {
	event, own, offered := s.add(message, answer)
	if offered != nil {
		<-offered.over
	}
	return event, own
}

func (s *Stream) add(message wire.Parts, answer bool) (event wire.Parts, own bool, offered *offer) {
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
	case !kept && s.writer.readers > 0 && s.writer.taken != nil:
		s.offered = &offer{event: event, answer: answer, over: make(chan struct{})}
	case answer && kept:
		s.state = answered
	case answer:
		s.state = lost
	}
	s.wakeLocked()
	return event, s.writer.readers == 0, s.offered
}

// settleLocked says that what is offered was written, or that nobody is going to. Who comes later hears that it is not held.
func (s *Stream) settleLocked() {
	if s.offered == nil {
		return
	}
	if s.offered.answer {
		s.state = lost
	}
	s.offered.settled = true
	s.offered.endLocked()
	s.offered = nil
	s.wakeLocked()
}

// endLocked ends the wait of who has added what is offered, once nobody writes it.
func (o *offer) endLocked() {
	if o.settled && o.writers == 0 {
		close(o.over)
	}
}

// wrote says that one who writes what is offered has done so, or could not.
func (s *Stream) wrote(o *offer, whole bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.writers--
	if whole && s.offered == o {
		s.settleLocked()
		return
	}
	o.endLocked()
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
	if s.writer.readers == 0 {
		s.writer.taken = nil
	}
	s.wakeLocked()
	time.AfterFunc(Keep, s.forget)
}

// forget releases the stream.
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
	me := s.take(to.GiveUp, &after)
	defer s.leave(me)
	for ended := false; ; {
		events, offered, changed := s.after(&after, me)
		if err := s.write(events, offered, to); err != nil {
			return err
		}
		switch {
		case changed == nil || ended || offered != nil && offered.answer:
			return nil
		case len(events) > 0 || offered != nil:
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

// write writes events, and one that is offered, if any.
func (s *Stream) write(events [][]byte, offered *offer, to Outlet) (err error) {
	if offered != nil {
		defer func() { s.wrote(offered, err == nil) }()
	}
	for _, event := range events {
		if err := to.Write(wire.Parts{event}); err != nil {
			return err
		}
	}
	if offered != nil {
		return to.Write(offered.event)
	}
	return nil
}

// Outlet is the connection of a client that has come back.
type Outlet struct {
	Write  func(event wire.Parts) error
	GiveUp func() // ends what is being written, and must not wait
}

// take makes the caller the one that gets the events after one with a number, which is not later than the last one that somebody can
// have.
func (s *Stream) take(giveUp func(), after *int) (me int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	had := s.last
	if s.offered != nil {
		had--
	}
	*after = min(*after, had)
	s.writer.readers++
	s.wakeLocked()
	if s.writer.taken != nil {
		s.writer.taken()
	}
	s.writer.taken = giveUp
	return s.writer.readers
}

// leave says that a caller of take writes nothing more.
func (s *Stream) leave(me int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writer.readers == me {
		s.writer.taken = nil
		s.settleLocked()
	}
}

// after returns the events after one with a number, which becomes that of the last one, an event that is offered, for which the caller
// calls wrote, and what is closed when there are more; nil if nothing follows. The answer that is lost is an error.
func (s *Stream) after(number *int, me int) (events [][]byte, offered *offer, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writer.readers != me {
		return nil, nil, nil
	}
	if n := s.last - *number; n > 0 {
		if offered = s.offered; offered != nil {
			offered.writers++
		}
		events = append(events, s.events[max(0, len(s.events)-n):]...)
		if s.state == lost {
			if text := Lost(s.idLocked()); text != nil {
				events = append(events, s.eventLocked(wire.Parts{text}).Join())
			}
		}
	}
	*number = max(*number, s.last)
	if s.state != running {
		return events, offered, nil
	}
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return events, offered, s.changed
}

// Over reports whether nothing follows an event with a number.
func (s *Stream) Over(number int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state != running && number >= s.last
}
