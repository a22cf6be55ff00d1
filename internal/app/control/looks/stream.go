package looks

import (
	"bytes"
	"encoding/json"
	"net/http"
	"time"
)

// pieceBytes is how much of an event is written at once. What all things are may be much more.
const pieceBytes = 64 << 10

// Stream writes server-sent events. Only one goroutine may use it.
type Stream struct {
	bytes.Buffer // what is to be written
	to           http.ResponseWriter
	stall        time.Duration
	gone         bool
	wrote        time.Time
}

// NewStream begins an answer. A client that takes nothing for so long as stall is given up.
func NewStream(to http.ResponseWriter, stall time.Duration) *Stream {
	to.Header().Set("Content-Type", "text/event-stream")
	to.Header().Set("Cache-Control", "no-store")
	to.Header().Set("X-Accel-Buffering", "no")
	to.WriteHeader(http.StatusOK)
	return &Stream{to: to, stall: stall, wrote: time.Now()}
}

// Wrote is when something was written last.
func (s *Stream) Wrote() time.Time { return s.wrote }

// Flush writes what there is. It reports false once the client is gone, or does not read.
func (s *Stream) Flush() bool {
	if s.Len() == 0 || s.gone {
		return !s.gone
	}
	control := http.NewResponseController(s.to)
	_ = control.SetWriteDeadline(time.Now().Add(s.stall)) // what net/http gives us can
	_, err := s.to.Write(s.Bytes())
	s.gone = err != nil || control.Flush() != nil
	s.Reset()
	s.wrote = time.Now()
	return !s.gone
}

// Change writes an event with news, as a Change of control-api.yaml. Its parts are encoded.
func (s *Stream) Change(news News) {
	if len(news.Rest)+len(news.Things)+len(news.Gone) == 0 {
		return
	}
	s.WriteString("event: change\ndata: ")
	between := byte('{')
	part := func(name string) {
		s.WriteByte(between)
		between = ','
		s.WriteString(name)
	}
	if news.Rest != nil {
		part(`"status":`)
		s.Write(news.Rest)
	}
	if len(news.Things) > 0 {
		part(`"tools":`)
		for i, text := range news.Things {
			s.WriteByte("[,"[min(i, 1)])
			s.Write(text)
			if s.Len() >= pieceBytes && !s.Flush() {
				return
			}
		}
		s.WriteByte(']')
	}
	if len(news.Gone) > 0 {
		part(`"gone":`)
		names, _ := json.Marshal(news.Gone) // texts
		s.Write(names)
	}
	s.WriteString("}\n\n")
}
