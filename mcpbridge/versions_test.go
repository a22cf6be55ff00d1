package mcpbridge_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

var oldVersions = []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}

const newest = "2026-07-28"

func TestG2EveryOldVersionIsNegotiated(t *testing.T) {
	f := newWorld(t).front(t, httpfront.Settings{})
	for _, v := range oldVersions {
		r := f.post(t, initialize(v))
		var res struct{ ProtocolVersion string }
		if err := json.Unmarshal(r.result, &res); err != nil || res.ProtocolVersion != v {
			t.Errorf("%s: negotiated %q (%s)", v, res.ProtocolVersion, r.raw)
		}
		session := r.header.Get("Mcp-Session-Id")
		r = f.post(t, call(1, "echo"), "Mcp-Session-Id", session, "Mcp-Protocol-Version", v)
		if r.status != http.StatusOK || r.failed || !strings.Contains(string(r.result), "content") {
			t.Errorf("%s: call: %d %s", v, r.status, r.raw)
		}
	}
	// What nobody knows yet is talked down to the newest with sessions.
	r := f.post(t, initialize("2099-01-01"))
	if !strings.Contains(string(r.result), "2025-11-25") {
		t.Errorf("an unknown version: %s", r.raw)
	}
}

func TestG2TheSDKsClientsOfEveryVersionAtTheSameTime(t *testing.T) {
	f := newWorld(t).front(t, httpfront.Settings{})
	sessions := map[string]*mcp.ClientSession{"sse": f.connectSSE(t, nil)}
	for _, v := range append(oldVersions, newest) {
		sessions[v] = f.connect(t, v, nil)
	}
	for v, s := range sessions {
		if got := mustCall(t, s, map[string]any{"v": v}); got != fmt.Sprintf(`{"v":%q}`, v) {
			t.Errorf("%s: echo gave %s", v, got)
		}
		list, err := s.ListTools(t.Context(), nil)
		if err != nil || len(list.Tools) != 1 || list.Tools[0].Name != "echo" {
			t.Errorf("%s: list: %v %v", v, list, err)
		}
	}
}

func TestG2TheStatelessEra(t *testing.T) {
	f := newWorld(t).front(t, httpfront.Settings{})
	body, headers := newEra("server/discover", "", "")
	r := f.post(t, body, headers...)
	if r.status != http.StatusOK || !strings.Contains(string(r.result), newest) {
		t.Errorf("discover: %d %s", r.status, r.raw)
	}
	for _, member := range []string{`"ttlMs":`, `"cacheScope":"private"`, `"resultType":"complete"`, `"name":"orla"`, `"version":"1.2.3"`, `"listChanged":true`} {
		if !strings.Contains(r.raw, member) {
			t.Errorf("discover lacks %s: %s", member, r.raw)
		}
	}
	body, headers = newEra("tools/call", "echo", `"name":"echo","arguments":{"x":1}`)
	r = f.post(t, body, headers...)
	if r.status != http.StatusOK || !strings.Contains(string(r.result), `{\"x\":1}`) || r.header.Get("Mcp-Session-Id") != "" {
		t.Errorf("call: %d %s", r.status, r.raw)
	}
	for name, c := range map[string]struct {
		body    string
		headers []string
		status  int
		code    int64
	}{
		"unknown method":         {`"no/such"`, []string{"Mcp-Method", "no/such"}, 404, -32601},
		"no version header":      {`"tools/list"`, []string{"Mcp-Protocol-Version", ""}, 400, -32020},
		"other version header":   {`"tools/list"`, []string{"Mcp-Protocol-Version", "2025-11-25"}, 400, -32020},
		"no method header":       {`"tools/list"`, []string{"Mcp-Method", ""}, 400, -32020},
		"other method header":    {`"tools/list"`, []string{"Mcp-Method", "ping"}, 400, -32020},
		"removed method":         {`"ping"`, []string{"Mcp-Method", "ping"}, 404, -32601},
		"initialize in new era":  {`"initialize"`, []string{"Mcp-Method", "initialize"}, 404, -32601},
		"call of unknown tool":   {`"tools/call"`, []string{"Mcp-Method", "tools/call", "Mcp-Name", "nope"}, 400, -32602},
		"call with other header": {`"tools/call"`, []string{"Mcp-Method", "tools/call", "Mcp-Name", "echo"}, 400, -32020},
	} {
		method := strings.Trim(c.body, `"`)
		body, headers := newEra(method, "", `"name":"nope"`)
		r := f.post(t, body, append(headers, c.headers...)...)
		if r.status != c.status || r.code != c.code || string(r.id) != "1" {
			t.Errorf("%s: got %d, %s; want %d, %d", name, r.status, r.raw, c.status, c.code)
		}
	}
	body, headers = newEra("tools/list", "", "")
	r = f.post(t, strings.ReplaceAll(body, newest, "2027-03-03"), append(headers, "Mcp-Protocol-Version", "2027-03-03")...)
	if r.status != http.StatusBadRequest || r.code != -32022 {
		t.Errorf("a newer version: %d %s; want 400, -32022", r.status, r.raw)
	}
	body, headers = newEra("tools/list", "", "")
	r = f.post(t, strings.Replace(body, `"io.modelcontextprotocol/clientCapabilities":{}`, `"x":1`, 1), headers...)
	if r.status != http.StatusBadRequest || r.code != -32602 {
		t.Errorf("no capabilities: %d %s; want 400, -32602", r.status, r.raw)
	}
}

