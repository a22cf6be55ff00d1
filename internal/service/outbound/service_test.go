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
	if n := len(fill(t, other, "small")); n < 50 {
		t.Errorf("another service: %d requests began", n)
	}
}

// SPEC S2, N2: one host may have many services. All of them together work on no more requests than OPERATING.md says,
// one that works on all that it may leaves places for others, and a caller that takes all that it may leaves places for
// other callers.
func TestS2RequestsToAllServicesAreBoundedTogether(t *testing.T) {
	const ports, most = 8, 1536
	c := outbound.New(outbound.Options{})
	var kept []*outbound.Service
	begun := map[*outbound.Service][]turns.Owner{}
	of := func(caller string) (began [ports]int, all int) {
		for i := range ports {
			s := c.Service("http://a.test:" + strconv.Itoa(8000+i))
			owners := fill(t, s, caller)
			kept, begun[s] = append(kept, s), append(begun[s], owners...)
			began[i] = len(owners)
			all += began[i]
		}
		return began, all
	}
	big, all := of("big")
	if all > most/2 || all < most/2-128 {
		t.Errorf("one caller began %d requests to %d services; want about %d", all, ports, most/2)
	}
	if big[1] < 100 {
		t.Errorf("%d requests to a second service began; want more than 100", big[1])
	}
	if _, small := of("small"); small > most/4 || small < most/4-128 {
		t.Errorf("another caller began %d requests; want about %d", small, most/4)
	}
	for _, s := range kept {
		for _, owner := range begun[s] {
			s.End(owner)
		}
		delete(begun, s)
	}
	if _, again := of("big"); again != all {
		t.Errorf("one caller began %d requests when all had ended; want %d", again, all)
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
