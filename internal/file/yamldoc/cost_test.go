package yamldoc_test

import (
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/internal/testing/costtest"
)

// SPEC S1: a file costs in proportion to its size, however long the keys are that much is below.
func TestS1FilesCostInProportion(t *testing.T) {
	type target struct {
		Any   yamldoc.JSON        `json:"any,omitempty"`
		Lists map[string][]string `json:"lists,omitempty"`
	}
	for name, text := range map[string]func(n int) string{
		"items below a long key": func(n int) string {
			return "any:\n  ? " + strings.Repeat("k", 2*n) + "\n  : [" + strings.Repeat("1,", n) + "]\n"
		},
		"texts below a long key": func(n int) string {
			return "lists:\n  ? " + strings.Repeat("k", 2*n) + "\n  : [" + strings.Repeat("a,", n) + "]\n"
		},
		"faults below a long key": func(n int) string {
			return "lists:\n  ? " + strings.Repeat("k", 2*n) + "\n  : [" + strings.Repeat("[],", n) + "]\n"
		},
	} {
		t.Run(name, func(t *testing.T) {
			costtest.Check(t, 3000, func(n int) func() {
				data := []byte(text(n))
				return func() {
					var into target
					_, _ = yamldoc.Decode("x", data, &into, yamldoc.Options{}) // whether it fits is another test's
				}
			})
		})
	}
}

// SPEC S1: the parser compares each %TAG directive with all others.
func TestS1ManyTagDirectivesAreRefused(t *testing.T) {
	var into struct {
		A int `json:"a"`
	}
	for n, want := range map[int]string{10: "", 1001: "x:1:1: more than 1000 %TAG directives are not supported"} {
		var text strings.Builder
		for i := range n {
			text.WriteString("%TAG !" + strings.Repeat("a", i+1) + "! x\n")
		}
		text.WriteString("---\na: 1\n")
		_, err := yamldoc.Decode("x", []byte(text.String()), &into, yamldoc.Options{})
		if err == nil && want != "" || err != nil && err.Error() != want {
			t.Errorf("%d: %v; want %q", n, err, want)
		}
	}
}