func TestG2ACallWithoutASession(t *testing.T) {
	f := newWorld(t).front(t, httpfront.Settings{})
	r := f.post(t, call(5, "echo"), "Accept", "*/*")
	if r.status != http.StatusOK || r.failed || string(r.id) != "5" {
		t.Errorf("call: %d %s", r.status, r.raw)
	}
	if r := f.post(t, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "Accept", "*/*"); r.failed || !strings.Contains(r.raw, "echo") {
		t.Errorf("list: %d %s", r.status, r.raw)
	}
	if f.Sessions() != 0 {
		t.Errorf("%d sessions are kept", f.Sessions())
	}
}

// SPEC G1: no transport and no era answers with code 0, and what is unknown is -32601.
func TestG1ErrorsOverHTTP(t *testing.T) {
	f := newWorld(t).front(t, httpfront.Settings{})
	session := f.initialize(t)
	stream := f.openSSE(t)
	stream.post(t, initialize("2024-11-05"))
	stream.next(t)
	for name, c := range map[string]struct {
		body string
		code int64
		id   string
	}{
		"unknown method":       {`{"jsonrpc":"2.0","id":8,"method":"no/such"}`, -32601, "8"},
		"missing params":       {`{"jsonrpc":"2.0","id":9,"method":"tools/call"}`, -32602, "9"},
		"null params":          {`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":null}`, -32602, "9"},
		"params of wrong type": {`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":[1]}`, -32602, "9"},
		"unknown tool":         {call(9, "nope"), -32602, "9"},
		"unknown resource":     {`{"jsonrpc":"2.0","id":9,"method":"resources/read","params":{"uri":"file:///x"}}`, -32602, "9"},
		"unknown prompt":       {`{"jsonrpc":"2.0","id":9,"method":"prompts/get","params":{"name":"x"}}`, -32602, "9"},
		"completion":           {`{"jsonrpc":"2.0","id":9,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"x"},"argument":{"name":"a","value":"b"}}}`, -32602, "9"},
		"bad cursor":           {`{"jsonrpc":"2.0","id":9,"method":"tools/list","params":{"cursor":"!"}}`, -32602, "9"},
		"initialize, no shape": {`{"jsonrpc":"2.0","id":9,"method":"initialize","params":[]}`, -32602, "9"},
		"broken JSON":          {`{"jsonrpc":`, -32700, "null"},
		"broken batch":         {`[{"jsonrpc":"2.0","id":1,"method":"ping"}`, -32700, "null"},
		"a bracket":            {`[`, -32700, "null"},
		"no JSON-RPC":          {`{"id":4,"method":"ping"}`, -32600, "4"},
		"fraction as id":       {`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, -32600, "1.5"},
	} {
		for transport, send := range map[string]func() reply{
			"stateful":    func() reply { return f.post(t, c.body, "Mcp-Session-Id", session) },
			"sessionless": func() reply { return f.post(t, c.body) },
			"sse":         func() reply { stream.post(t, c.body); return stream.next(t) },
		} {
			r := send()
			if !r.failed || r.code != c.code || transport != "sse" && string(r.id) != c.id {
				t.Errorf("%s, %s: got %d id %s code %d %q; want id %s code %d", name, transport, r.status, r.id, r.code, r.text, c.id, c.code)
			}
			if len(r.text) > 300 || strings.Contains(r.text, "*mcp.") {
				t.Errorf("%s, %s: internal text in %q", name, transport, r.text)
			}
			if r.code == -32601 && transport != "sse" && r.status != http.StatusOK {
				t.Errorf("%s, %s: status %d; the older eras have 200", name, transport, r.status)
			}
		}
	}
	if r := f.post(t, initialize("2025-11-25"), "Mcp-Session-Id", session); r.code != -32600 {
		t.Errorf("initialize twice: %s", r.raw)
	}
	if r := f.post(t, `{"jsonrpc":"2.0","method":"notifications/x"}`, "Mcp-Session-Id", session); r.status != http.StatusAccepted || r.raw != "" {
		t.Errorf("an unknown notification: %d %q; want 202 and nothing", r.status, r.raw)
	}
	if r := f.post(t, call(1, "echo"), "Mcp-Session-Id", "made-up"); r.status != http.StatusNotFound {
		t.Errorf("an unknown session: %d; want 404, upon which clients begin anew", r.status)
	}
	if r := f.post(t, `[`+call(1, "echo")+`,`+call(2, "nope")+`]`, "Mcp-Session-Id", session, "Mcp-Protocol-Version", "2025-03-26"); strings.Count(r.raw, "data: ") != 2 {
		t.Errorf("a batch: %s", r.raw)
	}
}

// rawSSE is a client of the legacy transport, without an SDK.
type rawSSE struct {
	f        *front
	scan     *bufio.Scanner
	endpoint string
	headers  []string
}

func (f *front) openSSE(t *testing.T, headers ...string) *rawSSE {
	t.Helper()
	res := f.open(t, http.MethodGet, "/sse", nil, headers...)
	if res.status != http.StatusOK {
		t.Fatalf("GET /sse: %d", res.status)
	}
	s := &rawSSE{f: f, scan: bufio.NewScanner(res.body), headers: headers}
	s.scan.Buffer(nil, 16<<20)
	s.endpoint = s.data(t)
	return s
}

// data returns the next event's data.
func (s *rawSSE) data(t *testing.T) string {
	t.Helper()
	for s.scan.Scan() {
		if d, ok := strings.CutPrefix(s.scan.Text(), "data: "); ok {
			return d
		}
	}
	t.Fatalf("the stream has ended: %v", s.scan.Err())
	return ""
}

func (s *rawSSE) next(t *testing.T) reply {
	t.Helper()
	r := reply{raw: s.data(t), header: http.Header{}}
	r.parse(t)
	return r
}

func (s *rawSSE) post(t *testing.T, body string) {
	t.Helper()
	if r := s.f.send(t, http.MethodPost, s.endpoint, body, s.headers...); r.status != http.StatusAccepted {
		t.Fatalf("POST: %d %s", r.status, r.raw)
	}
}

// A client that leaves its stream while its calls come in ends nothing but these:
// each is taken, or refused.
func TestG1AStreamEndsUnderItsCalls(t *testing.T) {
	f := newWorld(t).front(t, httpfront.Settings{})
	for range 20 {
		res := f.open(t, http.MethodGet, "/sse", nil)
		s := &rawSSE{f: f, scan: bufio.NewScanner(res.body)}
		s.endpoint = s.data(t)
		s.post(t, initialize("2024-11-05"))
		s.next(t)
		s.post(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		var id atomic.Int64
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for {
					r := f.send(t, http.MethodPost, s.endpoint, call(int(id.Add(1)), "echo"))
					if r.status == http.StatusNotFound {
						return
					}
					if r.status != http.StatusAccepted {
						t.Errorf("%d %s", r.status, r.raw)
						return
					}
				}
			})
		}
		for range 100 {
			s.next(t)
		}
		_ = res.body.Close()
		wg.Wait()
	}
}

// clients of every kind count the list_changed notifications they get.
func clients(t *testing.T, w *world) map[string]chan struct{} {
	f := w.front(t, httpfront.Settings{})
	all := map[string]chan struct{}{}
	options := func(name string) *mcp.ClientOptions {
		c := make(chan struct{}, 1000)
		all[name] = c
		return &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { c <- struct{}{} }}
	}
	f.connect(t, "2025-11-25", options("stream"))
	f.connect(t, "2025-03-26", options("older stream"))
	f.connect(t, newest, options("listen"))
	f.connectSSE(t, options("sse"))
	connect(t, stdioTransport(t, w), "2025-11-25", options("stdio"))
	connect(t, stdioTransport(t, w), newest, options("stdio listen"))
	return all
}

// setUntilHeard lists tools, and one more, which is another each time, until a client
// hears of it: a subscription begins some time after its client.
func (w *world) setUntilHeard(t *testing.T, client string, heard <-chan struct{}, tools ...*mcp.Tool) {
	t.Helper()
	eventually(t, client+" listens", func() bool {
		w.set(append(tools, tool("early-"+rand.Text()))...)
		select {
		case <-heard:
			return true
		case <-time.After(50 * time.Millisecond): // the SDK holds notifications back for 10 ms
			return false
		}
	})
}

func TestG3ListChangedReachesEverySession(t *testing.T) {
	w := newWorld(t)
	all := clients(t, w)
	for name, c := range all {
		w.setUntilHeard(t, name, c, tool("echo"))
	}
	changed := tool("added")
	changed.Description = "another"
	for _, step := range []struct {
		name  string
		tools []*mcp.Tool
	}{
		{"add", []*mcp.Tool{tool("added"), tool("echo")}},
		{"change", []*mcp.Tool{changed, tool("echo")}},
		{"remove", []*mcp.Tool{tool("echo")}},
	} {
		w.set(step.tools...)
		for name, c := range all {
			within(t, c, "list_changed on "+step.name+" for "+name)
		}
	}
}

func TestG3NothingIsSaidWhenNothingChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		heard := make(chan struct{}, 100)
		connect(t, stdioTransport(t, w), "2025-11-25", &mcp.ClientOptions{
			ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { heard <- struct{}{} },
		})
		for _, step := range []struct {
			tools []*mcp.Tool
			want  int
		}{
			{[]*mcp.Tool{tool("echo")}, 0},
			{[]*mcp.Tool{tool("a"), tool("b"), tool("echo")}, 1},
			{[]*mcp.Tool{tool("a"), tool("b"), tool("echo")}, 0},
			{[]*mcp.Tool{tool("echo")}, 1},
		} {
			w.set(step.tools...)
			time.Sleep(time.Second) // in a bubble
			if got := len(heard); got != step.want {
				t.Errorf("%d tools: %d notifications; want %d", len(step.tools), got, step.want)
			}
			for len(heard) > 0 {
				<-heard
			}
		}
	})
}

func TestG3ARemovedToolsCallEndsNormally(t *testing.T) {
	w := newWorld(t)
	g := newGate()
	w.set(tool("echo"), tool("slow"))
	w.answer("slow", g.answer)
	f := w.front(t, httpfront.Settings{})
	for _, version := range []string{"2025-11-25", newest, "sse"} {
		heard := make(chan struct{}, 100)
		opts := &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { heard <- struct{}{} }}
		var s *mcp.ClientSession
		if version == "sse" {
			s = f.connectSSE(t, opts)
		} else {
			s = f.connect(t, version, opts)
		}
		w.setUntilHeard(t, version, heard, tool("echo"), tool("slow"))
		eventually(t, "slow is listed", func() bool {
			list, err := s.ListTools(t.Context(), nil)
			return err == nil && len(list.Tools) == 3
		})
		done := make(chan *mcp.CallToolResult, 1)
		go func() {
			res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "slow"})
			if err != nil {
				t.Errorf("%s: %v", version, err)
			}
			done <- res
		}()
		within(t, g.began, "call")
		w.set(tool("echo"))
		within(t, heard, "list_changed")
		g.open <- struct{}{}
		if res := within(t, done, "answer"); res != nil && textOf(t, res) != "let through" {
			t.Errorf("%s: %s", version, textOf(t, res))
		}
		if _, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "slow"}); err == nil {
			t.Errorf("%s: a removed tool still answers", version)
		}
		mustCall(t, s, nil)
	}
}
