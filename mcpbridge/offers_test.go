package mcpbridge_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
	"github.com/orla-project/orla/supervisor"
)

// fakePeer is a peer in memory: it offers what a test says, and answers with what
// it was asked.
type fakePeer struct {
	updated chan string

	mu       sync.Mutex // guards the fields that follow
	offers   *peer.Offers
	changed  chan struct{}
	requests []string // the method and params of each
	answer   func(context.Context, peer.Request) (json.RawMessage, error)
}

func newPeer(offers peer.Offers) *fakePeer {
	s := &fakePeer{updated: make(chan string)}
	s.offer(offers)
	return s
}

// offer makes offers what the peer offers from now on.
func (s *fakePeer) offer(offers peer.Offers) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.changed
	s.changed = make(chan struct{})
	offers.Changed = s.changed
	s.offers = &offers
	if old != nil {
		close(old)
	}
}

func (s *fakePeer) Offers() *peer.Offers {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offers
}

func (s *fakePeer) Tools() []*mcp.Tool     { return s.Offers().Tools }
func (s *fakePeer) Life() peer.Life        { return peer.Life{Settled: true} }
func (s *fakePeer) Updated() <-chan string { return s.updated }

func (s *fakePeer) Serve(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func (s *fakePeer) Call(_ context.Context, call peer.Call) (peer.Answer, error) {
	return peer.Answer{Raw: json.RawMessage(`{"content":[{"type":"text","text":"from ` + call.Tool + `"}]}`)}, nil
}

func (s *fakePeer) Request(ctx context.Context, req peer.Request) (json.RawMessage, error) {
	s.mu.Lock()
	s.requests = append(s.requests, req.Method+" "+string(req.Params))
	answer := s.answer
	s.mu.Unlock()
	if answer != nil {
		return answer(ctx, req)
	}
	return json.RawMessage(`{"asked":` + string(req.Params) + `,"n":12345678901234567890}`), nil
}

// note counts what has happened among the requests.
func (s *fakePeer) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, what+" ")
}

// asked returns the requests with a method, and forgets them.
func (s *fakePeer) asked(method string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []string
	s.requests = slices.DeleteFunc(s.requests, func(r string) bool {
		if !strings.HasPrefix(r, method+" ") {
			return false
		}
		found = append(found, r)
		return true
	})
	return found
}

// everything is what a peer can offer.
func everything() peer.Offers {
	return peer.Offers{
		Tools:     []*mcp.Tool{tool("echo")},
		Resources: []*mcp.Resource{{URI: "mem://a", Name: "a"}, {URI: "mem://b", Name: "b"}},
		Templates: peer.Templates([]*mcp.ResourceTemplate{{URITemplate: "mem://x/{id}", Name: "x"}}, nil),
		Prompts:   []*mcp.Prompt{{Name: "greet", Arguments: []*mcp.PromptArgument{{Name: "who"}}}},
		Reads:     true, Completes: true, Logs: true, Talks: true, Known: true,
	}
}

// served is a bridge over a real supervisor with one peer.
func served(t *testing.T, s supervisor.Peer) *world {
	t.Helper()
	log := &syncBuffer{}
	logger := slog.New(slog.NewJSONHandler(log, nil))
	sup := supervisor.New(supervisor.Options{
		Build: map[manifest.Kind]supervisor.Build{manifest.Capsule: func(manifest.Tool) (supervisor.Provider, error) { return s, nil }},
		Log:   logger,
	})
	serve(t, sup.Serve)
	if diff := sup.Apply([]manifest.Tool{{Name: "peer", Kind: manifest.Capsule}}); len(diff.Failed) > 0 {
		t.Fatal(diff.Failed)
	}
	w := &world{catalog: newCatalog(), log: log, offered: sup}
	w.bridge = mcpbridge.New(sup, mcpbridge.Options{Version: "1.2.3", Log: logger})
	serve(t, w.bridge.Serve)
	return w
}

// eras are clients of the SDK in every way there is.
func eras(t *testing.T, w *world, opts func() *mcp.ClientOptions) map[string]*mcp.ClientSession {
	t.Helper()
	f := w.front(t, httpfront.Settings{})
	return map[string]*mcp.ClientSession{
		"stream": f.connect(t, "2025-11-25", opts()), "newest": f.connect(t, newest, opts()),
		"sse": f.connectSSE(t, opts()), "stdio": connect(t, stdioTransport(t, w), "2025-06-18", opts()),
		"newest stdio": connect(t, stdioTransport(t, w), newest, opts()),
	}
}

