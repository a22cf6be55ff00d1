package mcpbridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/mcpbridge/results"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// says makes echo a peer's tool that answers raw, or err.
func (w *world) says(raw string, err error) {
	w.raw("echo", func(context.Context, peer.Call) (json.RawMessage, error) {
		if err != nil {
			return nil, err
		}
		return json.RawMessage(raw), nil
	})
}

// wire asks for echo in the two eras over HTTP and in a session on stdio, both
// whatever else its client says, and gives the results as they came.
func (w *world) wire(t *testing.T) map[string]reply {
	t.Helper()
	f := w.front(t, httpfront.Settings{})
	session := f.initialize(t)
	p := w.stdio(t, 16<<20)
	p.open(t)
	body, headers := newEra("tools/call", "echo", `"name":"echo"`)
	got := map[string]reply{
		"session":       f.post(t, call(1, "echo"), "Mcp-Session-Id", session),
		"session, more": f.post(t, strings.TrimSuffix(call(1, "echo"), "}")+`,"x":0}`, "Mcp-Session-Id", session),
		"newest, more":  f.post(t, body, headers...),
		"newest":        f.post(t, body, headers...),
	}
	p.write(t, call(1, "echo")+"\n")
	got["stdio"] = p.next(t)
	p.write(t, strings.TrimSuffix(call(2, "echo"), "}")+`,"x":0}`+"\n")
	got["stdio, more"] = p.next(t)
	return got
}

// SPEC L1, D7: the bytes of a peer's answer are those that the client gets.
func TestL1APeersAnswerPassesAsItIs(t *testing.T) {
	w := newWorld(t)
	const raw = `{"content":[{"type":"hologram","n":12345678901234567890.10,"s":"<é\u0041\/>"}],"later":{"a":[1E+2]},"structuredContent":{"z":1.0,"a":0}}`
	w.says(raw, nil)
	for name, r := range w.wire(t) {
		switch {
		case !strings.HasPrefix(name, "newest"):
			if string(r.result) != raw {
				t.Errorf("%s: got  %s\nwant %s", name, r.result, raw)
			}
		case !strings.Contains(string(r.result), raw[1:len(raw)-1]) || !strings.Contains(r.raw, `"resultType":"complete"`) ||
			!strings.Contains(r.raw, `"io.modelcontextprotocol/serverInfo":{"name":"orla"`):
			t.Errorf("%s: %s", name, r.result)
		}
	}
}

// SPEC G5: a peer's failure has the code that clients act on, what is the
// protocol's stays behind, and the rest is as it was.
func TestG5APeersMeta(t *testing.T) {
	for _, c := range []struct{ name, raw, meta string }{
		{"a failure", `{"isError":true,"content":[]}`, `{"retryable":false,"tool_code":"execution_failed"}`},
		{"with its code", `{"isError":true,"content":[],"_meta":{"tool_code":"rate_limited"}}`, `{"retryable":false,"tool_code":"rate_limited"}`},
		{"no failure", `{"isError":false,"content":[]}`, ``},
		{"the protocol's", `{"content":[],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"me"},"n":1.0}}`, `{"n":1.0}`},
		{"only the protocol's", `{"content":[],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"me"}}}`, ``},
		{"no object", `{"content":[],"isError":true,"_meta":5}`, `{"retryable":false,"tool_code":"execution_failed"}`},
		{"escaped", `{"content":[],"_meta":{"io.modelcontextprotocol\/x":1,"a\u0062":2}}`, `{"ab":2}`},
	} {
		w := newWorld(t)
		w.says(c.raw, nil)
		for name, r := range w.wire(t) {
			var res struct {
				Meta    map[string]json.RawMessage `json:"_meta"`
				IsError bool
			}
			if err := json.Unmarshal(r.result, &res); err != nil {
				t.Fatalf("%s, %s: %v in %s", c.name, name, err, r.raw)
			}
			if _, own := res.Meta["io.modelcontextprotocol/serverInfo"]; own != strings.HasPrefix(name, "newest") {
				t.Errorf("%s, %s: %s", c.name, name, r.result)
			}
			delete(res.Meta, "io.modelcontextprotocol/serverInfo")
			got := ""
			if len(res.Meta) > 0 {
				raw, _ := json.Marshal(res.Meta)
				got = string(raw)
			}
			if got != c.meta || strings.Contains(string(r.result), `"me"`) || res.IsError != strings.Contains(c.raw, "true") {
				t.Errorf("%s, %s: got %s; want %s", c.name, name, r.result, c.meta)
			}
		}
	}
}

