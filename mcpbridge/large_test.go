package mcpbridge_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// pair is a client on a bridge, in memory; it can live in a bubble.
func pair(t *testing.T, w *world) *mcp.ClientSession {
	return connect(t, stdioTransport(t, w), "2025-11-25", nil)
}

// small makes a world whose answers are cut at the least size there is.
func small(o *mcpbridge.Options) { o.MaxInline = 1 }

// uris are the links of an answer.
func uris(res *mcp.CallToolResult) []string {
	var all []string
	for _, c := range res.Content {
		if l, ok := c.(*mcp.ResourceLink); ok {
			all = append(all, l.URI)
		}
	}
	return all
}

func read(t *testing.T, s *mcp.ClientSession, uri string) *mcp.ResourceContents {
	t.Helper()
	res, err := s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
	if err != nil {
		t.Fatalf("read %s: %v", uri, err)
	}
	return res.Contents[0]
}

func (w *world) gives(res *mcp.CallToolResult, err error) {
	w.answer("echo", func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) { return res, err })
}

func ask(t *testing.T, s *mcp.ClientSession) *mcp.CallToolResult {
	t.Helper()
	res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo"})
	if err != nil {
		t.Fatalf("call: %v", err)
	}
	return res
}

func TestG5aLargeTextKeepsHeadAndTail(t *testing.T) {
	w := newWorld(t, small)
	s := pair(t, w)
	whole := "HEAD" + strings.Repeat("é\x01<\"世界\u2028", 10000) + "TAIL"
	w.gives(&mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: whole}, &mcp.TextContent{Text: "stderr"}}}, nil)
	res := ask(t, s)
	first := textOf(t, res)
	if !strings.HasPrefix(first, "HEAD") || !strings.HasSuffix(first, "TAIL") || !utf8.ValidString(first) || strings.ContainsRune(first, utf8.RuneError) {
		t.Errorf("the first block: %.40q … %q", first, first[len(first)-20:])
	}
	if res.Content[2].(*mcp.TextContent).Text != "stderr" || res.IsError {
		t.Errorf("the second block: %v", res.Content[2])
	}
	link := uris(res)[0]
	if got := read(t, s, fmt.Sprintf("%s/0/%d", link, len("HEAD"))); got.Text != "HEAD" || got.MIMEType != "text/plain" {
		t.Errorf("the first part: %+v", got)
	}
	// Parts of any size make the whole, and none has half a rune.
	for _, size := range []int{1, 2, 3, 5, 7, 1000, 1 << 14} {
		n := min(len(whole), 200*size)
		var got strings.Builder
		for at := 0; at < n; at += size {
			part := read(t, s, fmt.Sprintf("%s/%d/%d", link, at, size)).Text
			if !utf8.ValidString(part) || strings.ContainsRune(part, utf8.RuneError) {
				t.Fatalf("part %d of %d: %q", at, size, part)
			}
			got.WriteString(part)
		}
		if g := got.String(); !strings.HasPrefix(whole, g) || len(g) < n-4 && len(g) < len(whole)-4 {
			t.Errorf("parts of %d bytes make %d bytes; want %d of the whole", size, len(g), n)
		}
	}
	for _, bad := range []string{"/x/1", "/-1/1", "/1", "/1/2/3", "/99999999999999999999/1"} {
		if _, err := s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: link + bad}); err == nil {
			t.Errorf("%s was read", bad)
		}
	}
	if got := read(t, s, fmt.Sprintf("%s/%d/%d", link, len(whole)+5, 10)); got.Text != "" {
		t.Errorf("behind the end: %q", got.Text)
	}
	list, err := s.ListResources(t.Context(), nil)
	if err != nil || len(list.Resources) != 0 {
		t.Errorf("resources/list shows %v, %v; what is kept is the caller's own", list, err)
	}
	templates, err := s.ListResourceTemplates(t.Context(), nil)
	if err != nil || len(templates.ResourceTemplates) != 0 {
		t.Errorf("templates: %v, %v; the list is the peers'", templates, err)
	}
}

