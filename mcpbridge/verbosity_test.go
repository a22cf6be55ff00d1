package mcpbridge_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

func setLevel(t *testing.T, c *mcp.ClientSession, level mcp.LoggingLevel) { //nolint:staticcheck // deprecated by the newest era only
	t.Helper()
	if err := c.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: level}); err != nil { //nolint:staticcheck // deprecated by the newest era only
		t.Fatal(err)
	}
}

// A level ends with its session.
func TestALevelEndsWithItsSession(t *testing.T) {
	w := served(t, newPeer(everything()))
	f := w.front(t, httpfront.Settings{})
	first, second := f.connect(t, "2025-11-25", nil), f.connect(t, "2025-11-25", nil)
	setLevel(t, first, "error")
	setLevel(t, first, "debug")
	setLevel(t, second, "debug")
	if n := w.bridge.Levels(); n != 2 {
		t.Errorf("%d sessions have set a level, want 2", n)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if n := w.bridge.Levels(); n != 1 {
		t.Errorf("%d sessions have set a level after one has ended, want 1", n)
	}
}

// slowPeer is a peer whose first request with a method waits for let, or for its end.
func slowPeer(method string) (s *fakePeer, began, let chan struct{}) {
	s = newPeer(everything())
	began, let = make(chan struct{}), make(chan struct{})
	var once atomic.Bool
	s.answer = func(ctx context.Context, req peer.Request) (json.RawMessage, error) {
		if req.Method == method && !once.Swap(true) {
			close(began)
			select {
			case <-let:
			case <-ctx.Done():
				s.note("gave up " + method)
				return nil, ctx.Err()
			}
		}
		return json.RawMessage(`{}`), nil
	}
	return s, began, let
}

// A level is told also when the client that set it does not wait for that.
func TestALevelOfAClientThatDoesNotWait(t *testing.T) {
	s, began, let := slowPeer("logging/setLevel")
	f := served(t, s).front(t, httpfront.Settings{})
	c := f.connect(t, "2025-11-25", nil)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-began; cancel() }()
	if err := c.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: "debug"}); err == nil { //nolint:staticcheck // as above
		t.Error("a request that was cancelled has an answer")
	}
	mustCall(t, c, nil) // the word that it is cancelled came before
	close(let)
	setLevel(t, c, "debug") // has its answer when peers have been told
	if got := s.asked("gave up"); len(got) != 0 {
		t.Errorf("the peer was not told to the end: %q", got)
	}
}

// What could not be told is told with the next word on it.
func TestALevelThatCouldNotBeTold(t *testing.T) {
	w := newWorld(t)
	asked := make(chan string, 10)
	refuses := true
	w.request(func(req peer.Request) error {
		asked <- string(req.Params)
		if refuses {
			refuses = false
			return fault.New(fault.NotReady, "not now")
		}
		return nil
	})
	c := w.front(t, httpfront.Settings{}).connect(t, "2025-11-25", nil)
	setLevel(t, c, "debug")
	setLevel(t, c, "debug")
	setLevel(t, c, "debug")
	if len(asked) != 2 {
		t.Errorf("the peers were told %d times", len(asked))
	}
}

// A level of a client that does not wait for its turn is told by who has it.
func TestALevelThatIsNotWaitedFor(t *testing.T) {
	s, began, let := slowPeer("logging/setLevel")
	w := served(t, s)
	f := w.front(t, httpfront.Settings{})
	first, second := f.connect(t, "2025-11-25", nil), f.initialize(t)
	var over sync.WaitGroup
	over.Go(func() { setLevel(t, first, "error") })
	within(t, began, "word to the peer")
	left := make(chan reply, 1)
	go func() {
		left <- f.post(t, `{"jsonrpc":"2.0","id":7,"method":"logging/setLevel","params":{"level":"debug"}}`, "Mcp-Session-Id", second)
	}()
	eventually(t, "the second level is noted", func() bool { return w.bridge.Levels() == 2 })
	f.send(t, http.MethodPost, "/mcp", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`, "Mcp-Session-Id", second)
	within(t, left, "answer")
	close(let)
	over.Wait()
	var told []string
	eventually(t, "the peer is told", func() bool {
		told = append(told, s.asked("logging/setLevel")...)
		return len(told) == 2
	})
	if told[1] != `logging/setLevel {"level":"debug"}` {
		t.Errorf("the peer was told %q", told)
	}
}

// SPEC N2: a request of the stateless era that wants log messages does not wait for a peer that
// does not answer how it takes the level: the peer may be another tenant's.
func TestN2AMutePeerDelaysNoRequestWithALevel(t *testing.T) {
	s, began, let := slowPeer("logging/setLevel")
	s.answer = func(slow func(context.Context, peer.Request) (json.RawMessage, error)) func(context.Context, peer.Request) (json.RawMessage, error) {
		return func(ctx context.Context, req peer.Request) (json.RawMessage, error) {
			return slow(context.WithoutCancel(ctx), req) // it does not give up either
		}
	}(s.answer)
	f := served(t, s).front(t, httpfront.Settings{})
	defer close(let)
	body, headers := newEra("resources/read", "mem://a", `"uri":"mem://a"`)
	body = strings.Replace(body, `"_meta":{`, `"_meta":{"io.modelcontextprotocol/logLevel":"debug",`, 1)
	for range 3 {
		answered := make(chan reply, 1)
		go func() { answered <- f.post(t, body, headers...) }()
		if r := within(t, answered, "answer beside a peer that does not say anything"); r.failed {
			t.Errorf("it is refused: %s", r.raw)
		}
	}
	within(t, began, "word to the peer")
}