// SPEC G5: a peer's JSON-RPC error is the client's, and the log has its code.
func TestG5APeersRefusal(t *testing.T) {
	w := newWorld(t)
	w.says("", &jsonrpc.Error{Code: -32042, Message: "do <this> first", Data: json.RawMessage(`{"n":12345678901234567890}`)})
	for name, r := range w.wire(t) {
		if !r.failed || r.code != -32042 || r.text != "do <this> first" || !strings.Contains(r.raw, `12345678901234567890`) {
			t.Errorf("%s: %s", name, r.raw)
		}
	}
	lines := w.log.calls(t, 6)
	if len(lines) != 6 {
		t.Errorf("%d lines in the log; want 6", len(lines))
	}
	for _, line := range lines {
		if line["code"] != "-32042" || line["ok"] != false {
			t.Errorf("the log's line: %v", line)
		}
	}
	w.says("", fault.Wrap(fault.Crashed, &jsonrpc.Error{Code: -1, Message: "secret"}, "it fell"))
	for name, r := range w.wire(t) {
		if r.failed || !strings.Contains(r.raw, `"tool_code":"crashed"`) || strings.Contains(r.raw, "secret") {
			t.Errorf("a fault, %s: %s", name, r.raw)
		}
	}
}

// SPEC S2: of a peer's error that is too large its client gets the code and the beginning.
func TestS2APeersLargeRefusal(t *testing.T) {
	w := newWorld(t)
	const size = 1 << 20
	for name, given := range map[string]*jsonrpc.Error{
		"data": {Code: -32042, Message: "do this first", Data: json.RawMessage(`"` + strings.Repeat("x", size) + `"`)},
		"text": {Code: -32042, Message: "do this first" + strings.Repeat("é", size)},
	} {
		w.says("", given)
		for way, r := range w.wire(t) {
			if !r.failed || r.code != -32042 || !strings.HasPrefix(r.text, "do this first") || !strings.Contains(r.text, "cut: the error has ") || len(r.raw) > 16<<10 || strings.ContainsRune(r.text, '\uFFFD') {
				t.Errorf("%s, %s: %d bytes, %.100s … %s", name, way, len(r.raw), r.text, r.text[max(0, len(r.text)-60):])
			}
		}
	}
}

// SPEC G5a: what is too large of a peer's becomes a resource as well, also when
// nobody here knows what it is.
func TestG5aAPeersLargeAnswer(t *testing.T) {
	big := strings.Repeat("x", 200<<10)
	for _, c := range []struct{ name, raw, part string }{
		{"text", `{"isError":true,"content":[{"type":"text","text":"HEAD` + big + `"},{"type":"text","text":"end"}]}`, "HEAD"},
		{"structured", `{"content":[],"structuredContent":{"n":12345678901234567890,"x":"` + big + `"}}`, `"n":12345678901234567890`},
		{"unknown", `{"content":[{"type":"hologram","n":12345678901234567890,"x":"` + big + `"}]}`, `"n":12345678901234567890`},
	} {
		w := newWorld(t, small)
		w.says(c.raw, nil)
		s := pair(t, w)
		res := ask(t, s)
		if res.IsError != (c.name == "text") || res.IsError != (res.Meta["tool_code"] == "execution_failed") {
			t.Errorf("%s: isError %v, _meta %v", c.name, res.IsError, res.Meta)
		}
		links := uris(res)
		if len(links) != 1 {
			t.Fatalf("%s: links %v in %v", c.name, links, res.Content)
		}
		if got := read(t, s, links[0]+"/0/300").Text; !strings.Contains(got, c.part) {
			t.Errorf("%s: %s", c.name, got)
		}
		w.says(`{"content":[{"type":"text","text":"small"}]}`, nil)
		if got := textOf(t, ask(t, s)); got != "small" {
			t.Errorf("%s: afterwards %q", c.name, got)
		}
	}
}

