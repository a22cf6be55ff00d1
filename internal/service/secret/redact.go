package secret

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"
)

// Shorter texts are not redacted, since they also occur by chance: to replace every "a" would not
// hide that the secret is "a".
const (
	minRedacted = 4  // bytes of a value
	minPart     = 12 // bytes of a line of a value, or of base64 inside other base64
)

// longValues is the length in bytes of all values together above which they are searched for as they may be
// written once, not as what was written may be written again.
const longValues = 8 << 10

// maxSpans is how many occurrences are redacted one by one. A text with more of them becomes
// [redacted] as a whole: replacing each occurrence of a short value would make an untrusted text
// many times larger.
const maxSpans = 10_000

// Redactor removes secrets from untrusted texts. A nil Redactor removes nothing. It may be used from
// any goroutine.
type Redactor struct {
	values []Value
	forms  func() *search // the forms in which the values may appear
}

// NewRedactor returns a Redactor for values: each unchanged, as base64, as part of a URL, and as
// part of JSON in any spelling. Values under 4 bytes are ignored.
func NewRedactor(values ...Value) *Redactor {
	values = slices.Clone(values)
	return &Redactor{values, sync.OnceValue(func() *search {
		known, size := map[string]bool{}, 0
		for _, v := range values {
			size += len(v.Reveal())
		}
		for _, v := range values {
			for _, form := range formsOf(v.Reveal(), size > longValues) {
				known[form] = true
			}
		}
		texts := make([][]byte, 0, len(known))
		for form := range known {
			if len(form) >= minRedacted {
				texts = append(texts, []byte(form))
			}
		}
		slices.SortFunc(texts, func(a, b []byte) int {
			return cmp.Or(cmp.Compare(len(b), len(a)), bytes.Compare(a, b))
		})
		return newSearch(texts)
	})}
}

// Redact returns text with every value replaced by [redacted]. Values that overlap are replaced
// together. A text with more than 10,000 values becomes [redacted].
func (r *Redactor) Redact(text string) string {
	if r.isEmpty() || !strings.Contains(text, `\u`) && !strings.Contains(text, `\/`) && !r.forms().isIn([]byte(text)) {
		return text
	}
	return string(r.RedactBytes([]byte(text)))
}

// RedactBytes is Redact for bytes. It returns text itself if it contains no value.
func (r *Redactor) RedactBytes(text []byte) []byte {
	if r.isEmpty() {
		return text
	}
	clean, _, ok := r.clean(text, maxSpans)
	if !ok {
		return []byte(redacted)
	}
	return clean
}

// clean returns text without the values, and how many there were. It reports false if there are more
// than most.
func (r *Redactor) clean(text []byte, most int) (clean []byte, n int, ok bool) {
	spans, ok := r.forms().find(text, most)
	if !ok {
		return nil, 0, false
	}
	text = replaced(text, spans)
	odd, ok := r.escaped(text, most-len(spans))
	if !ok {
		return nil, 0, false
	}
	return replaced(text, odd), len(spans) + len(odd), true
}

// holds reports whether text contains a value.
func (r *Redactor) holds(text []byte) bool {
	if r.forms().isIn(text) {
		return true
	}
	_, none := r.escaped(text, 0)
	return !none
}

// isEmpty reports whether r removes nothing.
func (r *Redactor) isEmpty() bool { return r == nil || len(r.forms().texts) == 0 }

// replaced returns text with each span replaced by [redacted]; text itself if there is none.
func replaced(text []byte, spans []span) []byte {
	if len(spans) == 0 {
		return text
	}
	size := len(text)
	for _, s := range spans {
		size += len(redacted) - (s.to - s.from)
	}
	out := make([]byte, 0, size)
	at := 0
	for _, s := range spans {
		out = append(append(out, text[at:s.from]...), redacted...)
		at = s.to
	}
	return append(out, text[at:]...)
}

