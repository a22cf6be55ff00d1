package mcpbridge

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/turns"
)

// unlucky is a connection over whose requests Orla panics: it lacks its bridge.
func unlucky(t *testing.T) (c *conn, sent *[]string) {
	t.Helper()
	c = newConn(&Bridge{log: slog.New(slog.DiscardHandler)}, "", 1<<20)
	c.bridge = nil
	t.Cleanup(c.hangUp)
	sent = &[]string{}
	c.send = func(raw json.RawMessage) error {
		*sent = append(*sent, string(raw))
		return nil
	}
	return c, sent
}

// SPEC F2: each request over which Orla panics is answered, alone or in a batch, and the
// connection goes on. It ends where there is nobody to answer.
func TestC15APanicOverARequestIsAnswered(t *testing.T) {
	for name, of := range map[string]struct {
		line, want string
		ends       bool
	}{
		"request":      {`{"jsonrpc":"2.0","id":7,"method":"ping"}`, `"id":7,"error":{"code":-32603`, false},
		"batch":        {`[{"jsonrpc":"2.0","id":8,"method":"ping"},{"jsonrpc":"2.0","id":"b","method":"ping"}]`, `"id":"b","error":{"code":-32603`, false},
		"notification": {`{"jsonrpc":"2.0","method":"notifications/cancelled"}`, "", true},
		"answer":       {`{"jsonrpc":"2.0","id":9,"result":{}}`, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			c, sent := unlucky(t)
			shares := turns.NewShares(100)
			held := &share{of: shares, line: c.line}
			if err := held.grow(t.Context(), 10, 0); err != nil {
				t.Fatal(err)
			}
			go func() {
				c.read <- line{data: []byte(of.line), held: held}
				c.stopReading()
			}()
			if msg, err := c.Read(t.Context()); !errors.Is(err, io.EOF) {
				t.Errorf("Read: %v, %v", msg, err)
			}
			if got := strings.Join(*sent, ""); !strings.Contains(got, of.want) || of.want == "" && got != "" {
				t.Errorf("sent is %q, want %q in it", got, of.want)
			}
			if free := shares.Free(); free != 100 {
				t.Errorf("%d bytes are still held", 100-free)
			}
			if ended := c.ctx.Err() != nil; ended != of.ends {
				t.Errorf("the connection has ended: %v, want %v", ended, of.ends)
			}
		})
	}
}

// SPEC F2: the SDK writes from goroutines of its own. A panic over an answer ends the
// connection, and who waits for it sees its end.
func TestC15APanicOverWhatIsWrittenEndsTheConnection(t *testing.T) {
	c, _ := unlucky(t)
	c.send = func(json.RawMessage) error { panic("for the test") }
	if err := c.Write(t.Context(), &jsonrpc.Request{Method: "notifications/message"}); err == nil {
		t.Error("Write has no error")
	}
	select {
	case <-c.done:
	default:
		t.Error("the connection goes on")
	}
}

// The same of an answer to a POST: the handler, which waits, says what happened.
func TestC15APanicOverAnAnswerToAPostIsAnswered(t *testing.T) {
	got := httptest.NewRecorder()
	e := &explainer{response: newResponse(got, defaultLimits), body: []byte(`{"id":7}`), log: slog.New(slog.DiscardHandler), standIns: newStandIns(), first: func() { panic("for the test") }}
	e.WriteHeader(http.StatusOK)
	if _, err := e.Write([]byte("event: message\ndata: {}\n\n")); err == nil {
		t.Error("Write has no error")
	}
	e.finish()
	if body := got.Body.String(); got.Code != http.StatusInternalServerError || !strings.Contains(body, `"id":7`) || !strings.Contains(body, "-32603") {
		t.Errorf("the client gets %d %s", got.Code, body)
	}
}

// SPEC F2: net/http recovers the handler of a POST to an SSE stream. What the message
// holds is given back.
func TestC15APanicOverAPostToAStreamGivesItsRoomBack(t *testing.T) {
	c, _ := unlucky(t)
	s := newSSE(nil)
	s.conns["a"] = sseConn{c, ""}
	shares := turns.NewShares(100)
	held := &share{of: shares, line: c.line}
	if err := held.grow(t.Context(), 10, 0); err != nil {
		t.Fatal(err)
	}
	panicked := func() (p any) {
		defer func() { p = recover() }()
		s.post(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/sse?sessionid=a", nil),
			line{data: []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{}}}`), held: held}, "")
		return nil
	}()
	if panicked == nil {
		t.Error("nothing has panicked")
	}
	if free := shares.Free(); free != 100 {
		t.Errorf("%d bytes are still held", 100-free)
	}
}