// SPEC G1: a URI that nobody kept anything at is refused, whatever it is made of, and its
// request is over then.
func TestG1AReadOfAnOddURIIsAnswered(t *testing.T) {
	w := newWorld(t)
	f := w.front(t, httpfront.Settings{})
	session := f.initialize(t)
	for _, uri := range []string{"orla://answers/A\x7f", `orla://answers/A\u0001`, `orla://answers/\ud800/0/1`, "orla://answers/\u2028", "orla:", "x\x7f:y", "a b://c", "%zz", ""} {
		r := f.post(t, `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"`+uri+`"}}`, "Mcp-Session-Id", session)
		if !r.failed || string(r.id) != "1" || r.code == jsonrpc.CodeInvalidRequest {
			t.Errorf("%q: %d %q", uri, r.status, r.raw)
		}
	}
}

// One message too long would end a connection that others share.
func TestG5aAWholeTooLargeForStdioIsReadInParts(t *testing.T) {
	w := newWorld(t, small)
	w.gives(text(strings.Repeat("x", 1<<20)), nil)
	s := pair(t, w)
	link := uris(ask(t, s))[0]
	_, err := s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: link})
	if err == nil || !strings.Contains(err.Error(), "in parts of") {
		t.Errorf("got %v", err)
	}
	for _, version := range []string{"2025-11-25", newest} {
		c := w.front(t, httpfront.Settings{}).connect(t, version, nil)
		if got := read(t, c, link).Text; len(got) != 1<<20 {
			t.Errorf("%s: over HTTP: %d bytes", version, len(got))
		}
	}
}

func TestG5aBlobsImagesAndStructuredContent(t *testing.T) {
	w := newWorld(t, small)
	f := w.front(t, httpfront.Settings{})
	s := f.connect(t, "2025-11-25", nil)
	blob := bytes.Repeat([]byte{0, 1, 2, 255}, 50_000)
	big := json.RawMessage(`{"n":1.0,"s":"` + strings.Repeat("<", 50_000) + `"}`)
	w.gives(&mcp.CallToolResult{
		Content: []mcp.Content{
			&mcp.TextContent{Text: "out"},
			&mcp.ImageContent{Data: blob, MIMEType: "image/png"},
			&mcp.AudioContent{Data: blob, MIMEType: strings.Repeat("x", 1000)},
			&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "a:b", Blob: blob, MIMEType: "a/b"}},
			&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "a:b", Text: string(big), MIMEType: "text/html"}},
			&mcp.ResourceLink{URI: "a:" + strings.Repeat("b", 100_000), Name: "l"},
		},
		StructuredContent: big,
	}, nil)
	res := ask(t, s)
	if textOf(t, res) != "out" || res.IsError || res.StructuredContent != nil {
		t.Errorf("%v", res)
	}
	links := uris(res)
	if len(links) != 6 {
		t.Fatalf("links: %v", links)
	}
	for i, mime := range []string{"image/png", "application/octet-stream", "a/b"} {
		if got := read(t, s, links[i]); !bytes.Equal(got.Blob, blob) || got.MIMEType != mime {
			t.Errorf("link %d: %d bytes of %s", i, len(got.Blob), got.MIMEType)
		}
	}
	if got := read(t, s, links[0]+"/4/8"); !bytes.Equal(got.Blob, blob[4:12]) {
		t.Errorf("a part of a blob: %v", got.Blob)
	}
	if got := read(t, s, links[3]); got.Text != string(big) || got.MIMEType != "text/html" {
		t.Errorf("embedded text: %.50q", got.Text)
	}
	if got := read(t, s, links[5]); got.Text != string(big) || got.MIMEType != "application/json" {
		t.Errorf("structured content: %.50q", got.Text)
	}
}