// SPEC D7, D8, G3: what a peer offers is listed for every client, and followed.
func TestD8WhatAPeerOffersIsListed(t *testing.T) {
	s := newPeer(everything())
	w := served(t, s)
	type heard struct{ resources, prompts chan struct{} }
	all := map[string]heard{}
	var last heard
	sessions := eras(t, w, func() *mcp.ClientOptions {
		last = heard{make(chan struct{}, 100), make(chan struct{}, 100)}
		all[fmt.Sprint(len(all))] = last
		h := last
		return &mcp.ClientOptions{
			ResourceListChangedHandler: func(context.Context, *mcp.ResourceListChangedRequest) { h.resources <- struct{}{} },
			PromptListChangedHandler:   func(context.Context, *mcp.PromptListChangedRequest) { h.prompts <- struct{}{} },
		}
	})
	listing := func(c *mcp.ClientSession) string {
		var names []string
		for r, err := range c.Resources(t.Context(), nil) {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, r.URI)
		}
		for r, err := range c.ResourceTemplates(t.Context(), nil) {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, r.URITemplate)
		}
		for p, err := range c.Prompts(t.Context(), nil) {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, p.Name)
		}
		return strings.Join(names, " ")
	}
	for name, c := range sessions {
		if got := listing(c); got != "mem://a mem://b mem://x/{id} greet" {
			t.Errorf("%s: %s", name, got)
		}
	}
	n := 0
	for name, h := range all { // a subscription begins some time after its client
		eventually(t, name+" hears", func() bool {
			n++
			next := everything()
			next.Resources[1].URI, next.Resources[1].Description = "mem://c", fmt.Sprint(n)
			next.Prompts[0].Name = fmt.Sprint("greet", n)
			s.offer(next)
			eventually(t, "the change is listed", func() bool { return strings.HasSuffix(listing(sessions["stdio"]), fmt.Sprint("greet", n)) })
			return soon(h.resources) && soon(h.prompts)
		})
	}
	for name, c := range sessions {
		eventually(t, name+" lists the change", func() bool { return listing(c) == fmt.Sprint("mem://a mem://c mem://x/{id} greet", n) })
	}
	// What is not a URI is left out, and the rest is there.
	odd := everything()
	odd.Resources[0].URI = "://\x00"
	s.offer(odd)
	eventually(t, "the good is listed", func() bool { return listing(sessions["stream"]) == "mem://b mem://x/{id} greet" })
}

// soon reports whether something is told before the next change is made: the SDK
// tells of changes once none has come for 10 ms.
func soon(told <-chan struct{}) bool {
	select {
	case <-told:
		return true
	case <-time.After(200 * time.Millisecond):
		return false
	}
}

// SPEC D8: requests reach the peer with the params that the client sent, less
// what is the protocol's, and results come back as they are.
func TestD8RequestsPassAsTheyAre(t *testing.T) {
	s := newPeer(everything())
	w := served(t, s)
	f := w.front(t, httpfront.Settings{})
	session := f.initialize(t)
	p := w.stdio(t, maxLine)
	p.open(t)
	for method, c := range map[string]struct{ params, name string }{
		"resources/read":      {`"uri":"mem://x/5","later":1.0`, "mem://x/5"},
		"prompts/get":         {`"name":"greet","arguments":{"who":"<me>"},"later":12345678901234567890`, "greet"},
		"completion/complete": {`"ref":{"type":"ref/prompt","name":"greet","later":1.0},"argument":{"name":"who","value":"m"}`, ""},
	} {
		message := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + c.params + `,"_meta":{"progressToken":1,"a":1.0}}}`
		body, headers := newEra(method, c.name, c.params)
		body = strings.Replace(body, `"_meta":{`, `"_meta":{"progressToken":1,"a":1.0,`, 1)
		got := map[string]reply{"session": f.post(t, message, "Mcp-Session-Id", session), "newest": f.post(t, body, headers...)}
		p.write(t, message+"\n")
		got["stdio"] = p.next(t)
		for name, r := range got {
			var res struct {
				Asked      map[string]json.RawMessage
				N          json.RawMessage
				ResultType string
				CacheScope string
			}
			if err := json.Unmarshal(r.result, &res); err != nil {
				t.Fatalf("%s, %s: %s", method, name, r.raw)
			}
			if string(res.Asked["_meta"]) != `{"a":1.0}` || string(res.N) != "12345678901234567890" || (res.ResultType == "complete") != (name == "newest") {
				t.Errorf("%s, %s: %s", method, name, r.result)
			}
			if (res.CacheScope == "private") != (name == "newest" && method == "resources/read") {
				t.Errorf("%s, %s: cacheScope %q", method, name, res.CacheScope)
			}
			delete(res.Asked, "_meta")
			asked, _ := json.Marshal(res.Asked)
			var want map[string]json.RawMessage
			_ = json.Unmarshal([]byte("{"+c.params+"}"), &want)
			if wanted, _ := json.Marshal(want); string(asked) != string(wanted) {
				t.Errorf("%s, %s: asked %s; want %s", method, name, asked, wanted)
			}
		}
	}
}

