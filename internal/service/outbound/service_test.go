package outbound_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/service/outbound"
)

// fill begins requests of one caller until the service has no place for another one, and
// returns whose they are.
func fill(t *testing.T, s *outbound.Service, caller string) (begun []turns.Owner) {
	t.Helper()
	ended, end := context.WithCancel(t.Context())
	end()
	for {
		owner := turns.Owner{Caller: caller, Session: strconv.Itoa(len(begun) % 64)}
		if len(begun) > 10_000 || s.Begin(ended, owner) != nil {
			return begun
		}
		begun = append(begun, owner)
	}
}

// SPEC S2, N2: one caller has half of the requests that a service works on, and others
// find places.
func TestS2RequestsToOneServiceAreBoundedAndShared(t *testing.T) {
	c := outbound.New(outbound.Options{})
	one, other := c.Service("https://a.test:8443/x"), c.Service("https://b.test:8443/x")
	if n := len(fill(t, one, "big")); n < 450 || n > 512 {
		t.Errorf("one caller began %d requests; want about 512", n)
	}
	if n := len(fill(t, one, "small")); n < 200 || n > 256 {
		t.Errorf("another caller began %d requests; want about 256", n)
	}
	if n := len(fill(t, c.Service("https://A.test:8443/y?z"), "big")); n != 0 {
		t.Errorf("another path of the same service: %d requests more began", n)
	}
	if n := len(fill(t, other, "big")); n < 450 {
		t.Errorf("another service: %d requests began", n)
	}
}

// A request that is over gives its place to one that waits.
func TestRequestsWaitForAService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := outbound.New(outbound.Options{}).Service("https://a.test/x")
		begun := fill(t, s, "big")
		late := turns.Owner{Caller: "big", Session: strconv.Itoa(len(begun) % 64)} // for which there was no place
		waits := make(chan error)
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { waits <- s.Begin(ctx, late) }()
		synctest.Wait()
		cancel(fault.New(fault.Timeout, "it took too long"))
		err := <-waits
		if f, ok := errors.AsType[*fault.Error](err); !ok || f.Code != fault.Timeout {
			t.Errorf("a request that waited until its end: %v", err)
		}
		go func() { waits <- s.Begin(t.Context(), late) }()
		synctest.Wait()
		select {
		case err := <-waits:
			t.Fatalf("a request more did not wait: %v", err)
		default:
		}
		for _, owner := range begun {
			s.End(owner)
		}
		if err := <-waits; err != nil {
			t.Errorf("a request after others ended: %v", err)
		}
	})
}
