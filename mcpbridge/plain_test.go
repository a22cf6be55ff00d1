package mcpbridge_test

import (
	"context"
	"encoding/base64"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/fault"
	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/supervisor"
)

// callIDs finds what rand.Text makes.
var callIDs = regexp.MustCompile(`[A-Z2-7]{26}`)

// kinds answers with whatever its arguments ask for, so that both ways of a
// call are compared over every kind of answer.
func kinds(_ context.Context, args json.RawMessage) (*mcp.CallToolResult, error) {
	var want struct{ Kind string }
	_ = json.Unmarshal(args, &want) // what is no object gets the default
	switch want.Kind {
	case "error":
		return nil, errors.New("internal text")
	case "fault":
		return text("partly"), fault.New(fault.Timeout, "too <slow> & \"quoted\"")
	case "empty":
		return &mcp.CallToolResult{}, nil
	case "structured":
		return &mcp.CallToolResult{StructuredContent: json.RawMessage(`{"n":12345678901234567890.10}`)}, nil
	case "meta":
		return &mcp.CallToolResult{Meta: mcp.Meta{"io.modelcontextprotocol/serverInfo": "not ours", "mine": []any{1, "x"}}, IsError: true}, nil
	case "image":
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.ImageContent{Data: []byte("hi"), MIMEType: "image/png"}}}, nil
	case "large":
		return text(strings.Repeat("<é>", 40<<10)), nil
	case "panic":
		panic("for the test")
	}
	return text("got " + string(args)), nil
}

// peerKinds answers as kinds does, in a peer's own JSON.
func peerKinds(_ context.Context, call supervisor.Call) (json.RawMessage, error) {
	var want struct{ Kind string }
	_ = json.Unmarshal(call.Args, &want) // what is no object gets the default
	switch want.Kind {
	case "error":
		return nil, &jsonrpc.Error{Code: -32042, Message: "do <this> first", Data: json.RawMessage(`{"n":12345678901234567890,"list":[1.0]}`)}
	case "fault":
		return nil, fault.New(fault.Crashed, "it exited")
	case "empty":
		return json.RawMessage(`{}`), nil
	case "structured":
		return json.RawMessage(`{"content":[],"structuredContent":{"n":12345678901234567890.10,"e":1E+2}}`), nil
	case "meta":
		return json.RawMessage(`{"isError":true, "content":[{"type":"text","text":"no"}],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"not ours"},"mine":[1.0,"x"]}}`), nil
	case "image":
		return json.RawMessage(`{"content":[{"type":"hologram","depth":9007199254740993,"data":{"a":[1.50]}},{"type":"image","data":"aGk=","mimeType":"image/png"}],"later":{"x":null}}`), nil
	case "large":
		return json.Marshal(text(strings.Repeat("<é>", 40<<10)))
	case "panic":
		return json.RawMessage(`["no", "result"]`), nil
	case "escaped":
		return json.RawMessage(`{"cont\u0065nt":[],"_m\u0065ta":{"io.modelcontextprotocol\/x":1,"y":2.0},"isError":true}`), nil
	case "coded":
		return json.RawMessage("{\n  \"content\": [],\r\n  \"isError\": true,\n  \"_meta\": {\"tool_code\": \"rate_limited\", \"retryable\": true}\n}"), nil
	case "typed":
		return json.RawMessage(`{"resultType":"complete","content":[],"_meta":null}`), nil
	case "twice":
		return json.RawMessage(`{"_meta":{"a":1},"content":[],"_meta":{"a":2,"io.modelcontextprotocol/x":0}}`), nil
	}
	quoted, err := json.Marshal("got " + string(call.Args) + string(call.Meta))
	return json.RawMessage(`{"content":[{"type":"text","text":` + string(quoted) + `}]}`), err
}

