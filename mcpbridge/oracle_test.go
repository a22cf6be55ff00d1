package mcpbridge_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/mcpbridge/results"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// callIDs finds what rand.Text makes.
var callIDs = regexp.MustCompile(`[A-Z2-7]{26}`)

// comparable is a response with what may differ between two servers left out.
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
	return callIDs.ReplaceAllString(string(out), "ID")
}

// kinds answers with whatever its arguments ask for.
func kinds(_ context.Context, args json.RawMessage) (*mcp.CallToolResult, error) {
	var want struct{ Kind string }
	_ = json.Unmarshal(args, &want) // arguments that are not an object get the default
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
		return &mcp.CallToolResult{Meta: mcp.Meta{"mine": []any{1, "x"}}, IsError: true}, nil
	case "image":
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.ImageContent{Data: []byte("hi"), MIMEType: "image/png"}}}, nil
	case "large":
		return text(strings.Repeat("<é>", 40<<10)), nil
	}
	return text("got " + string(args)), nil
}

// oracle is a plain server of the SDK's that answers as a world does: what Orla's bridge
// says is held against it.
func oracle(w *world, tools ...*mcp.Tool) *mcp.Server {
	plain := mcp.NewServer(&mcp.Implementation{Name: "orla", Title: "Orla", Version: "1.2.3"}, &mcp.ServerOptions{
		Capabilities: &mcp.ServerCapabilities{
			Tools:       &mcp.ToolCapabilities{ListChanged: true},
			Resources:   &mcp.ResourceCapabilities{ListChanged: true, Subscribe: true},
			Prompts:     &mcp.PromptCapabilities{ListChanged: true},
			Completions: &mcp.CompletionCapabilities{},
			Logging:     &mcp.LoggingCapabilities{}, //nolint:staticcheck // deprecated by the newest era only
		},
		SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) { c.CacheScope = "private" },
	})
	for _, tool := range tools {
		plain.AddTool(tool, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			got, err := w.Call(ctx, peer.Call{Tool: r.Params.Name, Args: r.Params.Arguments})
			res, refused := results.Of(got, err)
			if refused != nil {
				return nil, refused
			}
			return res, nil
		})
	}
	return plain
}

// generated is a message as a client might write it.
func generated(r *rand.Rand, meta string) string {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	space := func() string { return pick("", "", " ", "\n", "\t ") }
	params := []string{`"name":` + space() + pick(`"kinds"`, `"kinds"`, `"kinds"`, `"kinds"`, `"echo"`, `"nope"`, `"kin\u0064s"`, `""`, `5`)}
	if r.IntN(8) > 0 {
		params = append(params, `"arguments":`+space()+pick(`{}`, `{"kind":"error"}`, `{"kind":"fault"}`, `{"kind":"empty"}`, `{"kind":"structured"}`,
			`{"kind":"meta"}`, `{"kind":"image"}`, `{"kind":"large"}`, `null`,
			`{"a":"\u0000\ud83d\ude00 ü","n":1.0,"big":12345678901234567890,"nested":{"x":[{}," }] ",[]]}}`, `{"a":1,"a":2}`, `{"kind" : "fault" }`))
	}
	if r.IntN(10) == 0 {
		params = append(params, `"cursor":`+pick(`""`, `"!"`, `5`, `null`))
	}
	if meta != "" {
		params = append(params, `"_meta":`+meta)
	}
	r.Shuffle(len(params), func(i, j int) { params[i], params[j] = params[j], params[i] })
	members := []string{
		`"jsonrpc":` + pick(`"2.0"`, `"2.0"`, `"2.0"`, `"2.0"`, `"2.0"`, `"1.0"`),
		`"method":` + space() + pick(`"tools/call"`, `"tools/call"`, `"tools/call"`, `"tools\/call"`, `"tools/list"`, `"ping"`, `"prompts/list"`, `"resources/list"`,
			`"resources/templates/list"`, `"server/discover"`, `"no/such"`, `"notifications/initialized"`, `"initialize"`),
		`"id":` + pick(`1`, `0`, `-7`, `9007199254740991`, `"x"`, `"a b-c"`, `"<&>"`, `"ü"`, `"q\""`, `1.0`, `{}`),
		`"params":` + space() + pick("{"+space()+strings.Join(params, ","+space())+space()+"}", "{"+strings.Join(params, ",")+"}", "{"+strings.Join(params, ",")+"}", `null`, `[]`, `{}`),
	}
	if r.IntN(10) == 0 {
		members = append(members, `"unusual":`+pick("0", "{}", `"x"`))
	}
	r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	return "{" + space() + strings.Join(members, space()+","+space()) + space() + "}"
}

