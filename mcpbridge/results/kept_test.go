package results

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/turns"
)

// SPEC S2: a read of a kept answer takes the memory that was counted for it, however many of its
// characters are escaped, and its size is the same for the next read.
func TestS2AReadTakesWhatWasCounted(t *testing.T) {
	for name, text := range map[string]string{"plain": "x", "escaped": "<", "lines": "\n", "control": "\x01\x7f"} {
		t.Run(name, func(t *testing.T) {
			text = strings.Repeat(text, 1<<20)
			s := NewStore(unlimited)
			defer s.Close()
			id := strings.TrimPrefix(keptIn(s, text, "a", "1"), Prefix)
			a, ok := s.Get(id, "")
			size := a.EncodedSize()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			parts := a.Read("orla://answers/x", size, nil)
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; !ok || took > uint64(size+size/8) {
				t.Errorf("a read that counts as %d bytes takes %d", size, took)
			}
			var read string
			if err := json.Unmarshal(parts[1], &read); err != nil || read != text {
				t.Errorf("the text is another one: %v", err)
			}
			if again, _ := s.Get(id, ""); again.EncodedSize() != size || again.Part(1, 2).EncodedSize() != (Large{text: text[1:3]}).EncodedSize() {
				t.Error("the size is another one the second time, or that of a part is not its own")
			}
		})
	}
}

func unlimited(string, []string) int64 { return 0 }

// keptIn keeps a text for a call of a session, and returns its URI.
func keptIn(s *Store, text, session, call string) string {
	uri, _, _ := s.keep(Large{text: text}, Keeper{Owner: turns.Owner{Session: session}, Caller: "anonymous", Call: call})
	return uri
}

// SPEC N1: beyond its limit a caller loses its oldest answers, and no other caller does. All clients without a
// token are one caller. What does not fit at all is not kept, and parts of one answer do not replace each other.
func TestN1TheLimitOfKeptMemory(t *testing.T) {
	limit := int64(100)
	s := NewStore(func(caller string, _ []string) int64 {
		if caller == "anonymous" {
			return limit
		}
		return 0
	})
	defer s.Close()
	has := func(uri string) bool { _, ok := s.Get(strings.TrimPrefix(uri, Prefix), ""); return ok && uri != "" }
	text := strings.Repeat("x", 40)
	first, second := keptIn(s, text, "a", "1"), keptIn(s, text, "b", "2")
	if !has(first) || !has(second) {
		t.Fatal("what fits is not kept")
	}
	ann, _, _ := s.keep(Large{text: strings.Repeat("x", 1000)}, Keeper{Owner: turns.Owner{Caller: "ann"}, Caller: "ann", Call: "3"})
	third := keptIn(s, text, "a", "4")
	if has(first) || !has(second) || !has(third) {
		t.Errorf("the oldest is there: %t, the second: %t, the third: %t", has(first), has(second), has(third))
	}
	if _, ok := s.Get(strings.TrimPrefix(ann, Prefix), "ann"); !ok {
		t.Error("another caller loses its answers")
	}
	if uri, most, ok := s.keep(Large{text: strings.Repeat("x", 101)}, Keeper{Caller: "anonymous", Call: "5"}); ok || uri != "" || most != 100 || !has(second) {
		t.Error("more than the limit is kept, or others made room for it")
	}
	parts := []string{keptIn(s, text, "a", "6"), keptIn(s, text, "a", "6"), keptIn(s, text, "a", "6")}
	if !has(parts[0]) || !has(parts[1]) || has(parts[2]) {
		t.Error("a part of an answer makes room for another part of it")
	}
	if sizes := s.Sizes(); sizes["anonymous"] != 80 || sizes["ann"] != 1000 {
		t.Errorf("%v", sizes)
	}
	limit = 0 // by a reload
	keptIn(s, text, "a", "7")
	if !has(parts[0]) {
		t.Error("a limit holds that is gone")
	}
	s.DropOf(func(caller string) bool { return caller == "ann" })
	if sizes := s.Sizes(); len(sizes) != 1 || sizes["anonymous"] != 120 {
		t.Errorf("%v", sizes)
	}
}

// SPEC N1: an answer whose large part is not kept says so, and has no link to it.
func TestN1AnAnswerSaysWhatIsNotKept(t *testing.T) {
	s := NewStore(func(string, []string) int64 { return 1000 })
	defer s.Close()
	text := strings.Repeat("x", 1<<20)
	for name, res := range map[string]*mcp.CallToolResult{
		"text":       {Content: []mcp.Content{&mcp.TextContent{Text: text}}},
		"image":      {Content: []mcp.Content{&mcp.ImageContent{Data: []byte(text), MIMEType: "image/png"}}},
		"structured": {StructuredContent: json.RawMessage(`"` + text + `"`)},
		"meta":       {Meta: mcp.Meta{"x": text}},
	} {
		cut := NewCutter(s, 64<<10, Keeper{Caller: "ann", Call: "1"})
		raw, err := cut.Bound(res, false).MarshalJSON()
		if err != nil || len(raw) > 64<<10 || !strings.Contains(string(raw), "not kept, since ann may have 1000 bytes of answers kept") || strings.Contains(string(raw), Prefix) {
			t.Errorf("%s: %v %.300s", name, err, raw)
		}
	}
}
