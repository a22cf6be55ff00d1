package mcpbridge_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
	"github.com/orla-project/orla/supervisor"
)

// talking makes a world whose tool echo talks: it does what talk says, with the
// client that called.
func talking(t *testing.T, talk func(ctx context.Context, c peer.Client) (string, error)) *world {
	t.Helper()
	w := newWorld(t)
	w.offer(func(c *supervisor.Catalog) { c.Talks = map[string]bool{"echo": true} })
	w.set(tool("echo"))
	w.raw("echo", func(ctx context.Context, call peer.Call) (json.RawMessage, error) {
		said, err := talk(ctx, call.Client)
		if err != nil {
			return nil, err
		}
		return json.Marshal(text(said))
	})
	return w
}

// withToken is a call that wants progress.
func withToken(id any, token string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%v,"method":"tools/call","params":{"name":"echo","arguments":{},"_meta":{"progressToken":%s}}}`, id, token)
}

// SPEC D6, G5b: progress and log messages reach the client that asked, as they
// are but for the token, and before the answer.
func TestD6ProgressAndMessagesComeBeforeTheAnswer(t *testing.T) {
	w := talking(t, func(ctx context.Context, c peer.Client) (string, error) {
		for i := range 3 {
			c.Notify(ctx, "notifications/progress", json.RawMessage(fmt.Sprintf(`{"progressToken":7,"progress":%d.0,"big":12345678901234567890}`, i)))
		}
		c.Notify(ctx, "notifications/message", json.RawMessage(`{"level":"info","data":"quiet"}`))
		c.Notify(ctx, "notifications/message", json.RawMessage(`{"level":"warning","data":{"n":1.0},"later":true}`))
		c.Notify(ctx, "notifications/message", json.RawMessage(`{"level":"loud","data":0}`))
		c.Notify(ctx, "notifications/other", json.RawMessage(`{}`))
		return fmt.Sprint(c.WantsProgress()), nil
	})
	const setLevel = `{"jsonrpc":"2.0","id":"l","method":"logging/setLevel","params":{"level":"warning"}}`
	f := w.front(t, httpfront.Settings{})
	session := f.initialize(t)
	f.post(t, setLevel, "Mcp-Session-Id", session)
	body, headers := newEra("tools/call", "echo", `"name":"echo"`)
	body = strings.Replace(body, `"_meta":{`, `"_meta":{"progressToken":"t/1","io.modelcontextprotocol/logLevel":"warning",`, 1)
	p := w.stdio(t, maxLine)
	p.open(t)
	p.write(t, setLevel+"\n")
	p.next(t)
	p.write(t, withToken(5, `"t/1"`)+"\n")
	var lines strings.Builder
	for r := p.next(t); ; r = p.next(t) {
		lines.WriteString(r.raw + "\n")
		if r.result != nil {
			break
		}
	}
	for name, got := range map[string]string{
		"session": f.post(t, withToken(5, `"t/1"`), "Mcp-Session-Id", session).raw,
		"newest":  f.post(t, body, headers...).raw,
		"stdio":   lines.String(),
	} {
		at := 0
		for _, part := range []string{
			`"params":{"progressToken":"t/1","progress":0.0,"big":12345678901234567890}`, `"progress":1.0`, `"progress":2.0`,
			`"params":{"level":"warning","data":{"n":1.0},"later":true}`, `"text":"true"`,
		} {
			i := strings.Index(got[at:], part)
			if i < 0 {
				t.Fatalf("%s: no %s behind %d in %s", name, part, at, got)
			}
			at += i
		}
		if strings.Contains(got, "quiet") || strings.Contains(got, "loud") || strings.Contains(got, "other") {
			t.Errorf("%s: what nobody asked for: %s", name, got)
		}
	}
	// Without a token, and without a level, nothing comes.
	other := f.initialize(t)
	if got := f.post(t, strings.Replace(call(1, "echo"), `"arguments"`, `"_meta":{"x":1},"arguments"`, 1), "Mcp-Session-Id", other).raw; strings.Contains(got, "notifications/") || !strings.Contains(got, "false") {
		t.Errorf("unasked: %s", got)
	}
}

// asks is what a client of the SDK answers to a server's questions.
func asks() *mcp.ClientOptions {
	return &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{RootsV2: &mcp.RootCapabilities{}}, //nolint:staticcheck // deprecated by the newest era only
		CreateMessageHandler: func(_ context.Context, r *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) { //nolint:staticcheck // deprecated by the newest era only
			return &mcp.CreateMessageResult{Model: "m", Role: "assistant", Content: &mcp.TextContent{Text: "sampled " + r.Params.SystemPrompt}}, nil //nolint:staticcheck // deprecated by the newest era only
		},
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			if r.Params.Message == "refuse" {
				return nil, &jsonrpc.Error{Code: -32001, Message: "no such thing"}
			}
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"said": r.Params.Message}}, nil
		},
	}
}

// SPEC D8: what a peer asks reaches the client, and its answer the peer.
func TestD8QuestionsReachTheClient(t *testing.T) {
	w := talking(t, func(ctx context.Context, c peer.Client) (string, error) {
		var said []string
		for _, q := range []struct{ method, params string }{
			{"sampling/createMessage", `{"systemPrompt":"S","maxTokens":5,"messages":[{"role":"user","content":{"type":"text","text":"hi"}}]}`},
			{"elicitation/create", `{"message":"M","requestedSchema":{"type":"object","properties":{"said":{"type":"string"}}}}`},
			{"elicitation/create", `{"message":"refuse","requestedSchema":{"type":"object","properties":{}}}`},
			{"roots/list", ``},
		} {
			raw, err := c.Ask(ctx, q.method, json.RawMessage(q.params))
			if refused, ok := errors.AsType[*jsonrpc.Error](err); ok {
				raw = json.RawMessage(fmt.Sprintf("%d %s", refused.Code, refused.Message))
			} else if err != nil {
				return "", err
			}
			said = append(said, string(raw))
		}
		return strings.Join(said, "\n"), nil
	})
	f := w.front(t, httpfront.Settings{})
	for name, s := range map[string]*mcp.ClientSession{
		"stream": f.connect(t, "2025-11-25", asks()), "older": f.connect(t, "2025-03-26", asks()),
		"sse": f.connectSSE(t, asks()), "stdio": connect(t, stdioTransport(t, w), "2025-06-18", asks()),
	} {
		res := ask(t, s)
		got := strings.Split(textOf(t, res), "\n")
		for i, want := range []string{`"text":"sampled S"`, `"content":{"said":"M"}`, "-32001 no such thing", `"roots":`} {
			if i >= len(got) || !strings.Contains(got[i], want) {
				t.Errorf("%s: question %d: %q; want %s", name, i, got, want)
			}
		}
	}
}

// SPEC D8: the client's answer is not decoded on its way.
func TestD8AnAnswerKeepsItsBytes(t *testing.T) {
	const question = `{"messages":[],"n":12345678901234567890,"later":[1.0]}`
	const reply = `{"role":"assistant","content":[{"type":"hologram","n":9007199254740993}],"model":"m","later":{"x":1E+2}}`
	w := talking(t, func(ctx context.Context, c peer.Client) (string, error) {
		raw, err := c.Ask(ctx, "sampling/createMessage", json.RawMessage(question))
		return string(raw), err
	})
	opening := strings.Replace(initialize("2025-11-25"), `"capabilities":{}`, `"capabilities":{"sampling":{}}`, 1)
	f := w.front(t, httpfront.Settings{})
	session := f.post(t, opening).header.Get("Mcp-Session-Id")
	stream := f.open(t, http.MethodPost, "/mcp", strings.NewReader(call(1, "echo")), "Mcp-Session-Id", session)
	events := bufio.NewScanner(stream.body)
	data := func() string {
		for events.Scan() {
			if d, ok := strings.CutPrefix(events.Text(), "data: "); ok {
				return d
			}
		}
		t.Fatal("the stream has ended")
		return ""
	}
	check := func(name, asked string, answer func(string), next func() string) {
		var msg struct {
			ID     json.RawMessage
			Params json.RawMessage
		}
		if err := json.Unmarshal([]byte(asked), &msg); err != nil || string(msg.Params) != question {
			t.Fatalf("%s: asked %s", name, asked)
		}
		answer(`{"jsonrpc":"2.0","id":` + string(msg.ID) + `,"result":` + reply + `}`)
		quoted, _ := json.Marshal(reply)
		if got := next(); !strings.Contains(got, string(quoted)) {
			t.Errorf("%s: got %s", name, got)
		}
	}
	check("http", data(), func(m string) {
		if r := f.post(t, m, "Mcp-Session-Id", session); r.status != http.StatusAccepted {
			t.Errorf("answer: %d %s", r.status, r.raw)
		}
	}, data)
	p := w.stdio(t, maxLine)
	p.write(t, opening+"\n")
	p.next(t)
	line := func() string { return p.next(t).raw }
	p.write(t, call(1, "echo")+"\n")
	check("stdio", line(), func(m string) { p.write(t, m+"\n") }, line)
}

// SPEC D8: a client that cannot be asked is not, and the peer is told why.
func TestD8WhoCannotBeAsked(t *testing.T) {
	w := talking(t, func(ctx context.Context, c peer.Client) (string, error) {
		var said []string
		for _, method := range []string{"sampling/createMessage", "elicitation/create", "roots/list", "tools/list"} {
			_, err := c.Ask(ctx, method, json.RawMessage(`{"messages":[]}`))
			refused, ok := errors.AsType[*jsonrpc.Error](err)
			if !ok {
				return "", fmt.Errorf("%s: %w", method, err)
			}
			said = append(said, fmt.Sprint(refused.Code, " ", refused.Message))
		}
		return strings.Join(said, "\n"), nil
	})
	f := w.front(t, httpfront.Settings{})
	session := f.initialize(t)
	for name, got := range map[string]string{
		"session":    f.post(t, withToken(1, "1"), "Mcp-Session-Id", session).raw,
		"no session": f.post(t, call(1, "echo")).raw,
	} {
		for _, part := range []string{"-32601 the client does not take sampling/createMessage", "declared elicitation", "declared roots", "-32601 tools/list"} {
			if !strings.Contains(got, part) {
				t.Errorf("%s: no %q in %s", name, part, got)
			}
		}
	}
}

// SPEC G1: at the end of input a question that nobody will answer is refused,
// so that the call it belongs to is answered.
func TestG1QuestionsAtTheEndOfInput(t *testing.T) {
	began := make(chan struct{}, 2)
	w := talking(t, func(ctx context.Context, c peer.Client) (string, error) {
		began <- struct{}{}
		for range 2 {
			if _, err := c.Ask(ctx, "roots/list", nil); err == nil {
				return "answered", nil
			}
		}
		return "refused", nil
	})
	p := w.stdio(t, maxLine)
	p.write(t, strings.Replace(initialize("2025-11-25"), `"capabilities":{}`, `"capabilities":{"roots":{}}`, 1)+"\n")
	p.next(t)
	p.write(t, call(1, "echo")+"\n"+call(2, "echo")+"\n")
	within(t, began, "call")
	within(t, began, "call")
	_ = p.in.Close()
	got := ids(p.rest(t))
	for _, id := range []string{"1", "2"} {
		if r := got[id]; !strings.Contains(r.raw, "refused") && !strings.Contains(r.raw, "roots/list") {
			t.Errorf("call %s: %s", id, r.raw)
		}
	}
	if err := within(t, p.ended, "end"); err != nil {
		t.Errorf("ServeStdio: %v", err)
	}
}

// After the answer the client is left alone; a question that is open is given up.
func TestD6NothingIsSaidAfterTheAnswer(t *testing.T) {
	late := make(chan peer.Client, 10)
	gaveUp := make(chan error, 10)
	w := talking(t, func(_ context.Context, c peer.Client) (string, error) {
		late <- c
		asked := make(chan struct{})
		go func() {
			close(asked)
			_, err := c.Ask(context.Background(), "elicitation/create", json.RawMessage(`{"message":"x"}`))
			gaveUp <- err
		}()
		<-asked
		return "done", nil
	})
	p := w.stdio(t, maxLine)
	p.write(t, strings.Replace(initialize("2025-11-25"), `"capabilities":{}`, `"capabilities":{"elicitation":{}}`, 1)+"\n")
	p.next(t)
	p.write(t, withToken(1, `"t"`)+"\n")
	for r := p.next(t); r.result == nil; r = p.next(t) {
	}
	if err := within(t, gaveUp, "end of the question"); err == nil {
		t.Error("a question has an answer that nobody gave")
	}
	c := within(t, late, "client")
	c.Notify(t.Context(), "notifications/progress", json.RawMessage(`{"progress":1}`))
	if _, err := c.Ask(t.Context(), "elicitation/create", nil); err == nil {
		t.Error("asked after the answer")
	}
	_ = p.in.Close()
	for _, r := range p.rest(t) {
		if strings.Contains(r.raw, "progress") {
			t.Errorf("after the answer: %s", r.raw)
		}
	}
}

// A call that its client gives up ends, and the question with it.
func TestD6ACancelledCallGivesUpItsQuestion(t *testing.T) {
	ended := make(chan error, 1)
	w := talking(t, func(ctx context.Context, c peer.Client) (string, error) {
		_, err := c.Ask(ctx, "roots/list", nil)
		ended <- err
		return "", err
	})
	p := w.stdio(t, maxLine)
	p.write(t, strings.Replace(initialize("2025-11-25"), `"capabilities":{}`, `"capabilities":{"roots":{}}`, 1)+"\n")
	p.next(t)
	p.write(t, call(1, "echo")+"\n")
	if r := p.next(t); !strings.Contains(r.raw, "roots/list") {
		t.Fatalf("asked: %s", r.raw)
	}
	go func() {
		_, _ = io.WriteString(p.in, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`+"\n")
	}()
	if err := within(t, ended, "end of the question"); err == nil {
		t.Error("the question has an answer")
	}
}

