package mcpbridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/orla-project/orla/supervisor"
)

// SPEC G1, L1: of calls that come all at once each gets its one answer, whole,
// whatever is written together, and the end of input waits for all.
func TestG1AnswersThatAreWrittenTogetherStayWhole(t *testing.T) {
	w := newWorld(t)
	var calls atomic.Int64
	sizes := []int{10, 3000, 16 << 10, 40 << 10, 200 << 10}
	w.raw("echo", func(context.Context, supervisor.Call) (json.RawMessage, error) {
		n := int(calls.Add(1))
		return fmt.Appendf(nil, `{"content":[{"type":"text","text":%q}]}`, strings.Repeat("x", sizes[n%len(sizes)])), nil
	})
	p := w.stdio(t, maxLine)
	p.open(t)
	const most = 300
	var all strings.Builder
	for id := range most {
		all.WriteString(call(id, "echo") + "\n")
	}
	go func() {
		p.in.Write([]byte(all.String())) //nolint:errcheck // the answers say
		_ = p.in.Close()
	}()
	answers, size := p.rest(t), 0
	for _, a := range answers {
		size += len(a.raw)
		if a.failed {
			t.Fatalf("failed: %.200s", a.raw)
		}
	}
	want := 0
	for n := 1; n <= most; n++ {
		want += sizes[n%len(sizes)]
	}
	if got := len(ids(answers)); got != most || len(answers) != most || size < want || size > want+most*200 {
		t.Errorf("%d answers of %d ids with %d bytes; want %d with %d", len(answers), got, size, most, want)
	}
}
