package httpfront

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/mcpbridge/budget"
)

// deadliner is a ResponseWriter of a connection.
type deadliner struct {
	*httptest.ResponseRecorder
	net.Conn
}

func (d deadliner) Write(p []byte) (int, error) { return d.ResponseRecorder.Write(p) }

// SPEC G7: a body that stops, or that comes too slowly, is given up within ten seconds.
// One that comes at a steady rate may take as long as it needs.
func TestG7ABodyNeedsProgress(t *testing.T) {
	for _, c := range []struct {
		name  string
		size  int // of a piece
		every time.Duration
		n     int  // pieces that come
		whole bool // it is read to its end
		least time.Duration
		most  time.Duration
	}{
		{"stops at once", 1, time.Second, 0, false, 0, 10 * time.Second},
		{"a byte a second", 1, time.Second, 1 << 20, false, 0, 10 * time.Second},
		{"stops after much", 1 << 20, time.Millisecond, 4, false, 0, 10 * time.Second},
		{"32 KiB a second", 32 << 10, time.Second, 200, true, 190 * time.Second, 210 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, server := net.Pipe()
				defer func() { _ = server.Close() }()
				done := make(chan struct{})
				go func() {
					defer close(done)
					piece := make([]byte, c.size)
					for range c.n {
						time.Sleep(c.every)
						if _, err := client.Write(piece); err != nil {
							return
						}
					}
					if c.whole {
						_ = client.Close()
					}
				}()
				began := time.Now()
				control := http.NewResponseController(deadliner{httptest.NewRecorder(), server})
				_, err := io.Copy(io.Discard, &pacedBody{ReadCloser: server, out: &response{control: control}, patience: defaultLimits().Body})
				if late := errors.Is(err, os.ErrDeadlineExceeded); late == c.whole {
					t.Errorf("the body ends with %v", err)
				}
				if took := time.Since(began); took < c.least || took > c.most {
					t.Errorf("it took %v", took)
				}
				_ = client.Close()
				<-done
			})
		})
	}
}

// SPEC N2: while another caller is active, the pieces of large bodies are read in their caller's turn.
func TestN2ABodyIsReadInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		working := turns.NewAging(turns.NoLimit, 1, moment)
		alice, bob := turns.Owner{Caller: "alice"}, turns.Owner{Caller: "bob"}
		for _, one := range []turns.Owner{bob, alice} {
			place, err := working.TakeLonger(t.Context(), one, 10)
			if err != nil {
				t.Fatal(err)
			}
			defer place.Give()
		}
		began := time.Now()
		body := &arriving{inTurn{ReadCloser: io.NopCloser(bytes.NewReader(make([]byte, 1<<20))), ctx: t.Context(), working: working, owner: alice}, 0, budget.NewAccount(turns.NewShares(1<<30), alice)}
		if n, err := body.Read(make([]byte, 1<<20)); n != firstPiece || err != nil || time.Since(began) > 0 {
			t.Errorf("%d bytes are read at once: %v", n, err)
		}
		if n, err := body.Read(make([]byte, 1<<20)); n != bodyPiece || err != nil || time.Since(began) < 5*moment {
			t.Errorf("%d bytes are read after %s: %v", n, time.Since(began), err)
		}
	})
}
