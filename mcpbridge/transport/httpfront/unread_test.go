package httpfront

import (
	"bytes"
	"io"
	"net"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// stalled is the connection of a client that reads nothing unless the other end of it is read.
type stalled struct {
	*httptest.ResponseRecorder
	net.Conn
}

func (s stalled) Write(p []byte) (int, error) { return s.Conn.Write(p) }

// SPEC S2, N2: an answer that has used up its caller's share of the room is written to its end, however slow its client is. A small
// one, of which nothing is counted, is given up where the share is used up.
func TestN2AnAnswerThatFillsItsShareIsWrittenToItsEnd(t *testing.T) {
	for size, written := range map[int]bool{300 << 10: true, 40 << 10: false} {
		synctest.Test(t, func(t *testing.T) {
			ann := turns.Owner{Caller: "ann"}
			room := turns.NewRoom(1 << 20)
			for ok := true; ok; {
				_, ok = room.Try(ann, 1<<10)
			}
			client, server := net.Pipe()
			out := newResponse(stalled{httptest.NewRecorder(), server}, defaultLimits())
			out.small.room, out.small.owner = room, ann
			out.keepAlive(true)
			result := make(chan error, 1)
			go func() {
				result <- out.answer(wire.Parts{bytes.Repeat([]byte("x"), size)}, true)
				_ = server.Close()
			}()
			time.Sleep(10 * unreadAfter)
			read, _ := io.ReadAll(client)
			if err := <-result; (err == nil && len(read) >= size) != written {
				t.Errorf("of an answer of %d bytes, %d were written: %v", size, len(read), err)
			}
		})
	}
}