// said is what a response comes to: its result, or the code of its error.
func said(t *testing.T, r reply) string {
	t.Helper()
	if r.failed {
		return fmt.Sprint("error ", r.code)
	}
	return comparable(t, string(r.result))
}

// SPEC G1, G2: what a client gets is what the official SDK's server says, with the same
// tools, to the same messages, in every era. Of an error it is the code, where the SDK's is
// one of the protocol's.
func TestTheBridgeAnswersAsTheSDKDoes(t *testing.T) {
	seeds := needs.Rounds(300, 300)
	const meta = `{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}},"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"}}`
	w := newWorld(t)
	tools := []*mcp.Tool{tool("echo"), tool("kinds")}
	w.set(tools...)
	w.answer("kinds", kinds)
	f := w.front(t, httpfront.Settings{})
	plain := oracle(w, tools...)
	of := func(stateless bool) *front {
		server := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return plain },
			&mcp.StreamableHTTPOptions{Stateless: stateless, PropagateRequestCancellation: true}))
		t.Cleanup(server.Close)
		return &front{url: server.URL, client: f.client}
	}
	withSessions, stateless := of(false), of(true)
	ours, theirs := f.initialize(t), withSessions.initialize(t)
	defer func() { withSessions.send(t, http.MethodDelete, "/mcp", "", "Mcp-Session-Id", theirs) }()
	onStdio := []*pipes{w.stdio(t, 16<<20), sdkStdio(t, plain)}
	bare := []*pipes{w.stdio(t, 16<<20), sdkStdio(t, plain)} // without a handshake
	for _, p := range onStdio {
		p.open(t)
	}
	for name, c := range map[string]struct {
		meta string
		ask  func(of int, body string) reply // 0 Orla, 1 the SDK
	}{
		"http session": {"", func(of int, body string) reply {
			return []*front{f, withSessions}[of].post(t, body, "Mcp-Session-Id", []string{ours, theirs}[of], "Mcp-Protocol-Version", "2025-11-25")
		}},
		"http stateless": {meta, func(of int, body string) reply {
			var m struct {
				Method string
				Params struct{ Name any }
			}
			_ = json.Unmarshal([]byte(body), &m)
			headers := []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", m.Method}
			if m.Method == "tools/call" {
				headers = append(headers, "Mcp-Name", fmt.Sprint(m.Params.Name))
			}
			return []*front{f, stateless}[of].post(t, body, headers...)
		}},
		"stdio session": {"", func(of int, body string) reply {
			onStdio[of].write(t, strings.ReplaceAll(body, "\n", " ")+"\n")
			return onStdio[of].next(t)
		}},
		"stdio stateless": {meta, func(of int, body string) reply {
			bare[of].write(t, strings.ReplaceAll(body, "\n", " ")+"\n")
			return bare[of].next(t)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			results := 0
			for range seeds / 4 {
				body := generated(r, c.meta)
				got := c.ask(0, body)
				if strings.HasPrefix(name, "stdio") && got.failed && (got.code == jsonrpc.CodeInvalidRequest || got.code == jsonrpc.CodeParseError) {
					continue // the SDK's connection would end by it
				}
				want := c.ask(1, body)
				if want.failed && want.code != 0 || want.result != nil {
					if g, s := said(t, got), said(t, want); g != s && !known(got, want) {
						t.Fatalf("%s\nOrla:    %d %.600s\nthe SDK: %d %.600s", body, got.status, got.raw, want.status, want.raw)
					}
				}
				if want.result != nil {
					results++
				}
			}
			if results < seeds/32 {
				t.Errorf("only %d messages had a result", results)
			}
		})
	}
}

// known reports whether two errors differ for a reason that is known: the SDK refuses some
// messages with an HTTP status and text alone, or with an error that has no code of JSON-RPC.
func known(got, want reply) bool {
	return got.failed && want.failed && want.code == jsonrpc.CodeInvalidRequest
}

// sdkStdio is a server of the SDK's on stdio.
func sdkStdio(t *testing.T, s *mcp.Server) *pipes {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	p := &pipes{in: inW, outR: outR, out: bufio.NewScanner(outR), ended: make(chan error, 1)}
	p.out.Buffer(nil, 64<<20)
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = s.Run(context.Background(), &mcp.IOTransport{Reader: inR, Writer: outW}) // it ends with its input
	}()
	t.Cleanup(func() {
		_ = inW.Close()
		_ = outR.Close()
		<-over
	})
	return p
}
