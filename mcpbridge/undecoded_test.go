package mcpbridge_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// SPEC S2: what is decoded of a peer's answer takes many times its bytes in memory (4
// answers of 16 MiB with small values took 2.4 GiB and 25 s), so that it is bounded.
func TestS2WhatIsDecodedOfAnAnswerIsBounded(t *testing.T) {
	needs.Time(t, "reads answers of many megabytes")
	const large = 5 << 20 // bytes
	members := func(n int) string {
		var out strings.Builder
		for i := range n {
			fmt.Fprintf(&out, `"k%d":1,`, i)
		}
		return out.String() + `"k":1`
	}
	var (
		values = strings.Repeat("1,", large/2) + "1"
		many   = members(large / 11)
	)
	w := newWorld(t)
	f := w.front(t, httpfront.Settings{})
	session := f.initialize(t)
	for name, c := range map[string]struct{ raw, says string }{
		"_meta":                   {`{"content":[{"type":"text","text":"kept"}],"_meta":{"tool_code":"mine",` + many + `},"isError":true}`, `"mine"`},
		"structured content":      {`{"content":[{"type":"text","text":"kept"}],"structuredContent":{"a":[` + values + `]}}`, "kept"},
		"blocks":                  {`{"content":[` + strings.Repeat(`{"type":"text","text":""},`, large/26) + `{"type":"text","text":""}]}`, "as JSON it is at"},
		"_meta of a block":        {`{"content":[{"type":"text","text":"kept","_meta":{` + many + `}}]}`, "as JSON it is at"},
		"blocks of unknown kinds": {`{"content":[` + strings.Repeat(`{},`, large/3) + `{}]}`, "as JSON it is at"},
		"an escaped key":          {`{"content":[],"\u0061":1,` + many + `}`, "not a result"},
	} {
		w.says(c.raw, nil)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := f.post(t, call(1, "echo"), "Mcp-Session-Id", session)
		runtime.ReadMemStats(&after)
		if !strings.Contains(r.raw, c.says) || len(r.raw) > large/2 {
			t.Errorf("%s: %.300s; want %q", name, r.raw, c.says)
		}
		if times := float64(after.TotalAlloc-before.TotalAlloc) / float64(len(c.raw)); times > 20 {
			t.Errorf("%s: an answer of %d bytes took %.1f times as many", name, len(c.raw), times)
		}
	}
}