// A client is what it has declared, whichever way it did so: a peer can ask it what it
// takes, and it hears what it wants to hear.
func TestAClientIsWhatItHasDeclared(t *testing.T) {
	type heard struct {
		hears bool
		takes string // what it can be asked
	}
	spoken := make(chan heard, 10)
	w := talking(t, func(_ context.Context, c peer.Client) (string, error) {
		spoken <- heard{c.Hears(), string(c.Declared().Capabilities)}
		return "", nil
	})
	f := w.front(t, httpfront.Settings{})
	with := func(capabilities string) string {
		return strings.Replace(initialize("2025-11-25"), `"capabilities":{}`, `"capabilities":`+capabilities, 1)
	}
	level := `{"jsonrpc":"2.0","id":"l","method":"logging\/setLevel","params":{"level":"error"}}`
	for _, c := range []struct {
		name, open, then string
		want             heard
	}{
		{"nothing", with(`{}`), "", heard{}},
		{"something else", with(`{"experimental":{"roots":{}}}`), "", heard{}},
		{"nothing of it", with(`{"roots":null}`), "", heard{}},
		{"roots", with(`{"roots":{"listChanged":true}}`), "", heard{false, `{"roots":{"listChanged":true}}`}},
		{"a level", with(`{"roots":{}}`), level, heard{true, `{"roots":{}}`}},
	} {
		session := f.post(t, c.open).header.Get("Mcp-Session-Id")
		p := w.stdio(t, maxLine)
		p.write(t, c.open+"\n")
		p.next(t)
		if c.then != "" {
			f.post(t, c.then, "Mcp-Session-Id", session)
			p.write(t, c.then+"\n")
			p.next(t)
		}
		f.post(t, call(1, "echo"), "Mcp-Session-Id", session)
		p.write(t, call(1, "echo")+"\n")
		p.next(t)
		for range 2 {
			if got := <-spoken; got != c.want {
				t.Errorf("%s: %v; want %v", c.name, got, c.want)
			}
		}
	}
}

