package secret

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
)

// SPEC S1: what a cut text may end with is found in one look, and is the longest beginning of a value.
func TestS1OverlapIsTheLongest(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	random := func(most int) []byte {
		text := make([]byte, 1+rng.IntN(most))
		for i := range text {
			text[i] = "ab"[rng.IntN(2)]
		}
		return text
	}
	for range 5000 {
		text, form := random(40), random(20)
		want := 0
		for n := 1; n < len(form); n++ {
			if bytes.HasSuffix(text, form[:n]) {
				want = n
			}
		}
		if got := overlap(text, form); got != want {
			t.Fatalf("%q ends with %d bytes of %q, want %d", text, got, form, want)
		}
	}
	many := []byte(strings.Repeat("a", 1<<20)) // minutes, if each beginning were compared
	if got := overlap(append(many, 'b'), many); got != 0 {
		t.Errorf("got %d", got)
	}
}
