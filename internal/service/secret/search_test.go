//go:build !race

package secret_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/internal/testing/costtest"
)

// SPEC-TOOLS 5.3: secrets that overlap in a text are hidden both.
func TestT53OverlappingSecrets(t *testing.T) {
	r := secret.NewRedactor(secret.NewValue("abcd-1234"), secret.NewValue("1234-wxyz"), secret.NewValue("zzzz"))
	for text, want := range map[string]string{
		"x abcd-1234-wxyz x":    "x [redacted] x",
		"abcd-12341234-wxyz":    "[redacted][redacted]",
		"zzzzzzz":               "[redacted]",
		"abcd-123 1234-wxy zzz": "abcd-123 1234-wxy zzz",
		`abcd-1234-wxyz\u0021`:  `[redacted]\u0021`,
		`abc\u0064-1234-wxyz`:   `abc\u0064-[redacted]`,
	} {
		if got := r.Redact(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

// SPEC-TOOLS 5.3: the search for all texts at once finds what a search for each finds.
func TestT53FindsWhatASearchForEachFinds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	word := func(letters string, size int) []byte {
		b := make([]byte, size)
		for i := range b {
			b[i] = letters[random.IntN(len(letters))]
		}
		return b
	}
	for round := range 3000 {
		letters := "abcdefghijklmnopqrstuvwxyz"[:2+round%7]
		var texts [][]byte
		for range 1 + random.IntN(12) {
			texts = append(texts, word(letters, 4+random.IntN(8)))
		}
		for range random.IntN(3) { // long ones, that begin in the same way
			texts = append(texts, append(bytes.Repeat([]byte("xyz"), 83+random.IntN(4)), word(letters, 1+random.IntN(20))...))
		}
		checkFind(t, texts, func() []byte {
			text := word(letters+"x", random.IntN(300))
			for range random.IntN(4) {
				one := texts[random.IntN(len(texts))]
				text = slices.Concat(text, one[:random.IntN(len(one)+1)], one, word(letters, random.IntN(4)))
			}
			return text
		}())
	}
}

func FuzzT53Find(f *testing.F) {
	f.Add("secret-value", "a\nline-of-it\nand-another", "x line-of-it secret-value")
	f.Add("aaaa", "aaaabaaa", "aaaaabaaaaaabaaa")
	f.Fuzz(func(t *testing.T, a, b, text string) {
		var texts [][]byte
		for _, form := range slices.Concat(secret.FormsOf(a), secret.FormsOf(b)) {
			if len(form) <= 256 { // a longer one that overlaps itself is found once
				texts = append(texts, []byte(form))
			}
		}
		checkFind(t, texts, []byte(text+a+text+b))
	})
}

// checkFind compares what is found with what a search for each text finds.
func checkFind(t *testing.T, texts [][]byte, in []byte) {
	t.Helper()
	slices.SortFunc(texts, func(a, b []byte) int { return len(b) - len(a) })
	covered, joined := make([]bool, len(in)), make([]bool, len(in)+1) // joined to the byte before
	for _, text := range texts {
		for at := range in {
			if bytes.HasPrefix(in[at:], text) {
				for i := range text {
					covered[at+i] = true
					joined[at+i] = joined[at+i] || i > 0
				}
			}
		}
	}
	var want [][2]int
	for i := range in {
		switch {
		case covered[i] && joined[i]:
			want[len(want)-1][1] = i + 1
		case covered[i]:
			want = append(want, [2]int{i, i + 1})
		}
	}
	if got := secret.Find(texts, in); !slices.Equal(got, want) {
		t.Errorf("%q in %q: found %v, want %v", texts, in, got, want)
	}
}

// certificates is a value of so many lines, as a bundle of certificates is.
func certificates(lines int) string {
	random := rand.New(rand.NewPCG(3, 4))
	var b strings.Builder
	b.WriteString("-----BEGIN CERTIFICATE-----\n")
	for range lines {
		line := make([]byte, 0, 48)
		for range cap(line) {
			line = append(line, byte(random.Uint32()))
		}
		b.WriteString(base64.StdEncoding.EncodeToString(line) + "\n")
	}
	return b.String() + "-----END CERTIFICATE-----\n"
}

// SPEC S1: a secret of many lines does not multiply the cost of an answer. With n lines
// and n KiB of an answer, and with 2n of both, the cost is in proportion.
func TestS1TheCostOfRedactingManyLines(t *testing.T) {
	steps := func(lines int) string { // lines that begin in the same way
		var b strings.Builder
		for i := range lines {
			fmt.Fprintf(&b, "%sb\n", strings.Repeat("a", 12+i))
		}
		return b.String()
	}
	for name, c := range map[string]struct {
		value  func(n int) string
		answer func(value string) string // repeated
	}{
		"prose":              {certificates, func(string) string { return `{"text":"The quick brown fox."}` }},
		"the first line":     {certificates, func(value string) string { return strings.Split(value, "\n")[1] + "\n" }},
		"halves of lines":    {certificates, func(value string) string { return value[60:120] + value[200:240] + value[:70] }},
		"escapes":            {certificates, func(value string) string { return value[60:80] + `\u0041\\u0041\/` }},
		"the same beginning": {func(int) string { return steps(100) }, func(string) string { return "aaaaaaaaaaaaaaaa" }},
	} {
		t.Run(name, func(t *testing.T) {
			costtest.Check(t, 200, func(n int) func() {
				value := c.value(n)
				r := secret.NewRedactor(secret.NewValue(value))
				unit := c.answer(value)
				answer := []byte(strings.Repeat(unit, n*1024/len(unit)))
				r.RedactBytes(nil) // which finds out the forms
				return func() { r.RedactBytes(answer) }
			})
		})
	}
	t.Run("to begin", func(t *testing.T) {
		costtest.Check(t, 50, func(n int) func() {
			value := secret.NewValue(certificates(n))
			return func() { secret.NewRedactor(value).Redact("x") }
		})
	})
}
