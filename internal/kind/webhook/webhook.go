// Package webhook handles calls of services that take a long time (SPEC-TOOLS 3.4): it POSTs an
// envelope; the answer comes at once, or Orla polls until it is there, or the service pushes it to
// Orla.
//
//	POST ─┬─ 200, an envelope ───────────────► answer
//	      └─ 202 ─► GET …/{id}, again and again ─► answer
//	  POST /callbacks/{id}, at any time in the meantime ─► answer
//
// Each wait is one goroutine with one timer. When its context ends, it ends and sends no more
// requests.
package webhook

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/callid"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/rejudge"
	"github.com/orla-project/orla/internal/call/trace"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/kind/post"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/service/contract"
	"github.com/orla-project/orla/internal/service/outbound"
	"github.com/orla-project/orla/manifest"
)

// Options configures a Tool, in addition to its manifest.
type Options struct {
	post.Options
	// Callbacks receives pushed answers. If nil, services can only be polled.
	Callbacks *Callbacks
}

// pace has the intervals of polling.
type pace struct {
	first, most time.Duration // the first and the longest pause between polls
	patience    time.Duration // time limit of one poll; the next one will tell as much
	room        time.Duration // time limit for a pushed answer to get memory
}

var usualPace = pace{first: 2 * time.Second, most: 15 * time.Second, patience: 30 * time.Second, room: 10 * time.Second}

// Tool handles the calls of one tool of type webhook-callback.
type Tool struct {
	name      string
	sender    *post.Sender
	endpoint  *url.URL
	address   string // endpoint as a string
	callbacks *Callbacks
	pace      pace
	listed    []*mcp.Tool
}

// New returns the Tool for a manifest.
func New(t manifest.Tool, opts Options) (*Tool, error) {
	sender, err := post.NewSender(t, opts.Options)
	if err != nil {
		return nil, err
	}
	endpoint, err := url.Parse(t.Resource.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("%s: endpoint: not an address", t.Source)
	}
	return &Tool{
		name: t.Name, sender: sender, endpoint: endpoint, address: endpoint.String(), callbacks: opts.Callbacks, pace: usualPace,
		listed: []*mcp.Tool{t.Listed()},
	}, nil
}

// Tools implements supervisor.Provider.
func (t *Tool) Tools() []*mcp.Tool { return t.listed }

// Talks implements supervisor.Talker: clients get progress notifications.
func (t *Tool) Talks() bool { return true }

// Call makes one attempt. The error is a *fault.Error.
func (t *Tool) Call(ctx context.Context, call peer.Call) (peer.Answer, error) {
	ctx, over := trace.Begin(ctx)
	defer over()
	ctx = callid.With(ctx, t.callbacks.requestID(callid.From(ctx))) // for the service alone
	w := &wait{tool: t, call: call, began: time.Now(), arrived: make(chan struct{}), account: turns.AccountOf(ctx)}
	defer w.watching.Wait()
	r, err := w.serve(ctx)
	if pushed, ok := t.callbacks.forget(w); ok {
		r, err = pushed, nil
	}
	if err != nil {
		return peer.Answer{}, w.explained(err)
	}
	return w.exchange.Result(r)
}

// errArrived is the cause of a wait's end if its answer was pushed.
var errArrived = fault.New(fault.Canceled, "the answer was pushed")

// wait is one attempt of a call.
type wait struct {
	tool    *Tool
	call    peer.Call
	began   time.Time
	arrived chan struct{} // closed when an answer was pushed

	account  *turns.Account // memory of the pushed answer
	watching sync.WaitGroup // endSoon

	exchange *contract.Exchange // the newest one
	said     string             // by the service when it was last asked, for people; "" before
	pause    time.Duration      // the pause that the service asks for; 0 for none

	// Guarded by Callbacks.mu.
	request *request           // the current request; nil for none
	reader  *contract.Exchange // reads pushed answers
	pushing bool               // a pushed answer is being read
	useless int                // bytes that were pushed and did not end the call
	pushed  *contract.Response // the pushed answer; nil before
}

