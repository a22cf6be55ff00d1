package supervisor_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
)

// Calls in flight are bounded: one session has no more than it leaves to others,
// what is over is refused with an error that can be tried again, and another
// caller's calls go on. The calls of an owner can be ended as if they were cancelled.
func TestS2CallsInFlightAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 8192 // as the supervisor has it
		w := newWorld()
		open := make(chan struct{})
		w.with = func(f *fake) {
			f.call = func(ctx context.Context, _ json.RawMessage) (*mcp.CallToolResult, error) {
				select {
				case <-open:
					return &mcp.CallToolResult{}, nil
				case <-ctx.Done():
					return nil, fault.From(context.Cause(ctx))
				}
			}
		}
		w.Apply([]manifest.Tool{tool("waits")})
		var mu sync.Mutex
		codes := map[string]map[fault.Code]int{}
		var calls sync.WaitGroup
		call := func(caller string, n int) {
			codes[caller] = map[fault.Code]int{}
			for range n {
				calls.Go(func() {
					_, err := w.Call(t.Context(), peer.Call{Tool: "waits", Owner: turns.Owner{Caller: caller, Session: "1"}})
					mu.Lock()
					defer mu.Unlock()
					codes[caller][fault.CodeOf(err)]++
					if err != nil && fault.From(err).Code == fault.RateLimited && !fault.From(err).Retryable() {
						t.Errorf("it cannot be tried again: %v", err)
					}
				})
			}
			synctest.Wait()
		}
		call("flood", most)
		call("other", most/16)
		if n := w.InFlight(); n > most || n < most/4 {
			t.Errorf("%d are in flight", n)
		}
		if got := codes["flood"][fault.RateLimited]; got < most/2 {
			t.Errorf("%d of a flood were refused, want half at least", got)
		}
		w.End(func(l turns.Owner) bool { return l.Caller == "flood" })
		synctest.Wait()
		if n := w.InFlight(); n != most/16 {
			t.Errorf("%d are in flight when the flood was ended, want the other's %d", n, most/16)
		}
		close(open)
		calls.Wait()
		if got := codes["other"]; got[""] != most/16 {
			t.Errorf("the other caller got %v", got)
		}
		if got := codes["flood"]; got[fault.Canceled]+got[fault.RateLimited] != most {
			t.Errorf("the flood got %v, want cancelled and refused calls only", got)
		}
	})
}

// SPEC N2: a peer that is to keep a resource no longer for its next processes notes that, also where its
// caller has too many calls in flight to wait for it.
func TestN2WhatIsForLaterIsNotedAtOnce(t *testing.T) {
	p := newFakePeer("p", peer.Offers{Known: true})
	s := peers(map[string]*fakePeer{"p": p})
	ann := turns.Owner{Caller: "ann", Session: "1"}
	for {
		if _, _, err := s.Waiting(t.Context(), ann); err != nil {
			break
		}
	}
	for later, want := range map[bool]int32{true: 1, false: 0} {
		p.requests.Store(0)
		_, err := s.RequestOf(t.Context(), p, peer.Request{Method: "resources/unsubscribe", Params: json.RawMessage(`{"uri":"x:a"}`), Owner: ann, Later: later})
		if got := p.requests.Load(); fault.CodeOf(err) != fault.RateLimited || got != want {
			t.Errorf("later %v: the peer got %d requests, want %d; error %v", later, got, want, err)
		}
	}
}