// message is a call as a client might write it; unusual adds a member that
// nobody knows, which makes it go through the SDK.
func message(r *rand.Rand, meta string) (plain, unusual string) {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	space := func() string { return pick("", "", " ", "\n", "\t ") }
	params := []string{`"name":` + space() + pick(`"kinds"`, `"kinds"`, `"kinds"`, `"peer"`, `"peer"`, `"peer"`, `"echo"`, `"nope"`, `"kin\u0064s"`, `""`, `5`)}
	if r.IntN(8) > 0 {
		params = append(params, `"arguments":`+space()+pick(`{}`, `{"kind":"error"}`, `{"kind":"fault"}`, `{"kind":"empty"}`, `{"kind":"structured"}`,
			`{"kind":"escaped"}`, `{"kind":"coded"}`, `{"kind":"typed"}`, `{"kind":"twice"}`, `{"kind":"meta"}`, `{"kind":"image"}`, `{"kind":"large"}`, `{"kind":"panic"}`, `null`, `[]`, `5`, `"x"`,
			`{"a":"\u0000\ud83d\ude00 ü","n":1.0,"big":12345678901234567890,"nested":{"x":[{}," }] ",[]]}}`, `{"a":1,"a":2}`, `{"kind" : "fault" }`))
	}
	if meta != "" {
		params = append(params, `"_meta":`+meta)
	}
	r.Shuffle(len(params), func(i, j int) { params[i], params[j] = params[j], params[i] })
	members := []string{
		`"jsonrpc":` + pick(`"2.0"`, `"2.0"`, `"2.0"`, `"2.0"`, `"1.0"`),
		`"method":` + space() + pick(`"tools/call"`, `"tools/call"`, `"tools/call"`, `"tools/list"`),
		`"id":` + pick(`1`, `0`, `-7`, `9007199254740991`, `"x"`, `"a b-c"`, `"<&>"`, `"ü"`, `"q\""`, `null`, `1.0`, `{}`),
		`"params":` + space() + "{" + space() + strings.Join(params, ","+space()) + space() + "}",
	}
	r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	join := func(members []string) string {
		return "{" + space() + strings.Join(members, space()+","+space()) + space() + "}"
	}
	return join(members), join(append(members, `"unusual":0`))
}

// comparable is a response with what may differ between two calls left out.
func comparable(t *testing.T, raw string) string {
	t.Helper()
	var v any
	d := json.NewDecoder(strings.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return raw
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	text := string(out)
	for _, id := range callIDs.FindAllString(text, -1) {
		text = strings.ReplaceAll(text, id, "ID")
	}
	return text
}

// A plain call answered without the SDK gives what the SDK gives.
func TestPlainCallsAnswerAsTheSDKDoes(t *testing.T) {
	const seeds = 2400
	const meta = `{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}},"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"}}`
	const traced = `{"tracestate":"a=1" , "traceparent":"` + inMeta + `","baggage":"k=v"}`
	metaTraced := `{ "traceparent":"` + inMeta + `",` + meta[1:]
	w := newWorld(t)
	w.set(tool("echo"), tool("kinds"), tool("peer"))
	w.answer("kinds", kinds)
	w.raw("peer", peerKinds)
	f := w.front(t, mcpbridge.HTTPSettings{})
	session := f.initialize(t)
	withHandshake, without := w.stdio(t, 16<<20), w.stdio(t, 16<<20)
	withHandshake.open(t)

	overHTTP := func(headers ...string) func(string) string {
		return func(body string) string {
			r := f.post(t, body, headers...)
			data := r.raw
			for line := range strings.Lines(r.raw) {
				if d, ok := strings.CutPrefix(line, "data: "); ok {
					data = d
				}
			}
			return fmt.Sprint(r.status, " ", comparable(t, data))
		}
	}
	overStdio := func(p *pipes) func(string) string {
		return func(body string) string {
			p.write(t, strings.ReplaceAll(body, "\n", " ")+"\n")
			for {
				if r := p.next(t); !strings.Contains(r.raw, `"method":"notifications/`) {
					return comparable(t, r.raw)
				}
			}
		}
	}
	for name, era := range map[string]struct {
		meta string
		ask  func(string) string
	}{
		"http session":            {"", overHTTP("Mcp-Session-Id", session, "Mcp-Protocol-Version", "2025-11-25")},
		"http session, traced":    {traced, overHTTP("Mcp-Session-Id", session, "Mcp-Protocol-Version", "2025-11-25", "Traceparent", header)},
		"http stateless":          {meta, nil}, // its headers name the tool
		"http stateless, traced":  {metaTraced, nil},
		"stdio session":           {"", overStdio(withHandshake)},
		"stdio session, traced":   {traced, overStdio(withHandshake)},
		"stdio stateless":         {meta, overStdio(without)},
		"stdio stateless, traced": {metaTraced, overStdio(without)},
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			plain := 0
			for range seeds / 8 {
				message, unusual := message(r, era.meta)
				if strings.Contains(name, "http stateless") {
					name := "kinds"
					if strings.Contains(message, `"peer"`) {
						name = "peer"
					}
					era.ask = overHTTP("Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", name)
				}
				if strings.Contains(message, `"id":null`) && strings.HasPrefix(name, "stdio") {
					continue // a notification, which nobody answers
				}
				if mcpbridge.IsPlain([]byte(message)) {
					plain++
				}
				viaSDK, direct := era.ask(unusual), era.ask(message)
				if viaSDK != direct {
					t.Fatalf("%s\nthrough the SDK: %.600s\ndirectly:        %.600s", message, viaSDK, direct)
				}
			}
			if plain < seeds/40 {
				t.Errorf("only %d messages were plain", plain)
			}
		})
	}
}

