package httpfront

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/transport/passed"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// slowMetrics take a while, and note how many are made at once.
type slowMetrics struct {
	mu     sync.Mutex // guards the fields that follow
	making int
	most   int
}

func (m *slowMetrics) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	m.mu.Lock()
	m.making++
	m.most = max(m.most, m.making)
	m.mu.Unlock()
	time.Sleep(time.Second) // in a bubble
	m.mu.Lock()
	m.making--
	m.mu.Unlock()
	w.Header().Set("Content-Type", "text/plain")
	_, _ = io.WriteString(w, "orla_tools 1\n")
}

// SPEC N2, S2: metrics are made for one request after another, and for half of the time.
func TestN2MetricsAreMadeInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := &slowMetrics{}
		opts := bridgeOptions()
		opts.Metrics = metrics
		f := &sentFront{Front: New(mcpbridge.New(echo{}, opts), Settings{Verify: aToken, Loopback: true})}
		began := time.Now()
		for _, caller := range []string{"ann", "ann", "bob"} {
			f.send(t, http.StatusOK, "127.0.0.2", http.MethodGet, "/metrics", "", bearer(caller)...)
		}
		f.requests.Wait()
		if metrics.most != 1 {
			t.Errorf("%d are made at once", metrics.most)
		}
		if took := time.Since(began); took < 5*time.Second { // three, with as long a rest between them
			t.Errorf("all of them took %v", took)
		}
	})
}

// otherReplica has all sessions.
type otherReplica struct {
	passed.Elsewhere

	read chan int // how much of a body it has got
}

func (otherReplica) Home(context.Context, string) string { return "other" }

func (o otherReplica) Pass(w http.ResponseWriter, r *http.Request, _ string, _ *passed.Caller, _ http.Handler) {
	n, _ := r.Body.Read(make([]byte, 1<<20))
	o.read <- n
	more, _ := r.Body.Read(make([]byte, 1<<20))
	o.read <- more
	w.WriteHeader(http.StatusAccepted)
}

// SPEC N2, P4: a message that is passed on to another replica waits for its turn, and so does each further piece of its body.
func TestN2APassedMessageWaitsForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &sentFront{Front: New(newBridge(), Settings{Verify: aToken, Loopback: true})}
		f.Working = turns.NewAging(turns.NoLimit, 1, moment)
		o := otherReplica{read: make(chan int, 2)}
		f.Share(o)
		const moments = 10
		for _, caller := range []string{"ann", "bob"} {
			place, err := f.Working.TakeLonger(t.Context(), turns.Owner{Caller: caller}, moments)
			if err != nil {
				t.Fatal(err)
			}
			defer place.Give()
		}
		began := time.Now()
		f.send(t, http.StatusAccepted, "127.0.0.2", http.MethodPost, "/mcp", string(make([]byte, 1<<20)), bearer("ann", append(posted, wire.SessionHeader, "x")...)...)
		if len(o.read) > 0 {
			t.Error("it is passed on beside another message of its caller")
		}
		f.requests.Wait()
		if first, more := <-o.read, <-o.read; first != firstPiece || more != bodyPiece {
			t.Errorf("pieces of %d and %d bytes", first, more)
		}
		if took := time.Since(began); took < (moments+1)*moment {
			t.Errorf("the second piece is passed on after %v", took)
		}
	})
}

// SPEC N2: the answers of a batch count together for the place of their request, though none of them is large.
func TestN2AnswersOfABatchCountTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		working := turns.NewAging(turns.NoLimit, 1, moment)
		for _, caller := range []string{"bob", "ann"} {
			place, err := working.TakeBriefly(t.Context(), turns.Owner{Caller: caller})
			if err != nil {
				t.Fatal(err)
			}
			defer place.Give()
			if caller == "bob" {
				continue
			}
			out := newResponse(httptest.NewRecorder(), defaultLimits())
			out.place = place
			time.Sleep(moment) // in a bubble: it has come of age
			for range 3 {
				if err := out.event(t.Context(), wire.Parts{make([]byte, answerAMoment*3/4)}); err != nil {
					t.Fatal(err)
				}
			}
			if left := out.worksFor(); left <= 0 {
				t.Errorf("the place counts for %v of what is written", left)
			}
		}
	})
}