// Clients take no answer without structured content from a tool with an output
// schema, but for an error.
func TestG5aStructuredContentThatIsExpected(t *testing.T) {
	w := newWorld(t, small)
	out := tool("echo")
	out.OutputSchema = json.RawMessage(`{"type":"object"}`)
	w.set(out)
	w.gives(&mcp.CallToolResult{StructuredContent: json.RawMessage(`{"s":"` + strings.Repeat("x", 100_000) + `"}`)}, nil)
	s := pair(t, w)
	eventually(t, "the schema is listed", func() bool {
		list, err := s.ListTools(t.Context(), nil)
		return err == nil && list.Tools[0].OutputSchema != nil
	})
	res := ask(t, s)
	if !res.IsError || res.Meta["tool_code"] != "execution_failed" || !strings.Contains(textOf(t, res), uris(res)[0]) {
		t.Errorf("%v %v", res.IsError, res.Meta)
	}
}

func TestG5aAFaultStaysReadable(t *testing.T) {
	w := newWorld(t, small)
	w.gives(text(strings.Repeat("x", 1<<20)), fault.New(fault.Timeout, "it took too long"))
	res := ask(t, pair(t, w))
	last := res.Content[len(res.Content)-1].(*mcp.TextContent)
	if last.Text != "it took too long" || res.Meta["tool_code"] != "timeout" || !res.IsError {
		t.Errorf("%q %v", last.Text, res.Meta)
	}
}

func TestG5aKeptForTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, small)
		w.gives(text(strings.Repeat("x", 100_000)), nil)
		s := pair(t, w)
		link := uris(ask(t, s))[0]
		time.Sleep(5 * time.Minute) // in a bubble
		later := uris(ask(t, s))[0]
		time.Sleep(5*time.Minute - time.Second)
		read(t, s, link+"/0/1")
		time.Sleep(2 * time.Second)
		if _, err := s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: link + "/0/1"}); err == nil {
			t.Error("it can be read after ten minutes")
		}
		read(t, s, later+"/0/1")
	})
}

func TestG5aTheBudgetDropsTheOldest(t *testing.T) {
	needs.Time(t, "keeps answers of 50 MiB")
	w := newWorld(t, small)
	s := pair(t, w)
	w.gives(text(strings.Repeat("x", 50<<20)), nil)
	first, second := uris(ask(t, s))[0], uris(ask(t, s))[0]
	read(t, s, first+"/0/1")
	third := uris(ask(t, s))[0]
	if _, err := s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: first + "/0/1"}); err == nil {
		t.Error("the oldest is still there")
	}
	read(t, s, second+"/0/1")
	read(t, s, third+"/0/1")
}

// shape makes an answer of any kind.
func shape(r *rand.Rand) *mcp.CallToolResult {
	pieces := []string{"a", "\x00", "\xff", "<", "\"", "\u2028", "世", "\n", "\U0001F600", "\\"}
	str := func(most int) string {
		n := r.IntN(most + 1)
		if r.IntN(3) == 0 {
			n = r.IntN(200)
		}
		p := pieces[r.IntN(len(pieces))]
		return strings.Repeat(p, n/len(p))
	}
	meta := func() mcp.Meta {
		if r.IntN(4) > 0 {
			return nil
		}
		return mcp.Meta{"m": str(100_000)}
	}
	res := &mcp.CallToolResult{Meta: meta(), IsError: r.IntN(2) == 0}
	most := []int{10, 1000, 30_000, 200_000}[r.IntN(4)]
	for range r.IntN([]int{3, 30, 300}[r.IntN(3)]) {
		var c mcp.Content
		switch r.IntN(8) {
		case 0:
			c = &mcp.ImageContent{Data: []byte(str(most)), MIMEType: str(300), Meta: meta()}
		case 1:
			c = &mcp.AudioContent{Data: []byte(str(most)), MIMEType: "audio/x"}
		case 2:
			c = &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: str(100), Text: str(most), MIMEType: str(300)}, Meta: meta()}
		case 3:
			c = &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "a:b", Blob: []byte(str(most)), Meta: meta()}}
		case 4:
			c = &mcp.ResourceLink{URI: str(most), Name: str(100), Description: str(1000)}
		default:
			c = &mcp.TextContent{Text: str(most), Meta: meta()}
		}
		res.Content = append(res.Content, c)
		most = max(most*9/10, 10)
	}
	if r.IntN(2) == 0 {
		raw, err := json.Marshal(map[string]string{"s": str(200_000)})
		if err != nil {
			panic(err)
		}
		res.StructuredContent = json.RawMessage(raw)
	}
	return res
}