// SPEC D8: the SDK's client gets what it asks for, in every era.
func TestD8TheSDKsClientReadsGetsAndCompletes(t *testing.T) {
	s := newPeer(everything())
	s.answer = func(_ context.Context, req peer.Request) (json.RawMessage, error) {
		switch req.Method {
		case "resources/read":
			return json.RawMessage(`{"contents":[{"uri":"mem://a","text":"A"}]}`), nil
		case "prompts/get":
			return json.RawMessage(`{"messages":[{"role":"user","content":{"type":"text","text":"P"}}]}`), nil
		case "completion/complete":
			return json.RawMessage(`{"completion":{"values":["me","mine"]}}`), nil
		}
		return json.RawMessage(`{}`), nil
	}
	for name, c := range eras(t, served(t, s), func() *mcp.ClientOptions { return nil }) {
		if got := read(t, c, "mem://a").Text; got != "A" {
			t.Errorf("%s: read %q", name, got)
		}
		got, err := c.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "greet", Arguments: map[string]string{"who": "me"}})
		if err != nil || len(got.Messages) != 1 {
			t.Errorf("%s: prompt %v, %v", name, got, err)
		}
		done, err := c.Complete(t.Context(), &mcp.CompleteParams{Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: "greet"}, Argument: mcp.CompleteParamsArgument{Name: "who", Value: "m"}})
		if err != nil || len(done.Completion.Values) != 2 {
			t.Errorf("%s: completion %v, %v", name, done, err)
		}
		if _, err := c.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "nobody"}); err == nil {
			t.Errorf("%s: a prompt that nobody has", name)
		}
	}
}

// SPEC D8: a peer's refusal is the client's; Orla's own trouble is told too.
func TestD8RequestsThatFail(t *testing.T) {
	s := newPeer(everything())
	s.answer = func(_ context.Context, req peer.Request) (json.RawMessage, error) {
		if strings.Contains(string(req.Params), "mem://a") {
			return nil, &jsonrpc.Error{Code: -32007, Message: "not now", Data: json.RawMessage(`{"n":1.0}`)}
		}
		if strings.Contains(string(req.Params), "mem://c") {
			return nil, &fault.Error{Code: fault.ExecutionFailed, Reason: "the server quoted a secret", Logged: "the server answered 500"}
		}
		return json.RawMessage(`[]`), nil
	}
	w := served(t, s)
	f := w.front(t, httpfront.Settings{})
	session := f.initialize(t)
	read := func(uri string) reply {
		return f.post(t, `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"`+uri+`"}}`, "Mcp-Session-Id", session)
	}
	if r := read("mem://a"); r.code != -32007 || r.text != "not now" || !strings.Contains(r.raw, `{"n":1.0}`) {
		t.Errorf("a refusal: %s", r.raw)
	}
	if r := read("mem://b"); r.code != -32603 || !strings.Contains(r.raw, `"tool_code":"execution_failed"`) {
		t.Errorf("no result: %s", r.raw)
	}
	if r := read("mem://c"); r.code != -32603 || r.text != "the server quoted a secret" || !strings.Contains(r.raw, `"tool_code":"execution_failed"`) {
		t.Errorf("a fault: %s", r.raw)
	}
	if lines := w.log.lines(t, "a request failed"); len(lines) == 0 || lines[len(lines)-1]["reason"] != "the server answered 500" { // SPEC I2
		t.Errorf("the log has %v", lines)
	}
	if r := read("orla://answers/none"); r.code != -32602 {
		t.Errorf("an answer that is not kept: %s", r.raw)
	}
}

