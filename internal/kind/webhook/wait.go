package webhook

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/mcp/peer"
)

// before returns the pause before the next poll: the one that the service asks for, else ours, plus
// a random part so that waits that began together do not poll together.
func before(asked, ours time.Duration) time.Duration {
	if asked > 0 {
		return asked
	}
	return ours + rand.N(ours/10+1)
}

// sleep waits for d. The error is why the wait ended early.
func (w *wait) sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-w.arrived:
		return errArrived
	case <-ctx.Done():
		return fault.From(context.Cause(ctx))
	}
}

// grace is how long a request may go on after the answer was pushed. A service that pushes the
// answer during a poll will soon answer the poll too, and cancelling a request closes its
// connection.
const grace = time.Second

// request is a request during which an answer may be pushed.
type request struct {
	over   chan struct{} // closed when it has ended
	giveUp context.CancelCauseFunc
}

// endSoon cancels the request after grace, unless it ends before.
func (r *request) endSoon() {
	select {
	case <-time.After(grace):
		r.giveUp(errArrived)
	case <-r.over:
	}
}

// endSoonLocked starts endSoon for the current request, if there is one. The caller holds
// Callbacks.mu.
func (w *wait) endSoonLocked() {
	if w.request != nil {
		w.watching.Go(w.request.endSoon) // Call, which waits for watching, is in the request
	}
}

// unlessArrived returns a context for a request, which ends a grace after an answer was pushed. The
// function must be called when the request has ended.
func (w *wait) unlessArrived(ctx context.Context) (context.Context, func()) {
	ctx, giveUp := context.WithCancelCause(ctx)
	r := &request{over: make(chan struct{}), giveUp: giveUp}
	w.tool.callbacks.making(w, r)
	return ctx, func() {
		w.tool.callbacks.making(w, nil)
		close(r.over)
		giveUp(nil)
	}
}

// teller sends progress to a client, without blocking the wait. A nil teller sends nothing.
type teller struct {
	texts chan string // buffers the next text
	end   context.CancelFunc
	told  sync.WaitGroup

	panicked recovered.Later
}

// tellProgress starts a teller, if the client wants progress.
func (w *wait) tellProgress(ctx context.Context) *teller {
	client := w.call.Client
	if client == nil || !client.WantsProgress() {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	t := &teller{texts: make(chan string, 1), end: cancel}
	t.told.Go(func() {
		defer t.panicked.Catch(cancel)
		t.tell(ctx, client)
	})
	return t
}

// say queues a text for the client, unless another one is queued.
func (t *teller) say(text string) {
	if t == nil {
		return
	}
	select {
	case t.texts <- text:
	default:
	}
}

func (t *teller) tell(ctx context.Context, client peer.Client) {
	for n := 1; ; n++ {
		select {
		case text := <-t.texts:
			if ctx.Err() != nil {
				return // it is out of date
			}
			params, err := json.Marshal(map[string]any{"progress": n, "message": text})
			if err != nil { // encoding a number and a string cannot fail
				panic(err)
			}
			client.Notify(ctx, "notifications/progress", params)
		case <-ctx.Done():
			return
		}
	}
}

func (t *teller) close() {
	if t != nil {
		t.end()
		t.told.Wait()
		t.panicked.Raise()
	}
}