func TestG5aNoAnswerIsOverMaxInline(t *testing.T) {
	w := newWorld(t, small)
	f := w.front(t, httpfront.Settings{})
	body, headers := newEra("tools/call", "echo", `"name":"echo"`)
	for seed := range uint64(needs.Rounds(8, 14)) { // of fewer, none has no content, and none is a long error
		res := shape(rand.New(rand.NewPCG(seed, 1)))
		var first string
		if len(res.Content) > 0 {
			if c, ok := res.Content[0].(*mcp.TextContent); ok {
				first = strings.ToValidUTF8(c.Text[:min(len(c.Text), 20)], "")
			}
		}
		w.gives(res, nil)
		r := f.post(t, body, headers...)
		if r.failed || len(r.result) == 0 {
			t.Fatalf("seed %d: %.300s", seed, r.raw)
		}
		if len(r.raw) > mcpbridge.MinMaxInline {
			t.Errorf("seed %d: %d bytes; want %d at most", seed, len(r.raw), mcpbridge.MinMaxInline)
		}
		var got mcp.CallToolResult
		if err := json.Unmarshal(r.result, &got); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if res.IsError != got.IsError {
			t.Errorf("seed %d: isError %v became %v", seed, res.IsError, got.IsError)
		}
		if first != "" && !strings.HasPrefix(textOf(t, &got), first[:1]) && first[0] < utf8.RuneSelf {
			t.Errorf("seed %d: begins with %.20q; want %q", seed, textOf(t, &got), first)
		}
	}
}

// An answer that fits is not touched.
func TestG5aWhatFitsIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	f := w.front(t, httpfront.Settings{})
	big := strings.Repeat("x", 3<<20)
	data := bytes.Repeat([]byte{7}, 100_000)
	w.gives(&mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: big}, &mcp.ImageContent{Data: data}}}, nil)
	r := f.post(t, call(1, "echo"))
	if !strings.Contains(r.raw, big) || !strings.Contains(r.raw, base64.StdEncoding.EncodeToString(data)) {
		t.Errorf("%d bytes", len(r.raw))
	}
}

// The Python SDK takes events of 1 MiB at most, but bodies of any size.
func TestG5aALargeAnswerIsAJSONBody(t *testing.T) {
	w := newWorld(t)
	w.gives(text(strings.Repeat("x", 2<<20)), nil)
	f := w.front(t, httpfront.Settings{})
	session := f.initialize(t)
	body, headers := newEra("tools/call", "echo", `"name":"echo"`)
	for name, r := range map[string]reply{
		"stateful": f.post(t, call(1, "echo"), "Mcp-Session-Id", session), "sessionless": f.post(t, call(1, "echo")), "new": f.post(t, body, headers...),
	} {
		if r.header.Get("Content-Type") != "application/json" || r.status != 200 || len(r.result) < 2<<20 {
			t.Errorf("%s: %d %s, %d bytes", name, r.status, r.header.Get("Content-Type"), len(r.result))
		}
	}
	r := f.post(t, `[`+call(1, "echo")+`,`+call(2, "echo")+`]`, "Mcp-Session-Id", session, "Mcp-Protocol-Version", "2025-03-26")
	if strings.Count(r.raw, "data: ") != 2 {
		t.Errorf("a batch: %d events of %d bytes", strings.Count(r.raw, "data: "), len(r.raw))
	}
}
