package yamldoc

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/orla-project/orla/internal/testing/needs"
)

// described is a description as most tools have one.
const described = `description: Reads its arguments and prints them again, as one of many that do the same.
mcp:
  input_schema:
    type: object
    properties:
      text: {type: string, description: What to print.}
      count: {type: integer, description: "How often, at most 3: then it ends", minimum: 1}
    required: [text]

runtime:
  timeout: 30
`

// simply compares the nodes of both parsers, and reports whether the simple one has any.
func simply(t *testing.T, text string) bool {
	t.Helper()
	got := parseSimple([]byte(text))
	if got == nil {
		return false
	}
	var want yaml.Node
	if err := yaml.Unmarshal([]byte(text), &want); err != nil {
		t.Errorf("%q is taken for simple, but %v", text, err)
	} else if !reflect.DeepEqual(got, want.Content[0]) {
		t.Errorf("%q\ngot  %s\nwant %s", text, outline(got), outline(want.Content[0]))
	}
	return true
}

func outline(n *yaml.Node) string {
	text := fmt.Sprintf("%d:%d %s %q style %d %s%s%s", n.Line, n.Column, n.Tag, n.Value, n.Style, n.HeadComment, n.LineComment, n.FootComment)
	for _, below := range n.Content {
		text += " (" + outline(below) + ")"
	}
	return text
}

// SPEC B5: where a document is simple, it is read as the parser reads it.
func TestB5SimpleDocumentsAreReadAsTheParserReadsThem(t *testing.T) {
	for _, text := range []string{
		described, "a: b", "a: b\n", "a:\n  b: c\nd: 1\n", "a: {}\n", "a: []\n", "a: [b, {c: d}, [e]]\n", "\n\na: \"x # y: z\"\n", "a: true\nb: 0\n", "version: 1.2.3\nb: {c: 0.10.01.4}\n", "a-b_c: x, [y] {z} \"q\" 'r'\n",
	} {
		if !simply(t, text) {
			t.Errorf("%q is not taken for simple", text)
		}
	}
	for _, text := range []string{
		"", " a: b\n", "a:\n", "a:\n- b\n", "a:\n  - b\n", "a: b: c\n", "a: b # c\n", "a: b\n  c\n", "a: no\n", "NO: b\n", "a: 01\n", "a: 1.5\n", "a: 1.2.\n", "a: 1..2\n", "a: .1.2.3\n", "1.2.3: a\n", "a: 1.2.3-rc\n", "a: 2020-01-01\n", "a: ~\n",
		"a: b \n", "a: é\n", "a: b\r\n", "a: b\tc\n", "a: 'b'\n", "a: \"b\\n\"\n", "a: \"b\n  c\"\n", "a: {b: c,}\n", "a: {b: c?}\n", "a: {b}\n", "a: &x b\n", "a: *x\n",
		"a: |\n  b\n", "a: b\n   c: d\n", "a:\n  b: c\n d: e\n", "- a\n", "a\n", "? a\n", "---\na: b\n", "a: b\n---\nc: d\n", "a: b\n...\n", "a: {b: c\n", "a: b\n   \nc: d\n", "<<: {a: b}\n",
		"a:b\n", "a:  b\n", "a : b\n", "{a: b}\n", "a: [b]c\n", "a: {b: c} d\n", "a: [b,c]\n", "a: {b:c}\n",
		strings.Repeat("k", 1025) + ": b\n", "a: {" + strings.Repeat("k", 1025) + ": b}\n",
	} {
		simply(t, text)
	}
	r := rand.New(rand.NewPCG(5, 6))
	parts := []string{
		"a", "b", "key", "true", "no", "1", "01", "-", "- ", ": ", ":", ":\n", "\n", "\n", "\n  ", "\n    ", "  ", " ", ", ", ",", "{", "}", "[", "]", "\"", "'", "#", " #", "?", "? ",
		"a: b\n", "  c: d\n", "{a: b}", "[a, b]", "\"x y\"", "text with words.", "é", "|", ">", "&", "*", "!", "%", "@", "~", "...", "---\n", "\\", "<<", "null", "1.5", ".1", "0x1", "2020-01-01",
	}
	simple, rounds := 0, needs.Rounds(5000, 15_000)
	for range rounds {
		var text strings.Builder
		for range 1 + r.IntN(10) {
			text.WriteString(parts[r.IntN(len(parts))])
		}
		if simply(t, text.String()) {
			simple++
		}
	}
	// Small changes of what is simple.
	for range rounds {
		text := []byte(described)
		for range 1 + r.IntN(3) {
			part := parts[r.IntN(len(parts))]
			at := r.IntN(len(text))
			text = append(text[:at:at], append([]byte(part), text[min(len(text), at+r.IntN(3)):]...)...)
		}
		if simply(t, string(text)) {
			simple++
		}
	}
	if simple < rounds/50 {
		t.Errorf("only %d of %d documents are simple", simple, 2*rounds)
	}
	t.Logf("%d of %d documents are simple", simple, 2*rounds)
}

func FuzzSimple(f *testing.F) {
	f.Add(described)
	f.Fuzz(func(t *testing.T, text string) { simply(t, text) })
}

// SPEC S1: there may be ten thousand such documents at a start.
func TestS1ASimpleDocumentIsParsedOnce(t *testing.T) {
	if got := testing.AllocsPerRun(100, func() { Parse("f", []byte(described), Options{}) }); got > 100 { // the parser makes some 190
		t.Errorf("%.0f allocations", got)
	}
}

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		Parse("f", []byte(described), Options{})
	}
}
