package mcpbridge_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// round is a request of the stateless era whose client can be asked anything.
func round(params string) (body string, headers []string) {
	body, headers = newEra("tools/call", "echo", params)
	return strings.Replace(body, `clientCapabilities":{}`, `clientCapabilities":{"sampling":{},"elicitation":{},"roots":{}}`, 1), headers
}

func (f *front) round(t testing.TB, more string, headers ...string) reply {
	t.Helper()
	body, all := round(`"name":"echo","arguments":{"a":1}` + more)
	return f.post(t, body, append(all, headers...)...)
}

// required reads an input_required result.
func required(t testing.TB, r reply) (state string, questions map[string]struct {
	Method string
	Params json.RawMessage
},
) {
	t.Helper()
	var res struct {
		ResultType    string
		RequestState  string
		InputRequests map[string]struct {
			Method string
			Params json.RawMessage
		}
		Meta map[string]any `json:"_meta"`
	}
	if err := json.Unmarshal(r.result, &res); err != nil || res.ResultType != "input_required" || res.RequestState == "" || res.Meta[mcp.MetaKeyServerInfo] == nil {
		t.Fatalf("no input is required: %s", r.raw)
	}
	return res.RequestState, res.InputRequests
}

func goOn(state, answers string) string {
	return `,"requestState":"` + state + `","inputResponses":{` + answers + `}`
}

// SPEC D8, G2: in the stateless era questions reach the client as well, by the
// SDK's own means, for all that can ask.
func TestD8QuestionsInTheStatelessEra(t *testing.T) {
	asking := func(ctx context.Context, c peer.Client) (string, error) {
		var said []string
		for _, q := range []struct{ method, params string }{
			{"sampling/createMessage", `{"systemPrompt":"S","maxTokens":5,"messages":[{"role":"user","content":{"type":"text","text":"hi"}}]}`},
			{"elicitation/create", `{"message":"M","requestedSchema":{"type":"object","properties":{"said":{"type":"string"}}}}`},
			{"roots/list", ``},
		} {
			raw, err := c.Ask(ctx, q.method, json.RawMessage(q.params))
			if err != nil {
				return "", err
			}
			said = append(said, string(raw))
		}
		return strings.Join(said, "\n"), nil
	}
	check := func(name, got string) {
		t.Helper()
		for _, want := range []string{`sampled S`, `"said":"M"`, `"roots":`} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %s; want %s", name, got, want)
			}
		}
	}
	w := talking(t, asking)
	for name, s := range map[string]*mcp.ClientSession{
		"http": w.front(t, httpfront.Settings{}).connect(t, newest, asks()), "stdio": connect(t, stdioTransport(t, w), newest, asks()),
	} {
		check(name, textOf(t, ask(t, s)))
	}
	s := newPeer(everything())
	s.answer = func(ctx context.Context, req peer.Request) (json.RawMessage, error) {
		said, err := asking(ctx, req.Client)
		quoted, _ := json.Marshal(said)
		if req.Method == "prompts/get" {
			return json.RawMessage(`{"messages":[{"role":"user","content":{"type":"text","text":` + string(quoted) + `}}]}`), err
		}
		return json.RawMessage(`{"contents":[{"uri":"mem://a","text":` + string(quoted) + `}]}`), err
	}
	c := served(t, s).front(t, httpfront.Settings{}).connect(t, newest, asks())
	check("read", read(t, c, "mem://a").Text)
	prompt, err := c.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "greet"})
	if err != nil {
		t.Fatal(err)
	}
	check("prompt", prompt.Messages[0].Content.(*mcp.TextContent).Text)
}

