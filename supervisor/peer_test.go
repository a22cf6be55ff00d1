package supervisor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
)

// fakePeer is a peer that says what it is asked, and offers what it is given.
type fakePeer struct {
	name    string
	gone    bool          // it does not begin calls any more
	closing time.Duration // how long its Serve takes to end
	alive   *atomic.Int32 // peers that serve now
	updates chan string

	requests atomic.Int32 // that it was asked
	overdue  atomic.Bool  // see peer.Life

	mu      sync.Mutex // guards the fields that follow
	offers  *peer.Offers
	changed chan struct{}
}

func newFakePeer(name string, offers peer.Offers) *fakePeer {
	p := &fakePeer{name: name, updates: make(chan string), alive: &atomic.Int32{}}
	p.offer(offers)
	return p
}

func (p *fakePeer) offer(next peer.Offers) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.changed
	p.changed = make(chan struct{})
	next.Changed = p.changed
	p.offers = &next
	if old != nil {
		close(old)
	}
}

func (p *fakePeer) Offers() *peer.Offers {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.offers
}

func (p *fakePeer) String() string         { return "peer " + p.name }
func (p *fakePeer) Tools() []*mcp.Tool     { return p.Offers().Tools }
func (p *fakePeer) Updated() <-chan string { return p.updates }
func (p *fakePeer) Life() peer.Life {
	return peer.Life{State: "READY", Settled: p.Offers().Known, Overdue: p.overdue.Load()}
}

func (p *fakePeer) Call(_ context.Context, call peer.Call) (peer.Answer, error) {
	if p.gone {
		return peer.Answer{}, fault.Wrap(fault.NotReady, peer.ErrGone, "it is gone")
	}
	return peer.Answer{Raw: json.RawMessage(`"` + p.name + ` ` + call.Tool + `"`)}, nil
}

func (p *fakePeer) Request(_ context.Context, req peer.Request) (json.RawMessage, error) {
	p.requests.Add(1)
	if strings.Contains(string(req.Params), "missing") {
		return nil, &jsonrpc.Error{Code: -32002, Message: p.name + " has no such thing"}
	}
	return json.RawMessage(`"` + p.name + ` ` + req.Method + `"`), nil
}

func (p *fakePeer) Serve(ctx context.Context) error {
	if p.alive.Add(1) > 1 {
		panic("two peers of one name serve at once")
	}
	<-ctx.Done()
	time.Sleep(p.closing)
	p.alive.Add(-1)
	return ctx.Err()
}

// peers is a supervisor that serves the given peers, by the names of manifests.
func peers(made map[string]*fakePeer) *supervisor.Supervisor {
	return supervisor.New(supervisor.Options{
		Build: map[manifest.Kind]supervisor.Build{
			manifest.Capsule: func(t manifest.Tool) (supervisor.Provider, error) { return made[t.Name], nil },
		},
		Log: slog.New(slog.DiscardHandler),
	})
}

func capsuleTool(name, description string) manifest.Tool {
	return tool(name, func(t *manifest.Tool) { t.Kind, t.Description = manifest.Capsule, description })
}

func listed(names ...string) (tools []*mcp.Tool) {
	for _, name := range names {
		tools = append(tools, &mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)})
	}
	return tools
}

func templates(texts ...string) []peer.Template {
	var all []*mcp.ResourceTemplate
	for _, text := range texts {
		all = append(all, &mcp.ResourceTemplate{URITemplate: text, Name: "template"})
	}
	return peer.Templates(all, func(t *mcp.ResourceTemplate, err error) { panic(err) })
}

func resources(uris ...string) (all []*mcp.Resource) {
	for _, uri := range uris {
		all = append(all, &mcp.Resource{URI: uri, Name: "resource"})
	}
	return all
}

func raw(t *testing.T, s *supervisor.Supervisor, name string) string {
	t.Helper()
	answer, err := s.Call(t.Context(), peer.Call{Tool: name})
	if err != nil {
		return err.Error()
	}
	return string(answer.Raw)
}

// SPEC D7: what a peer offers becomes the catalog's as it changes.
func TestCatalogFollowsWhatPeersOffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFakePeer("p", peer.Offers{Tools: listed("p")})
		s := peers(map[string]*fakePeer{"p": p})
		go func() { _ = s.Serve(t.Context()) }()
		s.Apply([]manifest.Tool{capsuleTool("p", "")})
		synctest.Wait()
		if got := names(s.Catalog()); got != "p" {
			t.Errorf("before it says anything the catalog is %q", got)
		}
		p.offer(peer.Offers{Known: true, Talks: true, Tools: append(listed("p__b", "p__a"), &mcp.Tool{Name: "p__bad", InputSchema: json.RawMessage(`{"type":"object","properties":5}`)})})
		synctest.Wait()
		if got := names(s.Catalog()); got != "p__a p__b" || !s.Catalog().Talks["p__a"] {
			t.Errorf("afterwards it is %q, talking %v", got, s.Catalog().Talks)
		}
		if got := raw(t, s, "p__a"); got != `"p p__a"` {
			t.Errorf("a call gives %s", got)
		}
		p.offer(peer.Offers{Known: true, Reads: true, Resources: resources("file:///x")})
		synctest.Wait()
		p.updates <- "file:///x"
		if got := <-s.Updated(); got != "file:///x" {
			t.Errorf("updated %q", got)
		}
	})
}