// SPEC D8: updates reach those who subscribed, and the peer is told once who does.
func TestD8Subscriptions(t *testing.T) {
	s := newPeer(everything())
	s.answer = func(_ context.Context, req peer.Request) (json.RawMessage, error) {
		if strings.Contains(string(req.Params), "nobody") {
			return nil, &jsonrpc.Error{Code: -32602, Message: "not found"}
		}
		return json.RawMessage(`{}`), nil
	}
	w := served(t, s)
	f := w.front(t, httpfront.Settings{})
	heard := make(chan string, 100)
	options := func(name string) *mcp.ClientOptions {
		return &mcp.ClientOptions{ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) { heard <- name + " " + r.Params.URI }}
	}
	one := f.connect(t, "2025-11-25", options("one"))
	two := connect(t, stdioTransport(t, w), "2025-11-25", options("two"))
	for _, c := range []*mcp.ClientSession{one, two} {
		if err := c.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "mem://a"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := one.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "nobody://a"}); err == nil {
		t.Error("subscribed to what nobody has")
	}
	s.updated <- "mem://a"
	got := []string{within(t, heard, "update"), within(t, heard, "update")}
	slices.Sort(got)
	if !slices.Equal(got, []string{"one mem://a", "two mem://a"}) {
		t.Errorf("heard %q", got)
	}
	s.asked("resources/unsubscribe")
	if err := one.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: "mem://a"}); err != nil {
		t.Fatal(err)
	}
	if asked := s.asked("resources/unsubscribe"); len(asked) != 0 {
		t.Errorf("the peer was told %q while there is another", asked)
	}
	s.updated <- "mem://b"
	s.updated <- "mem://a"
	if got := within(t, heard, "update"); got != "two mem://a" {
		t.Errorf("heard %q", got)
	}
	if err := two.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: "mem://a"}); err != nil {
		t.Fatal(err)
	}
	if asked := s.asked("resources/unsubscribe"); len(asked) != 1 {
		t.Errorf("the peer was told %q", asked)
	}
}

// SPEC G2: in the stateless era a subscription is a request.
func TestG2SubscriptionsOfTheNewestEra(t *testing.T) {
	s := newPeer(everything())
	f := served(t, s).front(t, httpfront.Settings{})
	body, headers := newEra("subscriptions/listen", "", `"notifications":{"resourceSubscriptions":["mem://a"]}`)
	res := f.open(t, http.MethodPost, "/mcp", strings.NewReader(body), headers...)
	stream := &rawSSE{f: f, scan: bufio.NewScanner(res.body)}
	if got := stream.data(t); !strings.Contains(got, "acknowledged") || !strings.Contains(got, "mem://a") {
		t.Fatalf("got %s", got)
	}
	s.updated <- "mem://a"
	if got := stream.data(t); !strings.Contains(got, "notifications/resources/updated") {
		t.Errorf("got %s", got)
	}
	_ = res.body.Close()
	eventually(t, "the peer is told", func() bool { return len(s.asked("resources/unsubscribe")) == 1 })
}

// SPEC D8: peers know the most verbose level that any session wants.
func TestD8LevelsOfLogMessages(t *testing.T) {
	s := newPeer(everything())
	s.answer = func(context.Context, peer.Request) (json.RawMessage, error) { return json.RawMessage(`{}`), nil }
	f := served(t, s).front(t, httpfront.Settings{})
	a, b := f.initialize(t), f.initialize(t)
	set := func(session, level string) {
		t.Helper()
		if r := f.post(t, `{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"`+level+`"}}`, "Mcp-Session-Id", session); r.failed {
			t.Errorf("set %s: %s", level, r.raw)
		}
	}
	told := func(want ...string) {
		t.Helper()
		var got []string
		for _, r := range s.asked("logging/setLevel") {
			_, level, _ := strings.Cut(r, `"level":"`)
			got = append(got, strings.TrimSuffix(level, `"}`))
		}
		if !slices.Equal(got, want) {
			t.Errorf("told %q; want %q", got, want)
		}
	}
	set(a, "warning")
	told("warning")
	set(b, "error")
	told()
	set(b, "info")
	told("info")
	set(b, "emergency")
	told("warning")
	f.send(t, http.MethodDelete, "/mcp", "", "Mcp-Session-Id", a)
	eventually(t, "a has gone", func() bool {
		set(b, "alert")
		return len(s.asked("logging/setLevel")) == 1
	})
	body, headers := newEra("tools/call", "echo", `"name":"echo"`)
	f.post(t, strings.Replace(body, `"_meta":{`, `"_meta":{"io.modelcontextprotocol/logLevel":"debug",`, 1), headers...)
	told("debug")
}