// What is asked and answered is not decoded; questions at one time are asked at
// one time; the second request gets what belongs to it.
func TestD8AConversation(t *testing.T) {
	const question = `{"messages":[],"n":12345678901234567890,"later":[1.0]}`
	const answer = `{"role":"assistant","content":[{"type":"hologram","n":9007199254740993}],"model":"m","later":{"x":1E+2}}`
	w := talking(t, func(ctx context.Context, c peer.Client) (string, error) {
		c.Notify(ctx, "notifications/progress", json.RawMessage(`{"progress":1}`))
		var both sync.WaitGroup
		said := make([]json.RawMessage, 2)
		for i := range said {
			both.Go(func() { said[i], _ = c.Ask(ctx, "sampling/createMessage", json.RawMessage(question)) })
		}
		both.Wait()
		c.Notify(ctx, "notifications/progress", json.RawMessage(`{"progress":2}`))
		return string(said[0]) + string(said[1]), nil
	})
	f := w.front(t, httpfront.Settings{})
	r := f.round(t, "")
	state, questions := required(t, r)
	for len(questions) < 2 { // the other one was a moment later
		state, questions = required(t, f.round(t, goOn(state, "")))
	}
	var answers []string
	for id, q := range questions {
		if q.Method != "sampling/createMessage" || string(q.Params) != question {
			t.Errorf("asked %s %s", q.Method, q.Params)
		}
		answers = append(answers, fmt.Sprintf("%q:%s", id, answer))
	}
	more := goOn(state, answers[0])
	state, questions = required(t, f.round(t, more)) // one is still open
	if len(questions) != 1 {
		t.Errorf("%d questions are open; want 1", len(questions))
	}
	body, headers := round(`"name":"echo","arguments":{"a":1}` + goOn(state, answers[1]))
	r = f.post(t, strings.Replace(body, `"_meta":{`, `"_meta":{"progressToken":"second",`, 1), headers...)
	quoted, _ := json.Marshal(answer + answer)
	if !strings.Contains(r.raw, string(quoted)) || !strings.Contains(r.raw, `"resultType":"complete"`) {
		t.Errorf("the answer: %s", r.raw)
	}
	if at := strings.Index(r.raw, `{"progressToken":"second","progress":2}`); at < 0 || at > strings.Index(r.raw, `"result"`) {
		t.Errorf("progress: %s", r.raw)
	}
	if n := len(w.log.calls(t, 1)); n != 1 {
		t.Errorf("%d lines in the log; want 1 for the one call", n)
	}
}

// A state is good for one request, of the caller and the call that it belongs to.
func TestAConversationIsItsOwners(t *testing.T) {
	w := talking(t, func(ctx context.Context, c peer.Client) (string, error) {
		raw, err := c.Ask(ctx, "roots/list", nil)
		return string(raw), err
	})
	f := w.front(t, httpfront.Settings{Verify: tokens})
	ann, bob := []string{"Authorization", "Bearer ann"}, []string{"Authorization", "Bearer bob"}
	state, questions := required(t, f.round(t, "", ann...))
	var answers string
	for id := range questions {
		answers = fmt.Sprintf(`%q:{"roots":[]}`, id)
	}
	refused := func(name string, r reply) {
		t.Helper()
		if !r.failed || r.code != -32602 {
			t.Errorf("%s: %s", name, r.raw)
		}
	}
	refused("invented", f.round(t, goOn("orla:INVENTED", answers), ann...))
	refused("another caller", f.round(t, goOn(state, answers), bob...))
	body, headers := round(`"name":"echo","arguments":{"a":2}` + goOn(state, answers))
	refused("other arguments", f.post(t, body, append(headers, ann...)...))
	if r := f.round(t, goOn(state, answers), ann...); !strings.Contains(r.raw, `{\"roots\":[]}`) {
		t.Errorf("the owner: %s", r.raw)
	}
	refused("again", f.round(t, goOn(state, answers), ann...))
}

// Who does not come back, or leaves, has given up.
func TestAConversationThatIsGivenUp(t *testing.T) {
	ended, answered := make(chan error, 10), make(chan struct{}, 10)
	asking := func(ctx context.Context, c peer.Client) (string, error) {
		_, err := c.Ask(ctx, "roots/list", nil)
		answered <- struct{}{}
		<-ctx.Done()
		ended <- err
		return "", err
	}
	synctest.Test(t, func(t *testing.T) {
		w := talking(t, asking)
		opts := asks()
		opts.MultiRoundTrip = &mcp.MultiRoundTripOptions{Disabled: true}
		s := connect(t, stdioTransport(t, w), newest, opts)
		res := ask(t, s)
		if !res.NeedsInput() || len(ended) > 0 {
			t.Fatalf("got %v", res)
		}
		time.Sleep(10 * time.Minute) // in a bubble
		if len(ended) != 1 || !isRefusal(<-ended) {
			t.Error("the call goes on without its client")
		}
		<-answered
	})
	w := talking(t, asking)
	f := w.front(t, httpfront.Settings{})
	state, questions := required(t, f.round(t, ""))
	var answers string
	for id := range questions {
		answers = fmt.Sprintf(`%q:{"roots":[]}`, id)
	}
	body, headers := round(`"name":"echo","arguments":{"a":1}` + goOn(state, answers))
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, f.url+"/mcp", strings.NewReader(body))
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set("Content-Type", "application/json")
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		if res, err := f.client.Do(req); err == nil {
			_ = res.Body.Close()
		}
	}()
	within(t, answered, "answer to the question")
	leave()
	within(t, left, "end of the request")
	if err := within(t, ended, "end of the call"); err != nil {
		t.Errorf("the question has no answer: %v", err)
	}
}