// SPEC N2: a peer that tells of many updates delays those of another by one turn, and none of those is
// dropped. What waits to be told is told once.
func TestN2UpdatesAreToldInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		offers := func(name string) peer.Offers {
			return peer.Offers{Known: true, Reads: true, Resources: resources(name + "://h/x")}
		}
		loud, quiet := newFakePeer("loud", offers("loud")), newFakePeer("quiet", offers("quiet"))
		s := peers(map[string]*fakePeer{"loud": loud, "quiet": quiet})
		go func() { _ = s.Serve(t.Context()) }()
		s.Apply([]manifest.Tool{capsuleTool("loud", ""), capsuleTool("quiet", "")})
		synctest.Wait()
		go func() {
			for i := range 600 {
				loud.updates <- fmt.Sprint("loud://h/", i)
				if i < 200 {
					loud.updates <- "loud://h/0"
				}
			}
		}()
		synctest.Wait()
		quiet.updates <- "quiet://h/x"
		synctest.Wait()
		var told []string
		for range 700 {
			select {
			case uri := <-s.Updated():
				told = append(told, uri)
			default:
			}
			synctest.Wait()
		}
		if at := slices.Index(told, "quiet://h/x"); at < 0 || at > 1 {
			t.Errorf("the other peer's update is number %d of %d", at, len(told))
		}
		if len(told) != 601 {
			t.Errorf("%d updates of 601 are told", len(told))
		}
		for i, uri := range told {
			if slices.Contains(told[:i], uri) {
				t.Errorf("%s is told twice", uri)
			}
		}
	})
}

// SPEC D7a: a first list waits for peers of which nobody knows what they offer.
func TestSettleWaitsForThoseThatNobodyKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFakePeer("p", peer.Offers{})
		s := peers(map[string]*fakePeer{"p": p})
		go func() { _ = s.Serve(t.Context()) }()
		s.Apply([]manifest.Tool{capsuleTool("p", "")})
		synctest.Wait()
		if s.Catalog().Known() || len(s.Starting()) != 1 {
			t.Errorf("known %v, starting %v", s.Catalog().Known(), s.Starting())
		}
		p.overdue.Store(true) // SPEC N2: /readyz waits no longer for it
		if names := s.Starting(); len(names) != 0 {
			t.Errorf("%v are overdue, and waited for", names)
		}
		brief, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if s.Settle(brief); brief.Err() == nil {
			t.Error("it settled although nothing is known")
		}
		go func() {
			time.Sleep(time.Second)
			p.offer(peer.Offers{Known: true, Tools: listed("p")})
		}()
		s.Settle(t.Context())
		if names(s.Catalog()) != "p" || len(s.Starting()) != 0 {
			t.Errorf("settled at %q, starting %v", names(s.Catalog()), s.Starting())
		}
	})
}

// SPEC D2: a manifest that changed has its new peer begin when the old one has
// ended, and not before; a call that waited for the old one goes to the new one.
func TestNewPeerWaitsForTheOldOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alive := &atomic.Int32{}
		old := newFakePeer("old", peer.Offers{Known: true, Tools: listed("p")})
		old.alive, old.closing = alive, 3*time.Second
		made := map[string]*fakePeer{"p": old}
		s := peers(made)
		go func() { _ = s.Serve(t.Context()) }()
		s.Apply([]manifest.Tool{capsuleTool("p", "")})
		synctest.Wait()

		next := newFakePeer("new", peer.Offers{Known: true, Tools: listed("p")})
		next.alive = alive
		made["p"] = next
		s.Apply([]manifest.Tool{capsuleTool("p", "changed")})
		synctest.Wait()
		if n := alive.Load(); n != 1 {
			t.Errorf("%d serve while the old one ends", n)
		}
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if n := alive.Load(); n != 1 {
			t.Errorf("%d serve afterwards", n)
		}
		if got := raw(t, s, "p"); got != `"new p"` {
			t.Errorf("a call gives %s", got)
		}
	})
}

// A call that its peer has not begun, and will not, is begun by its successor (SPEC E1).
func TestCallGoesToTheSuccessor(t *testing.T) {
	old := newFakePeer("old", peer.Offers{Known: true, Tools: listed("p")})
	s := peers(map[string]*fakePeer{"p": old})
	s.Apply([]manifest.Tool{capsuleTool("p", "")})
	old.gone = true
	if got := raw(t, s, "p"); !strings.Contains(got, "not_ready") {
		t.Errorf("without a successor a call gives %s", got)
	}
	waiting := &waitingPeer{fakePeer: old, entered: make(chan struct{}), leave: make(chan struct{})}
	w := supervisor.New(supervisor.Options{
		Build: map[manifest.Kind]supervisor.Build{
			manifest.Capsule: func(t manifest.Tool) (supervisor.Provider, error) {
				if t.Description == "" {
					return waiting, nil
				}
				return newFakePeer("new", peer.Offers{Known: true, Tools: listed("p")}), nil
			},
		},
		Log: slog.New(slog.DiscardHandler),
	})
	w.Apply([]manifest.Tool{capsuleTool("p", "")})
	got := make(chan string)
	go func() { got <- raw(t, w, "p") }()
	<-waiting.entered
	w.Apply([]manifest.Tool{capsuleTool("p", "changed")})
	close(waiting.leave)
	if answer := <-got; answer != `"new p"` {
		t.Errorf("the call that waited gives %s", answer)
	}
}