// SPEC L1: 1 MiB goes out whole, in one JSON body over HTTP.
func TestL1ALargeAnswerIsWhole(t *testing.T) {
	w := newWorld(t)
	raw := `{"content":[{"type":"text","text":"` + strings.Repeat("0123456789abcdef", 1<<16) + `"}]}`
	w.says(raw, nil)
	for name, r := range w.wire(t) {
		if !strings.Contains(string(r.result), raw[1:len(raw)-1]) {
			t.Errorf("%s: %d bytes: %.200s", name, len(r.raw), r.raw)
		}
		if strings.HasPrefix(name, "session") || strings.HasPrefix(name, "newest") {
			if got := r.header.Get("Content-Type"); got != "application/json" || r.status != http.StatusOK {
				t.Errorf("%s: %d %s", name, r.status, got)
			}
		}
	}
}

func TestAnswerOfAPeerForTheCommandLine(t *testing.T) {
	for raw, want := range map[string]string{
		`{"content":[{"type":"text","text":"a"}]}`:                                                    `{"content":[{"type":"text","text":"a"}]}`,
		`{"content":[],"structuredContent":{"n":12345678901234567890},"_meta":{"n":1.0}}`:             `{"_meta":{"n":1.0},"content":[],"structuredContent":{"n":12345678901234567890}}`,
		`{"content":[{"type":"hologram"}],"isError":true,"_meta":{"tool_code":"x","retryable":true}}`: `{"_meta":{"retryable":true,"tool_code":"x"},"content":[{"type":"text","text":"{\"content\":[{\"type\":\"hologram\"}],\"isError\":true,\"_meta\":{\"tool_code\":\"x\",\"retryable\":true}}"}],"isError":true}`,
	} {
		res, rpcErr := results.Of(peer.Answer{Raw: json.RawMessage(raw)}, nil)
		if rpcErr != nil {
			t.Fatal(rpcErr)
		}
		if got, err := json.Marshal(res); err != nil || string(got) != want {
			t.Errorf("got  %s, %v\nwant %s", got, err, want)
		}
	}
	if res, _ := results.Of(peer.Answer{Raw: json.RawMessage(`5`)}, nil); !res.IsError {
		t.Errorf("5 is a result: %v", res)
	}
	if res, rpcErr := results.Of(peer.Answer{}, &jsonrpc.Error{Code: -32000, Message: "no"}); res != nil || fmt.Sprint(rpcErr) != "no" {
		t.Errorf("a refusal: %v, %v", res, rpcErr)
	}
}

// BenchmarkPassed is a call of a peer's tool, without a network: what the
// bridge itself costs.
func BenchmarkPassed(b *testing.B) {
	for _, size := range []int{64, 16 << 10, 1 << 20} {
		payload := strings.Repeat("x", size)
		raw := json.RawMessage(`{"content":[{"type":"text","text":"` + payload + `"}]}`)
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"tool-00000","arguments":{"a":"` + payload + `"},"_meta":{` +
			`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.SetBytes(int64(2 * size))
			bench(b, 1, body, []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "tool-00000"},
				func(c *catalog) {
					c.raw("tool-00000", func(context.Context, peer.Call) (json.RawMessage, error) { return raw, nil })
				})
		})
	}
}