func isRefusal(err error) bool {
	_, ok := errors.AsType[*jsonrpc.Error](err)
	return ok
}

// Clients that never come back do not fill the memory.
func TestConversationsAreBounded(t *testing.T) {
	w := talking(t, func(ctx context.Context, c peer.Client) (string, error) {
		_, err := c.Ask(ctx, "roots/list", nil)
		if err == nil {
			return "answered", nil
		}
		return err.Error(), nil
	})
	f := w.front(t, httpfront.Settings{})
	var all sync.WaitGroup
	replies := make([]reply, 256)
	for i := range replies {
		all.Go(func() { replies[i] = f.round(t, "") })
	}
	all.Wait()
	for _, r := range replies {
		required(t, r)
	}
	if r := f.round(t, ""); !strings.Contains(r.raw, "too many calls wait") {
		t.Errorf("one more: %s", r.raw)
	}
}

// A question has the name that its peer gave it, unless another has it; it may be
// answered before it is asked, and something that is not an answer is not taken for one.
func TestD8QuestionsHaveNames(t *testing.T) {
	const named = `{"_meta":{"orla/name":"user_name"},"message":"?"}`
	w := talking(t, func(ctx context.Context, c peer.Client) (string, error) {
		var both sync.WaitGroup
		said := make([]json.RawMessage, 2)
		for i := range said {
			both.Go(func() { said[i], _ = c.Ask(ctx, "elicitation/create", json.RawMessage(named)) })
		}
		both.Wait()
		return string(said[0]) + string(said[1]), nil
	})
	f := w.front(t, httpfront.Settings{})
	names := func(questions map[string]struct {
		Method string
		Params json.RawMessage
	},
	) string {
		return strings.Join(slices.Sorted(maps.Keys(questions)), " ")
	}
	state, questions := required(t, f.round(t, ""))
	for len(questions) < 2 { // the other one was a moment later
		state, questions = required(t, f.round(t, goOn(state, "")))
	}
	if got := names(questions); got != "question-2 user_name" && got != "question-1 user_name" {
		t.Fatalf("asked %s", got)
	}
	state, questions = required(t, f.round(t, goOn(state, `"user_name":5,"question-1":{"n":1},"question-2":{"n":1}`)))
	if got := names(questions); got != "user_name" {
		t.Fatalf("asked %s after an answer that is none", got)
	}
	if r := f.round(t, goOn(state, `"user_name":{"n":2},"other":{}`)); !strings.Contains(r.raw, `{\"n\":2}`) {
		t.Errorf("the answer: %s", r.raw)
	}

	early := `,"inputResponses":{"user_name":{"n":3},"other":null}`
	state, questions = required(t, f.round(t, early)) // one of the two is answered
	if len(questions) != 1 {
		t.Fatalf("asked %s", names(questions))
	}
	for id := range questions {
		if r := f.round(t, goOn(state, fmt.Sprintf(`%q:{"n":4}`, id))); !strings.Contains(r.raw, `{\"n\":3}`) || !strings.Contains(r.raw, `{\"n\":4}`) {
			t.Errorf("the answer: %s", r.raw)
		}
	}
}

// What a peer asks at once is asked at once.
func TestD8QuestionsOfOneMomentGoTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := talking(t, func(ctx context.Context, c peer.Client) (string, error) {
			var all sync.WaitGroup
			for i := range 3 {
				all.Go(func() {
					time.Sleep(time.Duration(i) * time.Millisecond) // in a bubble
					_, _ = c.Ask(ctx, "roots/list", nil)
				})
			}
			all.Wait()
			return "", nil
		})
		opts := asks()
		opts.MultiRoundTrip = &mcp.MultiRoundTripOptions{Disabled: true}
		if res := ask(t, connect(t, stdioTransport(t, w), newest, opts)); !res.NeedsInput() || len(res.InputRequests) != 3 {
			t.Errorf("asked %d of 3 questions", len(res.InputRequests))
		}
	})
}