// A list that is prepared is the one that the SDK gives, also after a change.
func TestPlainListsAnswerAsTheSDKDoes(t *testing.T) {
	w := newWorld(t)
	f := w.front(t, mcpbridge.HTTPSettings{})
	session := f.initialize(t)
	body, headers := newEra("tools/list", "", "")
	rich := &mcp.Tool{
		Name: "a", Title: "T<&>", Description: "é", OutputSchema: json.RawMessage(`{"type":"object"}`),
		InputSchema: json.RawMessage(`{"type":"object","properties":{"n":{"maximum":12345678901234567890.10}}}`),
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true},
	}
	for _, tools := range [][]*mcp.Tool{{}, {tool("echo")}, {rich, tool("echo")}} {
		w.set(tools...)
		for name, ask := range map[string]func(unusual string) reply{
			"session": func(unusual string) reply {
				return f.post(t, `{"jsonrpc":"2.0","id":"x","method":"tools/list"`+unusual+`}`, "Mcp-Session-Id", session)
			},
			"stateless": func(unusual string) reply {
				return f.post(t, strings.TrimSuffix(body, "}")+unusual+"}", headers...)
			},
		} {
			there := func(r reply) bool { return strings.Count(string(r.result), `"inputSchema"`) == len(tools) }
			direct, viaSDK := ask(""), ask(`,"unusual":0`)
			for !there(direct) || !there(viaSDK) { // the change arrives by itself
				direct, viaSDK = ask(""), ask(`,"unusual":0`)
			}
			if got, want := comparable(t, string(direct.result)), comparable(t, string(viaSDK.result)); got != want {
				t.Errorf("%s: got  %s\nwant %s", name, got, want)
			}
		}
	}
}

// So is each page of a list that has several, however its cursor came, and also
// after a change; a cursor that nobody gave makes no page.
func TestPlainPagesAnswerAsTheSDKDoes(t *testing.T) {
	w := newWorld(t)
	f := w.front(t, mcpbridge.HTTPSettings{})
	session := f.initialize(t)
	inSession := func(params, unusual string) reply {
		return f.post(t, `{"jsonrpc":"2.0","id":"x","method":"tools/list","params":{`+params+`}`+unusual+`}`, "Mcp-Session-Id", session)
	}
	stateless := func(params, unusual string) reply {
		body, headers := newEra("tools/list", "", params)
		return f.post(t, strings.TrimSuffix(body, "}")+unusual+"}", headers...)
	}
	var madeUp strings.Builder // as the SDK's are made
	encoder := base64.NewEncoder(base64.URLEncoding, &madeUp)
	if err := gob.NewEncoder(encoder).Encode(struct{ LastUID string }{"tool-00005"}); err != nil {
		t.Fatal(err)
	}
	_ = encoder.Close() // a strings.Builder takes all
	for _, n := range []int{2001, 2000} {
		tools := make([]*mcp.Tool, n)
		for i := range tools {
			tools[i] = tool(fmt.Sprintf("tool-%05d", i))
		}
		w.set(tools...)
		const pageSize = mcp.DefaultPageSize
		eventually(t, "the list is followed", func() bool {
			list, given := inSession("", `,"unusual":0`), fmt.Sprintf(`"tool-%05d"`, pageSize-1)
			return strings.Contains(list.raw, given) && w.bridge.Pages() == 1
		})
		inSession(`"cursor":"made up"`, "")
		if r := inSession(fmt.Sprintf(`"cursor":%q`, madeUp.String()), ""); !strings.Contains(r.raw, `"tool-00006"`) || strings.Contains(r.raw, `"tool-00005"`) {
			t.Errorf("what comes after a tool is %.300s", r.raw)
		}
		for round := range 2 {
			params := ""
			for page := 1; ; page++ {
				viaSDK := inSession(params, `,"unusual":0`)
				for name, ask := range map[string]func(params, unusual string) reply{"session": inSession, "stateless": stateless} {
					got, want := ask(params, ""), ask(params, `,"unusual":0`)
					if comparable(t, string(got.result)) != comparable(t, string(want.result)) || got.status != want.status || len(got.result) < 100 {
						t.Fatalf("%s, round %d, page %d of %d tools: %s", name, round, page, n, difference(string(got.result), string(want.result)))
					}
				}
				var next struct{ NextCursor string }
				if err := json.Unmarshal(viaSDK.result, &next); err != nil {
					t.Fatal(err)
				}
				if known := w.bridge.Pages(); round == 0 && known != page || page > known {
					t.Errorf("after page %d of %d tools %d are ready", page, n, known)
				}
				if next.NextCursor == "" {
					break
				}
				params = fmt.Sprintf(`"cursor":%q`, next.NextCursor)
			}
		}
		if known, want := w.bridge.Pages(), (n+pageSize-1)/pageSize; known != want {
			t.Errorf("of %d tools %d pages are ready, want %d", n, known, want)
		}
	}
}

