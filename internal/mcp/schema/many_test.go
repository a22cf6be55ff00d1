//go:build !race

package schema

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
)

// many repeats a text with a number in it.
func many(n int, format string) string {
	var out strings.Builder
	for i := range n {
		if i > 0 {
			out.WriteByte(',')
		}
		fmt.Fprintf(&out, format, i)
	}
	return out.String()
}

// inUse is how many bytes of the heap are used.
func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// SPEC S2: however many schemas there are, and however much a short one takes, those that
// are compiled are few; and each is checked against, whether it is kept or not.
func TestS2CompiledSchemasAreBounded(t *testing.T) {
	needs.Time(t, "compiles thousands of schemas")
	for name, c := range map[string]struct {
		pattern string
		n       int
	}{
		"small ones": {"^[a-z]{100}$", 5000},
		"large ones": {`^(\p{L}{300})$`, 60},
	} {
		t.Run(name, func(t *testing.T) {
			before := inUse()
			raw := numbered(c.n, c.pattern)
			all := make([]*Schema, c.n)
			for i := range all {
				var err error
				if all[i], err = CompileInput(raw[i]); err != nil {
					t.Fatal(err)
				}
			}
			check := func(when string) {
				t.Helper()
				if took := inUse() - before; took > 2*maxKept {
					t.Errorf("%d schemas take %d MiB %s", c.n, took>>20, when)
				}
			}
			check("when they are known")
			for round := range 2 {
				for i, s := range all {
					if err := s.Validate(t.Context(), json.RawMessage(fmt.Sprintf(`{"p%d":"1"}`, i))); err == nil || !strings.Contains(err.Error(), fmt.Sprint("p", i)) {
						t.Fatalf("schema %d, the %d. time: %v", i, round, err)
					}
				}
				check("when each was used")
			}
			runtime.KeepAlive(all)
		})
	}
}
