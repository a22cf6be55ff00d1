package supervisor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
)

// slowSchema is a schema that takes until its gate opens to be looked at.
type slowSchema struct{ begun, gate chan struct{} }

func (s slowSchema) MarshalJSON() ([]byte, error) {
	select {
	case s.begun <- struct{}{}:
	default:
	}
	<-s.gate
	return []byte(`{"type":"object"}`), nil
}

// SPEC S2: while the schemas of what a peer offers are compiled, nothing else waits: a
// reload, a call, a look at the state, the watchdog.
func TestS2SchemasAreCompiledOutsideTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFakePeer("slow", peer.Offers{Known: true, Tools: listed("old")})
		s := peers(map[string]*fakePeer{"slow": p, "other": newFakePeer("other", peer.Offers{Known: true, Tools: listed("fine")})})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Serve(ctx) }()
		s.Apply([]manifest.Tool{capsuleTool("slow", "x")})
		synctest.Wait()

		slow := slowSchema{begun: make(chan struct{}, 1), gate: make(chan struct{})}
		p.offer(peer.Offers{Known: true, Tools: []*mcp.Tool{{Name: "new", InputSchema: slow}}})
		<-slow.begun
		if diff := s.Apply([]manifest.Tool{capsuleTool("slow", "x"), capsuleTool("other", "x")}); len(diff.Added) != 1 {
			t.Errorf("a reload did %+v", diff)
		}
		s.Starting()
		if err := s.Alive(t.Context()); err != nil {
			t.Errorf("the watchdog: %v", err)
		}
		for _, name := range []string{"old", "fine"} { // what was offered before is served meanwhile
			if _, err := s.Call(t.Context(), peer.Call{Tool: name}); err != nil {
				t.Errorf("a call of %s: %v", name, err)
			}
		}
		close(slow.gate)
		synctest.Wait()
		if _, err := s.Call(t.Context(), peer.Call{Tool: "new"}); err != nil {
			t.Errorf("a call of what is offered now: %v", err)
		}
		stop()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Serve returned %v", err)
		}
	})
}

// SPEC S1: one peer's schemas have a bound together. What is over it is left out, and
// nothing else.
func TestS1SchemasOfOnePeerAreBounded(t *testing.T) {
	offers := peer.Offers{Known: true, Tools: listed("a_small_one")}
	for i := range 30 {
		properties := make([]string, 2000)
		for j := range properties {
			properties[j] = fmt.Sprintf(`"p%d_%d":{}`, i, j)
		}
		offers.Tools = append(offers.Tools, &mcp.Tool{
			Name: fmt.Sprintf("large_%d", i), InputSchema: json.RawMessage(`{"type":"object","properties":{` + strings.Join(properties, ",") + `}}`),
		})
	}
	s := peers(map[string]*fakePeer{"p": newFakePeer("p", offers), "q": newFakePeer("q", peer.Offers{Known: true, Tools: listed("fine")})})
	s.Apply([]manifest.Tool{capsuleTool("p", "x"), capsuleTool("q", "x")})
	served := map[string]bool{}
	for _, tool := range s.Catalog().Tools {
		served[tool.Name] = true
	}
	if !served["a_small_one"] || !served["fine"] || !served["large_0"] || served["large_29"] {
		t.Errorf("served are %v", served)
	}
}

// SPEC S2: so have they for what a few bytes of them cost to compile.
func TestS2TheWeightOfOnePeersSchemasIsBounded(t *testing.T) {
	offers := peer.Offers{Known: true, Tools: listed("a_small_one")}
	for i := range 60 { // of 5 MB each when they are compiled
		offers.Tools = append(offers.Tools, &mcp.Tool{
			Name: fmt.Sprintf("large_%d", i), InputSchema: json.RawMessage(fmt.Sprintf(`{"type":"object","properties":{"p%d":{"pattern":"^(\\p{L}{500})$"}}}`, i)),
		})
	}
	s := peers(map[string]*fakePeer{"p": newFakePeer("p", offers), "q": newFakePeer("q", peer.Offers{Known: true, Tools: listed("fine")})})
	s.Apply([]manifest.Tool{capsuleTool("p", "x"), capsuleTool("q", "x")})
	served := map[string]bool{}
	for _, tool := range s.Catalog().Tools {
		served[tool.Name] = true
	}
	if !served["a_small_one"] || !served["fine"] || !served["large_0"] || served["large_59"] {
		t.Errorf("served are %v", served)
	}
}

// SPEC S1: so have they for what it has cost to find out that some of them cannot be used.
func TestS1TheWeightOfRefusedSchemasIsBounded(t *testing.T) {
	for name, text := range map[string]string{
		"a pattern too many":   `{"type":"object","properties":{"p%d":{"pattern":"^\\p{L}{500}$"},"q":{"pattern":"^\\p{L}{501}$"}}}`,
		"not of an object":     `{"properties":{"p%d":{"pattern":"^\\p{L}{500}$"}}}`,
		"a header that is bad": `{"type":"object","properties":{"p%d":{"pattern":"^\\p{L}{500}$","type":"number","x-mcp-header":"a"}}}`,
	} {
		offers := peer.Offers{Known: true, Tools: listed("a_small_one")}
		for i := range 40 {
			offers.Tools = append(offers.Tools, &mcp.Tool{Name: fmt.Sprintf("large_%d", i), InputSchema: json.RawMessage(fmt.Sprintf(text, i))})
		}
		offers.Tools = append(offers.Tools, &mcp.Tool{Name: "last", InputSchema: json.RawMessage(`{"type":"object","description":"new"}`)})
		s := peers(map[string]*fakePeer{"p": newFakePeer("p", offers), "q": newFakePeer("q", peer.Offers{Known: true, Tools: listed("fine")})})
		s.Apply([]manifest.Tool{capsuleTool("p", "x"), capsuleTool("q", "x")})
		served := map[string]bool{}
		for _, tool := range s.Catalog().Tools {
			served[tool.Name] = true
		}
		if !served["a_small_one"] || !served["fine"] || served["large_0"] || served["last"] {
			t.Errorf("%s: served are %v", name, served)
		}
	}
}

// workedSchema is a schema that takes a second to be looked at.
type workedSchema struct {
	looks *atomic.Int32
	n     int // so that each is another
}

func (s workedSchema) MarshalJSON() ([]byte, error) {
	s.looks.Add(1)
	time.Sleep(time.Second)
	return fmt.Appendf(nil, `{"type":"object","description":"%d"}`, s.n), nil
}

// SPEC S2: a peer that changes what it offers all the time, and has much of it, keeps Orla
// busy for a tenth of the time; the last change is served in the end.
func TestS2ManyChangesOfMuchAreFollowedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFakePeer("p", peer.Offers{Known: true, Tools: listed("first")})
		s := peers(map[string]*fakePeer{"p": p})
		defer serving(t, s)()
		s.Apply([]manifest.Tool{capsuleTool("p", "x")})
		synctest.Wait()
		var looks atomic.Int32
		for n := range 200 {
			p.offer(peer.Offers{Known: true, Tools: []*mcp.Tool{{Name: fmt.Sprint("t", n), InputSchema: workedSchema{&looks, n}}}})
			time.Sleep(time.Second)
		}
		if n := looks.Load(); n > 2*200/10 {
			t.Errorf("what it offers was looked at %d times in 200 s, a second each", n)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, err := s.Call(t.Context(), peer.Call{Tool: "t199"}); err != nil {
			t.Errorf("the last change: %v", err)
		}
	})
}
