package deps

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/costtest"
)

// SPEC S1: a requirements.txt of a stranger costs in proportion to its size, also with lines that go on, and no error has all
// of it.
func TestS1RequirementsCostInProportion(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "requirements.txt")
	costtest.Check(t, 20_000, func(n int) func() {
		put(t, file, strings.Repeat("a\\\n", n))
		return func() {
			if _, err := readRequirements(dir, file, nil); err == nil || len(err.Error()) > 1000 {
				t.Errorf("%.1000v", err)
			}
		}
	})
	put(t, file, "six==1 \\\n"+strings.Repeat(" --hash=sha256:0a \\\n", 10)+"\n"+strings.Repeat("x", longestLine+1))
	if _, err := readRequirements(dir, file, nil); err == nil || !strings.Contains(err.Error(), ":13: the line has over 65536 bytes") {
		t.Errorf("%.1000v", err)
	}
	put(t, file, strings.Repeat("six\n", mostAsked/4+1))
	if _, err := readRequirements(dir, file, nil); err == nil || !strings.Contains(err.Error(), "over 8388608 bytes") {
		t.Errorf("%.1000v", err)
	}
	put(t, file, strings.Repeat("a", 2000)+" \\")
	if _, err := readRequirements(dir, file, nil); err == nil || !strings.Contains(err.Error(), "does not end") || len(err.Error()) > 1000 {
		t.Errorf("%.2000v", err)
	}
}

// SPEC S1: the comparison of a lock with what is needed costs in proportion to both.
func TestS1LocksAreComparedInProportion(t *testing.T) {
	costtest.Check(t, 500, func(n int) func() {
		var a asked
		var needed []string
		for i := range n {
			a.required = append(a.required, fmt.Sprintf("package_%d==1.0 --hash=sha256:00", i))
			needed = append(needed, fmt.Sprintf("Package-%d", i))
		}
		slices.Reverse(needed)
		return func() {
			if name := a.lacks(needed); name != "" {
				t.Errorf("it lacks %s", name)
			}
			if name := a.lacks([]string{"other"}); name != "other" {
				t.Errorf("it lacks %q", name)
			}
		}
	})
}
