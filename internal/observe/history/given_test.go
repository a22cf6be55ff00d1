//go:build !race

package history_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/observe/history"
	"github.com/orla-project/orla/internal/testing/needs"
)

// SPEC Q1, S2: what is given is bounded, and has the tools that said something last.
func TestQ1TheGivenHistoryIsBounded(t *testing.T) {
	needs.Time(t, "keeps many lines")
	h := history.New()
	for tool := range 300 {
		for i := range 500 {
			l := line(fmt.Sprintf("tool%d", tool), "stderr", i)
			l.JSON = fmt.Appendf(nil, `{"i":%d,"text":%q}`, i, strings.Repeat("x", 200))
			h.Add(l)
		}
	}
	given := h.Give()
	const most = 9 << 20
	if len(given) > most {
		t.Errorf("%d bytes are given; want at most %d", len(given), most)
	}
	next := taken(t, h)
	of := func(tool int) int { return len(next.Last(history.Query{Tools: []string{fmt.Sprintf("tool%d", tool)}})) }
	if of(0) != 0 || of(299) == 0 {
		t.Errorf("the tool that spoke first has %d lines, the one that spoke last %d", of(0), of(299))
	}
}
