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

// before is the pause before the next poll: what the service asks for, else
// ours, with a little more so that waits that began together drift apart.
func before(asked, ours time.Duration) time.Duration {
	if asked > 0 {
		return asked
	}
	return ours + rand.N(ours/10+1)
}

// sleep waits. The error is why the wait is over.
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

// grace is for how long a request goes on when the answer is there: a service
// that pushes it while it is being asked is about to be done, and what is given
// up takes its connection with it.
const grace = time.Second

// request is one that is made while an answer may be pushed.
type request struct {
	over   chan struct{} // closed when it has been made
	giveUp context.CancelCauseFunc
}

// endSoon ends the request a grace from now, unless it ends by itself.
func (r *request) endSoon() {
	select {
	case <-time.After(grace):
		r.giveUp(errArrived)
	case <-r.over:
	}
}

// endSoonLocked has the request ended that is being made, if there is one. The
// caller holds Callbacks.mu.
func (w *wait) endSoonLocked() {
	if w.request != nil {
		w.watching.Go(w.request.endSoon) // Call, which waits for it, is in the request
	}
}

// unlessArrived returns the context of a request, which ends a grace after an
// answer was pushed. The function must be called when the request is over.
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

// teller tells a client how a wait goes, without the wait having to wait for the
// client. A nil teller tells nobody.
type teller struct {
	texts chan string // holds the one to be told next
	end   context.CancelFunc
	told  sync.WaitGroup

	panicked recovered.Later
}

// tellProgress begins to tell the client, if it wants to know.
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

// say has the client told, unless it is still being told something else.
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
				return // it is about what is over
			}
			params, err := json.Marshal(map[string]any{"progress": n, "message": text})
			if err != nil { // it is a number and a text
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
