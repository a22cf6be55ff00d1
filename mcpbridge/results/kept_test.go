package results

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/file/memfile"
	"github.com/orla-project/orla/internal/testing/needs"
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
			size, err := a.EncodedSize()
			if err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			parts, err := a.Read("orla://answers/x", size, nil)
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; !ok || err != nil || took > uint64(size+size/8) {
				t.Errorf("a read that counts as %d bytes takes %d", size, took)
			}
			var read string
			if err := json.Unmarshal(parts[1], &read); err != nil || read != text {
				t.Errorf("the text is another one: %v", err)
			}
			again, _ := s.Get(id, "")
			part, err := again.Part(1, 2)
			if err != nil {
				t.Fatal(err)
			}
			ofPart, _ := part.EncodedSize()
			if now, _ := again.EncodedSize(); now != size || ofPart != jsonSize(text[1:3]) {
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

// SPEC N2: between parts of a large answer that is kept, and of one that is read, others may work.
func TestN2LargeAnswersAreWorkedOnInParts(t *testing.T) {
	const size = 4 << 20
	s := NewStore(unlimited)
	defer s.Close()
	rests := 0
	rest := func() { rests++ }
	text := strings.Repeat("x", size)
	for what, res := range map[string]*mcp.CallToolResult{
		"text":       {Content: []mcp.Content{&mcp.TextContent{Text: text}}},
		"image":      {Content: []mcp.Content{&mcp.ImageContent{Data: []byte(text), MIMEType: "image/png"}}},
		"structured": {StructuredContent: json.RawMessage(`{"x":"` + text + `"}`)},
		"passed":     nil,
	} {
		cut := NewCutter(s, 64<<10, Keeper{Caller: "ann", Call: "1"})
		cut.Rest = rest
		rests = 0
		if res != nil {
			cut.Bound(res, false)
		} else {
			p, _ := Look(json.RawMessage(`{"content":[{"type":"text","text":"`+text+`"}]}`), true)
			cut.Passed(&p, false)
		}
		if rests < size>>18 && runtime.GOOS == "linux" { // elsewhere it is in the heap
			t.Errorf("%s: %d rests while it is kept", what, rests)
		}
	}
	a, _ := s.Get(strings.TrimPrefix(keptIn(s, text, "a", "1"), Prefix), "")
	a.Rest = rest
	rests = 0
	encoded, err := a.EncodedSize()
	if err != nil || rests < size>>18 {
		t.Errorf("%d rests while it is measured, %v", rests, err)
	}
	rests = 0
	if _, err := a.Read("uri:x", encoded, nil); err != nil || rests < size>>18 {
		t.Errorf("%d rests while it is read, %v", rests, err)
	}
}

// SPEC G5a: an answer is read as it was, however its portions are cut, whole and in parts.
func TestG5aAnAnswerIsReadInPortions(t *testing.T) {
	s := NewStore(unlimited)
	defer s.Close()
	runes := []string{"a", "\n", "é", "\u2028", "€", "𝄞", "<"}
	for round := range needs.Rounds(20, 20) {
		random := rand.New(rand.NewPCG(uint64(round), 1))
		var b strings.Builder
		for size := 1 + random.IntN(4*portion); b.Len() < size; {
			b.WriteString(runes[random.IntN(len(runes))])
		}
		text := b.String()
		uri := keptIn(s, text, "a", "1")
		a, _ := s.Get(strings.TrimPrefix(uri, Prefix), "")
		if got := readText(t, a); got != text {
			t.Fatalf("seed %d: another text of %d bytes instead of %d", round, len(got), len(text))
		}
		var joined strings.Builder
		for from, step := 0, 1+random.IntN(portion); from < len(text); from += step {
			part, err := a.Part(from, step)
			if err != nil {
				t.Fatal(err)
			}
			joined.WriteString(readText(t, part))
		}
		if joined.String() != text {
			t.Fatalf("seed %d: the parts are not the text", round)
		}
		blob := []byte(text)
		uri, _, _ = s.keep(Large{blob: blob}, Keeper{Caller: "anonymous", Call: "2"})
		a, _ = s.Get(strings.TrimPrefix(uri, Prefix), "")
		parts, err := a.Read("u", 0, nil)
		var read []byte
		if err = cmp.Or(err, json.Unmarshal(parts[1], &read)); err != nil || !bytes.Equal(read, blob) {
			t.Fatalf("seed %d: %v, or another blob", round, err)
		}
	}
}

func readText(t *testing.T, a Kept) (text string) {
	t.Helper()
	size, err := a.EncodedSize()
	if err != nil {
		t.Fatal(err)
	}
	parts, err := a.Read("u", size, nil)
	if err != nil || int64(len(parts[1])) > size {
		t.Fatalf("%v, or %d bytes and not %d", err, len(parts[1]), size)
	}
	if err := json.Unmarshal(parts[1], &text); err != nil {
		t.Fatal(err)
	}
	return text
}

// SPEC N1: what was dropped while it was to be read is gone, and its memory as well.
func TestN1WhatIsDroppedIsGone(t *testing.T) {
	s := NewStore(func(string, []string) int64 { return 100 })
	defer s.Close()
	first := keptIn(s, strings.Repeat("x", 80), "a", "1")
	a, ok := s.Get(strings.TrimPrefix(first, Prefix), "")
	if !ok {
		t.Fatal("it is not kept")
	}
	keptIn(s, strings.Repeat("y", 80), "a", "2")
	if _, err := a.Read("u", 100, nil); !errors.Is(err, memfile.ErrGone) {
		t.Errorf("a read: %v", err)
	}
	if _, err := a.EncodedSize(); !errors.Is(err, memfile.ErrGone) {
		t.Errorf("its size: %v", err)
	}
	if _, err := a.Part(1, 2); !errors.Is(err, memfile.ErrGone) {
		t.Errorf("a part: %v", err)
	}
}
