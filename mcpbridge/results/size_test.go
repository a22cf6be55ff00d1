package results

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// SPEC S1: whether an answer is over a bound is the same whether all of it is looked at or as little as that takes.
func TestS1ASizeOverABound(t *testing.T) {
	const odd = "ab\"\\<\x00\x7f\u2028é\xff界"
	for range 2000 {
		var b strings.Builder
		for range rand.IntN(30) {
			b.WriteByte(odd[rand.IntN(len(odd))])
		}
		text, most := b.String(), rand.Int64N(120)
		if got, all := jsonSizeTo(text, most), jsonSize(text); (got > most) != (all > most) || got > all || got <= most && got != all {
			t.Fatalf("%q: %d of %d, with at most %d", text, got, all, most)
		}
		res := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}, &mcp.ImageContent{Data: []byte(text)}}, StructuredContent: json.RawMessage(text)}
		if got, all := resultSize(res, 4*most), resultSize(res, 1<<40); (got > 4*most) != (all > 4*most) {
			t.Fatalf("%q: an answer of %d of %d, with at most %d", text, got, all, 4*most)
		}
	}
}

// SPEC S1, S2: that an answer is much too large is known at once.
func TestS1ALargeAnswerIsNotMeasured(t *testing.T) {
	large := bytes.Repeat([]byte{0}, 64<<20)
	res := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(large)}}, StructuredContent: json.RawMessage(large)}
	for what, measure := range map[string]func() int64{
		"the answer": func() int64 { return resultSize(res, 1<<20) },
		"its block":  func() int64 { return blockSize(res.Content[0], 1<<20) },
	} {
		fastest := time.Hour
		for range 10 {
			began := time.Now()
			if measure() <= 1<<20 {
				t.Fatal(what, "is small")
			}
			fastest = min(fastest, time.Since(began))
		}
		if fastest > 10*time.Millisecond { // all of it takes 50 and more
			t.Errorf("%s takes %v", what, fastest)
		}
	}
}