// SPEC D7a: who asks while something is not known yet waits for it.
func TestD7aTheFirstListWaits(t *testing.T) {
	for name, c := range map[string]struct{ message, part string }{
		"tools":     {`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `"name":"echo"`},
		"prompts":   {`{"jsonrpc":"2.0","id":1,"method":"prompts/list"}`, `"name":"greet"`},
		"resources": {`{"jsonrpc":"2.0","id":1,"method":"resources/list"}`, `"uri":"mem://a"`},
		"templates": {`{"jsonrpc":"2.0","id":1,"method":"resources/templates/list"}`, `mem://x/{id}`},
		"a call":    {call(1, "echo"), "from echo"},
		"a read":    {`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"mem://a"}}`, `"asked"`},
		"a prompt":  {`{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"greet"}}`, `"asked"`},
	} {
		s := newPeer(peer.Offers{})
		w := served(t, s)
		f := w.front(t, httpfront.Settings{})
		session := f.initialize(t)
		got := make(chan reply, 1)
		go func() { got <- f.post(t, c.message, "Mcp-Session-Id", session) }()
		go func() {
			offers := everything()
			offers.Known = false
			s.offer(offers)
			for c := w.offered.Catalog(); len(c.Prompts) == 0 && c.Wait(t.Context()) == nil; c = w.offered.Catalog() {
			}
			offers.Known = true
			s.offer(offers)
		}()
		if r := within(t, got, "answer"); !strings.Contains(r.raw, c.part) {
			t.Errorf("%s: %s", name, r.raw)
		}
		if r := f.post(t, c.message, "Mcp-Session-Id", session); !strings.Contains(r.raw, c.part) {
			t.Errorf("%s, again: %s", name, r.raw)
		}
	}
}

// What is known meanwhile works; what is not may yet be. A client that does not
// wait is not waited for.
func TestD7aWhatIsNotKnownYet(t *testing.T) {
	s := newPeer(peer.Offers{Tools: []*mcp.Tool{tool("early")}})
	w := served(t, s)
	p := w.stdio(t, maxLine)
	p.open(t)
	p.write(t, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`+"\n"+call(2, "echo")+"\n"+call(3, "early")+"\n")
	for i := range 10 { // long enough for an answer that does not wait
		if r := p.next(t); string(r.id) != fmt.Sprint(3+i) || !strings.Contains(r.raw, "from early") {
			t.Fatalf("what is known: %s", r.raw)
		}
		p.write(t, call(4+i, "early")+"\n")
	}
	p.next(t)
	p.write(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`+"\n")
	p.write(t, call(20, "early")+"\n")
	if r := p.next(t); string(r.id) != "20" { // what was cancelled has no answer
		t.Errorf("after the cancelled list: %s", r.raw)
	}
	offers := everything()
	offers.Known = false
	s.offer(offers)
	for c := w.offered.Catalog(); len(c.Prompts) == 0 && c.Wait(t.Context()) == nil; c = w.offered.Catalog() {
	}
	offers.Known = true
	s.offer(offers)
	for r := p.next(t); ; r = p.next(t) {
		if r.result != nil || r.failed {
			if string(r.id) != "2" || !strings.Contains(r.raw, "from echo") {
				t.Errorf("what was not known: %s", r.raw)
			}
			break
		}
	}
}

// What a peer says of how long its resource may be kept stands.
func TestD8APeersCacheability(t *testing.T) {
	s := newPeer(everything())
	s.answer = func(context.Context, peer.Request) (json.RawMessage, error) {
		return json.RawMessage(`{"contents":[],"ttlMs":5,"cacheScope":"public","resultType":"later"}`), nil
	}
	f := served(t, s).front(t, httpfront.Settings{})
	body, headers := newEra("resources/read", "mem://a", `"uri":"mem://a"`)
	r := f.post(t, body, headers...)
	for _, part := range []string{`"ttlMs":5`, `"cacheScope":"public"`, `"resultType":"later"`, `"resultType"`, `"ttlMs"`} {
		if strings.Count(r.raw, part) != 1 {
			t.Errorf("%s is there %d times: %s", part, strings.Count(r.raw, part), r.raw)
		}
	}
}
