package terminal

import (
	"bytes"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/costtest"
)

// A character that a terminal obeys is found wherever in a line it is.
func TestI1EscapedWhereverItIs(t *testing.T) {
	for size := range 40 {
		for at := range size {
			line := []byte(strings.Repeat("a", at) + "\u202e" + strings.Repeat("a", size-at-1))
			if got, want := string(EscapedJSON(line)), strings.Repeat("a", at)+`\u202e`+strings.Repeat("a", size-at-1); got != want {
				t.Fatalf("%q became %q", line, got)
			}
		}
		if plain := strings.Repeat("a", size); string(EscapedJSON([]byte(plain))) != plain {
			t.Fatalf("%q became something else", plain)
		}
	}
}

// A line of the log that is full of what has to be escaped costs no more for each byte.
func TestS1EscapesCostInProportion(t *testing.T) {
	costtest.Check(t, 20_000, func(n int) func() {
		line := []byte(strings.Repeat("\u009b", n))
		return func() { EscapedJSON(bytes.Clone(line)) }
	})
}
