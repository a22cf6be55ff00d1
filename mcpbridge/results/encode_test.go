package results

import (
	"encoding/json"
	"maps"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// What is encoded without the SDK is what it would have made, in both eras.
func TestEncodeIsTheSDKs(t *testing.T) {
	self := &mcp.Implementation{Name: "orla", Title: "<Orla>", Version: "1"}
	selfJSON, err := json.Marshal(self)
	if err != nil {
		t.Fatal(err)
	}
	words := []string{"", "plain", "a\"b\\c/d", "<b>&amp;</b>", "\x00\x1f\x7f\n\t", "é \u2028 \u2029 😀", "not \xff UTF-8 \xc3"}
	results := map[string]*mcp.CallToolResult{
		"nothing": {Content: []mcp.Content{}},
		"a simple tool's": {
			Meta:    mcp.Meta{"exit_code": 3, "duration_ms": int64(1 << 62), "stdout_dropped": int64(-1), "signal": "killed", "retryable": false, "empty": "", "is": true},
			Content: []mcp.Content{&mcp.TextContent{Text: "one"}, &mcp.TextContent{Text: "two"}}, IsError: true,
		},
		"keys in need of escapes": {Meta: mcp.Meta{"a\"<b": 1, "é": 2, "io": 3, "io.z": 4}, Content: []mcp.Content{}},
	}
	for _, word := range words {
		results["text "+word] = &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: word}}, Meta: mcp.Meta{word: word}}
	}
	for name, res := range results {
		want, err := res.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := Encode(res, nil); !ok || string(got) != string(want) {
			t.Errorf("%s: %q %v, want %q", name, got, ok, want)
		}
		said := *res
		said.Meta = mcp.Meta{mcp.MetaKeyServerInfo: self}
		maps.Copy(said.Meta, res.Meta)
		if want, err = said.MarshalJSON(); err != nil {
			t.Fatal(err)
		}
		want = append(want[:len(want)-1], `,"resultType":"complete"}`...)
		if got, ok := Encode(res, selfJSON); !ok || string(got) != string(want) {
			t.Errorf("%s, stateless: %q %v, want %q", name, got, ok, want)
		}
	}
	for name, res := range map[string]*mcp.CallToolResult{
		"an image":            {Content: []mcp.Content{&mcp.ImageContent{Data: []byte("x"), MIMEType: "image/png"}}},
		"a marked block":      {Content: []mcp.Content{&mcp.TextContent{Meta: mcp.Meta{"stream": "stderr"}}}},
		"structure":           {Content: []mcp.Content{}, StructuredContent: json.RawMessage("{}")},
		"a number of another": {Content: []mcp.Content{}, Meta: mcp.Meta{"n": json.Number("1e5")}},
		"an object":           {Content: []mcp.Content{}, Meta: mcp.Meta{"o": map[string]any{}}},
		"no list of blocks":   {},
		"the protocol's word": {Content: []mcp.Content{}, Meta: mcp.Meta{mcp.MetaKeyServerInfo: "another"}},
	} {
		if got, ok := Encode(res, nil); ok {
			t.Errorf("%s: encoded as %q, and is the SDK's", name, got)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	res := &mcp.CallToolResult{
		Meta:    mcp.Meta{"exit_code": 0, "duration_ms": int64(1), "stdout_dropped": int64(0), "stderr_dropped": int64(0)},
		Content: []mcp.Content{&mcp.TextContent{Text: `{"text":"hello"}`}},
	}
	b.Run("direct", func(b *testing.B) {
		for b.Loop() {
			Encode(res, nil)
		}
	})
	b.Run("by the SDK", func(b *testing.B) {
		for b.Loop() {
			_, _ = res.MarshalJSON()
		}
	})
}
