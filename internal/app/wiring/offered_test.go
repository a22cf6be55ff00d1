package wiring

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/mcp/peer"
)

// scripted is a process that becomes what a test says.
type scripted struct {
	mu      sync.Mutex // guards the fields that follow
	life    peer.Life
	offers  *peer.Offers
	changed chan struct{}
	looks   int // at it
}

func (p *scripted) Life() peer.Life {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.looks++
	return p.life
}

func (p *scripted) Offers() *peer.Offers {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.offers
}

// become changes it, and returns how often it was looked at before.
func (p *scripted) become(life peer.Life, silent bool) (looks int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed != nil {
		close(p.changed)
	}
	p.changed = make(chan struct{})
	life.Since, life.Changed = time.Now(), p.changed
	p.life, p.offers = life, &peer.Offers{Known: true, Silent: silent}
	return p.looks
}

// SPEC P3: a replica that asks whether the process of a capsule can be called is answered by the last change of it. Between two
// changes nobody looks at the process.
func TestP3WhetherAProcessCanBeCalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, o := new(scripted), newOffered(nil)
		p.become(peer.Life{State: "CREATED"}, true)
		ctx, end := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() {
			defer close(over)
			_ = o.follow(ctx, p) // it ends with ctx
		}()
		defer func() { end(); <-over }()
		for n, step := range []struct {
			life   peer.Life
			silent bool
			after  time.Duration
			want   int
		}{
			{peer.Life{State: "STARTING"}, true, time.Hour, http.StatusTooEarly},
			{peer.Life{State: "READY"}, true, 0, http.StatusTooEarly},
			{peer.Life{State: "READY"}, false, 0, http.StatusNoContent},
			{peer.Life{State: "CRASHED", Failures: 1}, false, 0, http.StatusNoContent},
			{peer.Life{State: "CRASHED", Failures: 2, Reason: "broken"}, false, 0, http.StatusServiceUnavailable},
			{peer.Life{State: "STARTING", Failures: 2}, false, 0, http.StatusServiceUnavailable},
			{peer.Life{State: "READY"}, true, listTime, http.StatusNoContent}, // it does not say what it offers
			{peer.Life{State: "STOPPED", Held: true}, false, 0, http.StatusServiceUnavailable},
			{peer.Life{State: "STOPPED", Settled: true}, false, time.Hour, http.StatusNoContent}, // it waits for a call
		} {
			before := p.become(step.life, step.silent)
			time.Sleep(step.after)
			synctest.Wait()
			answer := httptest.NewRecorder()
			o.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/", nil))
			if answer.Code != step.want {
				t.Errorf("%d: %+v: the answer is %d; want %d", n, step.life, answer.Code, step.want)
			}
			p.mu.Lock()
			if looks := p.looks - before; looks > 2 {
				t.Errorf("%d: it was looked at %d times", n, looks)
			}
			p.mu.Unlock()
		}
	})
}