// TrimBytes removes from the end of a text that was cut what may be the beginning of a value.
func (r *Redactor) TrimBytes(text []byte) []byte {
	if r == nil {
		return text
	}
	keep := len(text)
	for _, form := range r.forms().texts {
		if n := overlap(text, form); n >= minRedacted {
			keep = min(keep, len(text)-n)
		}
	}
	return text[:keep]
}

// overlap returns the length of the longest beginning of form, but not all of it, that text ends with. It
// looks at each byte of both a few times, as the algorithm of Knuth, Morris and Pratt does.
func overlap(text, form []byte) int {
	text = text[max(0, len(text)-len(form)+1):]
	shorter := make([]int32, len(form)) // for each beginning of form, the next shorter one that it ends with
	n := int32(0)
	for i := 1; i < len(form); i++ {
		for n > 0 && form[i] != form[n] {
			n = shorter[n-1]
		}
		if form[i] == form[n] {
			n++
		}
		shorter[i] = n
	}
	n = 0
	for _, c := range text {
		for n > 0 && c != form[n] {
			n = shorter[n-1]
		}
		if c == form[n] {
			n++
		}
	}
	return int(n)
}

// formsOf returns the forms in which a value may appear, or, with once, those that are not forms of forms.
func formsOf(text string, once bool) []string {
	var forms []string
	for _, whole := range []string{text, strings.TrimSpace(text)} {
		if len(whole) < minRedacted {
			continue
		}
		if once { // the forms of its forms would take hundreds of times its size
			forms = append(forms, written(whole)...)
			forms = append(forms, encoded(whole)...)
			continue
		}
		// Twice: a service that repeats a request may write its JSON into a URL, or into JSON.
		for _, form := range written(whole) {
			forms = append(forms, written(form)...)
			forms = append(forms, encoded(form)...)
		}
	}
	if lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }); len(lines) > 1 {
		for _, line := range lines {
			if len(line) >= minPart {
				forms = append(forms, written(line)...)
			}
		}
	}
	return forms
}

// written returns a text unchanged, in a URL, in JSON, in Go's quotes and in HTML.
func written(text string) []string {
	forms := []string{
		text, url.QueryEscape(text), url.PathEscape(text),
		inJSON(text, true), inJSON(text, false), inASCII(text), unquoted(strconv.Quote(text)), html.EscapeString(text),
	}
	for _, escaped := range forms[1:3] {
		forms = append(forms, lowerEscapes(escaped))
	}
	slices.Sort(forms)
	return slices.Compact(forms)
}

// inJSON returns text as in a JSON string, without the quotes.
func inJSON(text string, forHTML bool) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(forHTML)
	if e.Encode(text) != nil {
		return "" // encoding a string cannot fail
	}
	return unquoted(strings.TrimSuffix(b.String(), "\n"))
}

// inASCII returns text as in a JSON string of only ASCII characters, which is the default of some
// libraries.
func inASCII(text string) string {
	var b strings.Builder
	for _, r := range inJSON(text, false) {
		if r < utf8.RuneSelf {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}

func unquoted(text string) string { return strings.TrimSuffix(strings.TrimPrefix(text, `"`), `"`) }

// lowerEscapes replaces escapes such as %2F by %2f, which some libraries write.
func lowerEscapes(text string) string {
	b := []byte(text)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:i+3], strings.ToLower(string(b[i+1:i+3])))
		}
	}
	return string(b)
}

// encoded returns a text as base64, including the forms inside a longer encoded text, such as a
// password in Authorization: Basic.
func encoded(text string) []string {
	var forms []string
	for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		whole := encoding.EncodeToString([]byte(text))
		forms = append(forms, whole+strings.Repeat("=", (4-len(whole)%4)%4), whole)
		for before := range 3 {
			// Three bytes are four characters. The characters that also encode bits of the bytes before
			// or after the text are left out.
			shifted := encoding.EncodeToString(append(make([]byte, before), text...))
			from, to := (before*8+5)/6, (before+len(text))*8/6
			if part := shifted[from:to]; len(part) >= minPart {
				forms = append(forms, part)
			}
		}
	}
	return forms
}