// serve sends the call, and waits for the answer.
func (w *wait) serve(ctx context.Context) (contract.Response, error) {
	r, err := w.begin(ctx)
	if err != nil || r.Terminal() {
		return r, err
	}
	ctx = rejudge.Sent(ctx)
	told := w.tellProgress(ctx)
	defer told.close()
	interval := w.tool.pace.first
	for polls := 1; ; polls++ {
		told.say(w.summary())
		if err := w.sleep(ctx, before(w.pause, interval)); err != nil {
			return contract.Response{}, err
		}
		interval = min(interval*3/2, w.tool.pace.most)
		r, err := w.poll(ctx)
		switch f := fault.From(err); {
		case err == nil && r.Terminal():
			return r, nil
		case err == nil:
		case ctx.Err() != nil:
			return contract.Response{}, fault.From(context.Cause(ctx))
		case f.Retryable(): // no answer to the request, but one may still be pushed
			w.said, w.pause = f.Reason, f.RetryAfter
		default:
			return contract.Response{}, err
		}
	}
}

// begin sends the call to the service. If the response is not terminal, the service is working on
// it.
func (w *wait) begin(ctx context.Context) (r contract.Response, err error) {
	ctx, over := w.unlessArrived(ctx)
	defer over()
	err = w.tool.sender.Do(ctx, w.call, func(a *post.Attempt) error {
		w.exchange = a.Exchange
		w.tool.callbacks.expect(w, a.Exchange)
		envelope := post.Envelope(a, w.tool.address)
		envelope.Later = true
		reply, err := a.Send(ctx, envelope)
		switch {
		case err != nil:
			return err
		case reply.StatusCode == http.StatusAccepted:
			w.notYet(reply)
			return nil
		case !reply.Succeeded():
			return reply.Fault(true)
		}
		r, err = w.read(reply)
		return err
	})
	return r, err
}

// poll asks whether the answer is there. A retryable error says nothing about that.
func (w *wait) poll(ctx context.Context) (r contract.Response, err error) {
	ctx, over := w.unlessArrived(ctx)
	defer over()
	ctx, cancel := context.WithTimeoutCause(ctx, w.tool.pace.patience, errPatience)
	defer cancel()
	err = w.tool.sender.Do(ctx, w.call, func(a *post.Attempt) error {
		w.exchange = a.Exchange
		reply, err := a.Send(ctx, post.Request{
			Method: http.MethodGet, URL: w.tool.at(a.RequestID()), Accept: "application/json", Contract: true, Later: true,
		})
		switch {
		case err != nil:
			return err
		case pending(reply.StatusCode):
			w.notYet(reply)
			return nil
		case reply.StatusCode == http.StatusUnauthorized:
			return reply.Fault(true) // there may be a newer token
		case !reply.Succeeded():
			r = contract.Failed(reply.Fault(true))
			return nil
		}
		r, err = w.read(reply)
		return err
	})
	return r, err
}

// errPatience is the cause of a poll's end if it takes too long.
var errPatience = fault.New(fault.Timeout, "it does not answer when it is asked")

// pending reports whether a status says that the answer is not there yet.
func pending(status int) bool {
	switch status {
	case http.StatusAccepted, http.StatusNoContent, http.StatusNotFound, http.StatusTooManyRequests:
		return true
	}
	return status/100 == 5
}

// at returns the URL to poll for a request's answer.
func (t *Tool) at(id string) string {
	u := *t.endpoint
	u.RawPath = strings.TrimSuffix(u.EscapedPath(), "/") + "/" + url.PathEscape(id)
	u.Path = strings.TrimSuffix(u.Path, "/") + "/" + id
	return u.String()
}

// read reads the envelope in a service's answer.
func (w *wait) read(reply *post.Reply) (contract.Response, error) {
	r, err := w.exchange.Decode(reply.Said)
	if err != nil {
		return r, err
	}
	if r.Err != nil {
		r.Err = fault.From(reply.RetryAfter(r.Err))
	}
	w.said, w.pause = fmt.Sprintf("status %q", w.exchange.Shown(r.Status)), outbound.RetryAfter(reply.Header)
	return r, nil
}

// notYet records an answer that only has a status.
func (w *wait) notYet(reply *post.Reply) {
	w.said = strings.TrimSpace(fmt.Sprintf("%d %s", reply.StatusCode, http.StatusText(reply.StatusCode)))
	w.pause = outbound.RetryAfter(reply.Header)
}

// summary says how long the wait has lasted, and what the service answered last.
func (w *wait) summary() string {
	return fmt.Sprintf("%s is at work for %s; it said: %s", w.tool.name, time.Since(w.began).Round(time.Second), w.said)
}

// explained adds to a timeout what the service answered last.
func (w *wait) explained(err error) error {
	f := fault.From(err)
	if f.Code != fault.Timeout || w.said == "" {
		return f
	}
	late := *f
	late.Logged, _ = f.Log()
	late.Reason += "; asked for it, it said: " + w.said
	return &late
}
