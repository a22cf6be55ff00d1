//go:build !race

package history_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/observe/history"
)

// SPEC L4: a quiet capsule costs next to nothing, a chatty one its bounds, and
// ten thousand of them what all may take.
func TestMemoryIsBounded(t *testing.T) {
	stderr := line("", "stderr", 0)
	stderr.JSON = fmt.Appendf(nil, `{"msg":"stderr","text":%q}`, strings.Repeat("x", 200))
	const forAll = 340 << 10 // what is kept of everything
	for _, c := range []struct {
		name         string
		tools, lines int
		most         int64
	}{
		{"100 quiet ones", 100, 5, forAll + 100*4<<10},
		{"100 chatty ones", 100, 400, forAll + 100*84<<10},
		{"twice the tools that are known", 20_000, 1, 10_000 * 2 << 10},
		{"chatty ones past what all may take", 1500, 250, 80 << 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := held(func(h *history.History) {
				for tool := range c.tools {
					l, call := stderr, line("", "call", 1)
					l.Tool = fmt.Sprint("tool", tool)
					call.Tool = l.Tool
					for range c.lines {
						h.Add(l)
						h.Add(call)
					}
				}
			})
			t.Logf("%d bytes, %d for each tool", got, got/int64(c.tools))
			if got > c.most {
				t.Errorf("it takes %d bytes; want at most %d", got, c.most)
			}
		})
	}
}