// Two requests of one client have the same session, and those of two have not. Over
// HTTP a client of the stateless era is its caller.
func TestSessionsTellClientsApart(t *testing.T) {
	sessions := make(chan string, 10)
	w := talking(t, func(_ context.Context, c peer.Client) (string, error) {
		sessions <- c.Session()
		return "", nil
	})
	f := w.front(t, httpfront.Settings{})
	seen := map[string]string{}
	for name, s := range map[string]*mcp.ClientSession{
		"stream": f.connect(t, "2025-11-25", asks()), "another": f.connect(t, "2025-11-25", asks()),
		"sse": f.connectSSE(t, asks()), "stdio": connect(t, stdioTransport(t, w), "2025-06-18", asks()),
		"newest": f.connect(t, newest, asks()), "newest stdio": connect(t, stdioTransport(t, w), newest, asks()),
	} {
		ask(t, s)
		ask(t, s)
		first, second := <-sessions, <-sessions
		if first == "" || second == "" || first != second || seen[first] != "" {
			t.Errorf("%s: sessions %q and %q; %q has the first too", name, first, second, seen[first])
		}
		seen[first], seen[second] = name, name
	}
}

// Without tokens, clients of the stateless era at two addresses are two clients,
// whatever they say of their address, and whichever way their calls take.
func TestN2StrangersAreToldApartByAddress(t *testing.T) {
	sessions := make(chan string, 10)
	w := talking(t, func(_ context.Context, c peer.Client) (string, error) {
		sessions <- c.Session()
		return "", nil
	})
	f := w.front(t, httpfront.Settings{})
	body, headers := newEra("tools/call", "echo", `"name":"echo","arguments":{}`)
	for _, capabilities := range []string{`{}`, `{"elicitation":{}}`} {
		body := strings.Replace(body, `clientCapabilities":{}`, `clientCapabilities":`+capabilities, 1)
		seen := map[string]string{}
		for _, from := range []string{"127.0.0.1", "127.0.0.2"} {
			for _, says := range []string{"", "127.0.0.1"} {
				r := httptest.NewRequest(http.MethodPost, "http://localhost/mcp", strings.NewReader(body))
				r.RemoteAddr = from + ":1234"
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Accept", "application/json, text/event-stream")
				r.Header.Set("Orla-Host", says)
				for i := 0; i < len(headers); i += 2 {
					r.Header.Set(headers[i], headers[i+1])
				}
				answer := httptest.NewRecorder()
				f.ServeHTTP(answer, r)
				if answer.Code != http.StatusOK {
					t.Fatalf("%s: %d %s", from, answer.Code, answer.Body)
				}
				session := <-sessions
				if other := seen[session]; other != "" && other != from {
					t.Errorf("with %s, %s and %s are both %q", capabilities, other, from, session)
				}
				seen[session] = from
			}
		}
		if len(seen) != 2 {
			t.Errorf("with %s, two addresses are %d clients: %v", capabilities, len(seen), seen)
		}
	}
}