// What the SDK has not found in order first is never answered without it.
func TestPlainCallsNeedASessionOrAKnownClient(t *testing.T) {
	w := newWorld(t)
	f := w.front(t, mcpbridge.HTTPSettings{})
	if r := f.post(t, call(1, "echo"), "Mcp-Session-Id", "invented"); r.status != http.StatusNotFound {
		t.Errorf("an invented session: %d %s", r.status, r.raw)
	}
	session := f.initialize(t)
	if r := f.post(t, call(1, "echo"), "Mcp-Session-Id", session); r.status != http.StatusOK || r.failed {
		t.Errorf("a session: %d %s", r.status, r.raw)
	}
	if r := f.send(t, http.MethodDelete, "/mcp", "", "Mcp-Session-Id", session); r.status != http.StatusNoContent {
		t.Errorf("delete: %d", r.status)
	}
	if r := f.post(t, call(1, "echo"), "Mcp-Session-Id", session); r.status != http.StatusNotFound {
		t.Errorf("a session that was ended: %d %s", r.status, r.raw)
	}
	body, headers := newEra("tools/call", "echo", `"name":"echo"`)
	bad := strings.Replace(body, `"io.modelcontextprotocol/clientCapabilities":{}`, `"io.modelcontextprotocol/clientCapabilities":5`, 1)
	for range 3 { // a refusal teaches nothing
		if r := f.post(t, bad, headers...); r.status != http.StatusBadRequest {
			t.Errorf("bad capabilities: %d %s", r.status, r.raw)
		}
	}
	for range 3 {
		if r := f.post(t, body, headers...); r.status != http.StatusOK || r.failed {
			t.Errorf("good capabilities: %d %s", r.status, r.raw)
		}
		for _, header := range []string{"Mcp-Method", "Mcp-Name", "Mcp-Protocol-Version"} {
			if r := f.post(t, body, append(headers, header, "tools/list")...); r.status != http.StatusBadRequest {
				t.Errorf("with another %s: %d %s", header, r.status, r.raw)
			}
		}
	}
}

// A plain call is cancelled as any other, in a session over HTTP and on stdio.
func TestPlainCallsAreCancelled(t *testing.T) {
	w := newWorld(t)
	w.set(tool("echo"), tool("gate"))
	g := newGate()
	w.answer("gate", g.answer)
	f := w.front(t, mcpbridge.HTTPSettings{})
	session := f.initialize(t)
	answered := make(chan reply, 1)
	go func() { answered <- f.post(t, call(`"c"`, "gate"), "Mcp-Session-Id", session) }()
	within(t, g.began, "call")
	other := f.initialize(t)
	cancel := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c","reason":"` + strings.Repeat("why ", 10_000) + `"}}`
	for _, s := range []string{other, session} {
		if r := f.post(t, cancel, "Mcp-Session-Id", s); r.status != http.StatusAccepted {
			t.Errorf("cancel: %d %s", r.status, r.raw)
		}
	}
	if r := within(t, answered, "answer"); !strings.Contains(r.raw, `"tool_code":"canceled"`) {
		t.Errorf("the cancelled call: %s", r.raw)
	}
	p := w.stdio(t, maxLine)
	p.open(t)
	p.write(t, call(5, "gate")+"\n")
	within(t, g.began, "call")
	p.write(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`+"\n"+call(6, "echo")+"\n")
	_ = p.in.Close()
	if rs := p.rest(t); len(rs) != 1 || string(rs[0].id) != "6" {
		t.Errorf("answers = %v; want none for the cancelled call", rs)
	}
}