// SPEC G2: a client of the stateless era whose call fails for want of a capability
// is told which, whichever way its call went. One that a peer can do without is not missed.
func TestG2AMissingCapabilityIsNamed(t *testing.T) {
	copes := false
	w := talking(t, func(ctx context.Context, c peer.Client) (string, error) {
		_, err := c.Ask(ctx, "sampling/createMessage", json.RawMessage(`{}`))
		if copes {
			return "copes", nil
		}
		return "", err
	})
	f := w.front(t, httpfront.Settings{})
	body, headers := newEra("tools/call", "echo", `"name":"echo"`)
	for _, copes = range []bool{true, false} {
		for _, way := range []struct{ name, capabilities string }{{"the SDK", `{}`}, {"plain", `{}`}, {"a conversation", `{"roots":{}}`}} {
			r := f.post(t, strings.Replace(body, `clientCapabilities":{}`, `clientCapabilities":`+way.capabilities, 1), headers...)
			switch {
			case copes && (r.failed || !strings.Contains(r.raw, "copes")):
				t.Errorf("%s: a peer that copes: %d %s", way.name, r.status, r.raw)
			case !copes && (r.status != http.StatusBadRequest || r.code != -32021 || !strings.Contains(r.raw, `"requiredCapabilities":{"sampling":{}}`)):
				t.Errorf("%s: %d %s", way.name, r.status, r.raw)
			}
		}
	}
	if r := f.post(t, call(1, "echo"), "Mcp-Session-Id", f.initialize(t)); r.status != http.StatusOK || r.code != -32601 {
		t.Errorf("in a session: %d %s", r.status, r.raw)
	}
}

// An error of the protocol has the same status, whatever else the request says.
func TestG2StatusOfAPeersError(t *testing.T) {
	w := newWorld(t)
	w.set(tool("echo"))
	var code int64
	w.raw("echo", func(context.Context, peer.Call) (json.RawMessage, error) {
		if code == 0 {
			return json.RawMessage(`{"content":[]}`), nil
		}
		return nil, &jsonrpc.Error{Code: code, Message: "no"}
	})
	f := w.front(t, httpfront.Settings{})
	body, headers := newEra("tools/call", "echo", `"name":"echo"`)
	f.post(t, body, headers...) // from here on it is plain
	for code = range map[int64]bool{-32602: true, -32601: true, -32603: true, -1: true} {
		plain := f.post(t, body, headers...)
		sdk := f.post(t, strings.Replace(body, `"_meta":{`, `"_meta":{"x":1,`, 1), headers...)
		if plain.status != sdk.status || plain.code != code || sdk.code != code {
			t.Errorf("%d: plain %d %s; with more %d %s", code, plain.status, plain.raw, sdk.status, sdk.raw)
		}
	}
}

// One caller whose calls all wait for its answers leaves room for those of another.
func TestN2ConversationsAreSharedByCaller(t *testing.T) {
	needs.Time(t, "waits for seconds")
	w := talking(t, func(ctx context.Context, c peer.Client) (string, error) {
		_, err := c.Ask(ctx, "roots/list", nil)
		return fmt.Sprint(err), nil
	})
	f := w.front(t, httpfront.Settings{Verify: tokens})
	refused := func(name string) bool {
		return strings.Contains(f.round(t, "", bearer(name)...).raw, "too many calls wait")
	}
	n := 0
	for ; n < 512 && !refused("ann"); n++ {
		continue
	}
	if n == 512 || n < 64 {
		t.Errorf("one caller has %d calls that wait for it", n)
	}
	for i := range 64 {
		if refused("bob") {
			t.Fatalf("another caller has only %d beside it", i)
		}
	}
}

// SPEC S2, N2: a request whose client is thinking stays in memory, and so it stays counted
// among the bytes of requests until it is answered.
func TestS2ARequestWhoseClientThinksIsCounted(t *testing.T) {
	w := talking(t, func(ctx context.Context, c peer.Client) (string, error) {
		_, err := c.Ask(ctx, "elicitation/create", json.RawMessage(`{"message":"M"}`))
		return fmt.Sprint(err), nil
	})
	f := w.front(t, httpfront.Settings{Verify: tokens})
	const size = 4 << 20
	more := `,"arguments":{"a":"` + strings.Repeat("x", size) + `"}`
	call := func(name, more string) reply {
		body, headers := round(`"name":"echo"` + more)
		return f.post(t, body, append(headers, bearer(name)...)...)
	}
	type thinking struct{ state, answers string }
	var waits []thinking
	for range 64 {
		r := call("ann", more)
		if !strings.Contains(r.raw, "input_required") {
			break
		}
		state, questions := required(t, r)
		for name := range questions {
			waits = append(waits, thinking{state, `"` + name + `":{"action":"decline"}`})
		}
	}
	if n := len(waits); n < 8 || n*size > 128<<20 {
		t.Fatalf("%d requests of %d MiB wait for their client, want at most 128 MiB", n, size>>20)
	}
	if r := call("bob", more); !strings.Contains(r.raw, "input_required") {
		t.Errorf("another caller's request: %.200s", r.raw)
	}
	for _, one := range waits {
		if r := call("ann", more+goOn(one.state, one.answers)); strings.Contains(r.raw, "input_required") || r.failed {
			t.Fatalf("the answer: %.200s", r.raw)
		}
	}
	eventually(t, "what was answered is not counted", func() bool { return strings.Contains(call("ann", more).raw, "input_required") })
}