// SPEC N2: without tokens, an address whose programs have a name each makes room for
// another address: what a program calls itself is its own word.
func TestN2ManyNamesAreOneAddress(t *testing.T) {
	f := newWorld(t).front(t, httpfront.Settings{MaxSessions: 20})
	begin := func(from, name string) (status int) {
		r := httptest.NewRequest(http.MethodPost, "http://localhost/mcp", strings.NewReader(strings.Replace(initialize("2025-11-25"), `"name":"t"`, `"name":"`+name+`"`, 1)))
		r.RemoteAddr = from + ":1234"
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		answer := httptest.NewRecorder()
		f.ServeHTTP(answer, r)
		return answer.Code
	}
	for i := range 20 {
		if status := begin("127.0.0.1", fmt.Sprint("p", i)); status != http.StatusOK {
			t.Fatalf("session %d: %d", i, status)
		}
	}
	if status := begin("127.0.0.1", "p20"); status != http.StatusServiceUnavailable {
		t.Errorf("one more of the same address: %d", status)
	}
	for range 5 {
		if status := begin("127.0.0.9", "other"); status != http.StatusOK {
			t.Errorf("another address: %d", status)
		}
	}
}

// What is for the peer of a request's _meta arrives with all its digits.
func TestTheClientsMetaReachesThePeer(t *testing.T) {
	metas := make(chan string, 10)
	w := newWorld(t)
	w.raw("echo", func(_ context.Context, call peer.Call) (json.RawMessage, error) {
		metas <- string(call.Meta)
		return json.RawMessage(`{"content":[]}`), nil
	})
	f := w.front(t, httpfront.Settings{})
	session := f.initialize(t)
	for meta, want := range map[string]string{
		`{"progressToken":1,"a":12345678901234567890,"b":{"c":[1.0]}}`:   `{"a":12345678901234567890,"b":{"c":[1.0]}}`,
		`{"progressToken":1,"io.modelcontextprotocol/related-task":"x"}`: ``,
		`{}`: ``,
	} {
		f.post(t, strings.Replace(call(1, "echo"), `"arguments"`, `"_meta":`+meta+`,"arguments"`, 1), "Mcp-Session-Id", session)
		if got := within(t, metas, "call"); got != want {
			t.Errorf("%s: got %s; want %s", meta, got, want)
		}
	}
}