// waitingPeer has its calls wait until it is gone.
type waitingPeer struct {
	*fakePeer
	entered, leave chan struct{}
}

func (p *waitingPeer) Call(ctx context.Context, call peer.Call) (peer.Answer, error) {
	close(p.entered)
	<-p.leave
	return p.fakePeer.Call(ctx, call)
}

// SPEC D8: requests other than calls find the peer that they are for.
func TestRequestsFindTheirPeer(t *testing.T) {
	a := newFakePeer("a", peer.Offers{
		Known: true, Reads: true, Completes: true,
		Resources: []*mcp.Resource{{URI: "file:///a", Name: "a"}, {URI: "file:///both", Name: "both"}},
		Prompts:   []*mcp.Prompt{{Name: "a__p"}},
	})
	b := newFakePeer("b", peer.Offers{
		Known: true, Reads: true, Logs: true,
		Resources: []*mcp.Resource{{URI: "file:///both", Name: "both"}},
		Templates: templates("note:///{id}"),
		Prompts:   []*mcp.Prompt{{Name: "b__p"}},
	})
	s := peers(map[string]*fakePeer{"a": a, "b": b})
	s.Apply([]manifest.Tool{capsuleTool("a", ""), capsuleTool("b", "")})
	if c := s.Catalog(); len(c.Resources) != 2 || len(c.Templates) != 1 || len(c.Prompts) != 2 {
		t.Errorf("the catalog has %d resources, %d templates and %d prompts", len(c.Resources), len(c.Templates), len(c.Prompts))
	}
	for _, test := range []struct{ method, params, want string }{
		{"resources/read", `{"uri":"file:///a"}`, `"a resources/read"`},
		{"resources/read", `{"uri":"file:///both"}`, `"a resources/read"`},
		{"resources/read", `{"uri":"note:///7"}`, `"b resources/read"`},
		{"resources/read", `{"uri":"file:///linked"}`, `"a resources/read"`},
		{"resources/read", `{"uri":"file:///missing"}`, "a has no such thing"},
		{"resources/read", `{"uri":"other:///linked"}`, "Resource not found"},
		{"resources/subscribe", `{"uri":"note:///7"}`, `"b resources/subscribe"`},
		{"prompts/get", `{"name":"b__p"}`, `"b prompts/get"`},
		{"prompts/get", `{"name":"c"}`, "there is no prompt c"},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"a__p"}}`, `"a completion/complete"`},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"b__p"}}`, `{"completion":{"values":[]}}`},
		{"logging/setLevel", `{"level":"debug"}`, `{}`},
		{"prompts/get", `[]`, "params are not of the shape"},
	} {
		got, err := s.Request(t.Context(), peer.Request{Method: test.method, Params: json.RawMessage(test.params)})
		text := string(got)
		if err != nil {
			text = err.Error()
		}
		if !strings.Contains(text, test.want) {
			t.Errorf("%s %s gives %s; want %s", test.method, test.params, text, test.want)
		}
	}
}

// SPEC-TOOLS 8.3: who may not call may not read either; how much is to be heard is
// nobody's permission.
func TestT83RequestsAreAdmittedAsCallsAre(t *testing.T) {
	p := newFakePeer("p", peer.Offers{
		Known: true, Reads: true, Completes: true, Logs: true,
		Resources: []*mcp.Resource{{URI: "file:///a", Name: "a"}}, Prompts: []*mcp.Prompt{{Name: "p__a"}},
	})
	s := supervisor.New(supervisor.Options{
		Build: map[manifest.Kind]supervisor.Build{manifest.Capsule: func(manifest.Tool) (supervisor.Provider, error) { return p, nil }},
		AdmitRequest: func(context.Context, peer.Request, func() *rules.Target) error {
			return fault.New(fault.PermissionDenied, "no")
		},
		Log: slog.New(slog.DiscardHandler),
	})
	s.Apply([]manifest.Tool{capsuleTool("p", "")})
	for method, denied := range map[string]bool{
		"resources/read": true, "resources/subscribe": true, "prompts/get": true, "completion/complete": true,
		"resources/unsubscribe": false, "logging/setLevel": false,
	} {
		_, err := s.Request(t.Context(), peer.Request{Method: method, Params: json.RawMessage(`{"uri":"file:///a","name":"p__a","ref":{"name":"p__a"}}`)})
		if got := fault.CodeOf(err) == fault.PermissionDenied; got != denied {
			t.Errorf("%s: %v", method, err)
		}
	}
}
