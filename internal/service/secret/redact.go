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

// What is too short to be told from the text around it is left as it is: to
// blank every "a" would not hide that the secret is "a".
const (
	minRedacted = 4  // bytes of a value
	minPart     = 12 // bytes of a line of a value, or of base64 in the midst of other base64
)

// maxSpans is how many values are taken out of a text one by one. A text with more of them
// becomes [redacted] as a whole: what a stranger fills with a short value would cost many
// times its size.
const maxSpans = 10_000

// Redactor takes secrets out of texts that strangers wrote. A nil Redactor
// takes out nothing. It may be used from any goroutine.
type Redactor struct {
	values []Value
	forms  func() *search // the texts by which the values are known
}

// NewRedactor returns a Redactor for values: each as it is, as base64, as a part
// of an URL, and as a part of JSON in any spelling. Values under 4 bytes stay.
func NewRedactor(values ...Value) *Redactor {
	values = slices.Clone(values)
	return &Redactor{values, sync.OnceValue(func() *search {
		known := map[string]bool{}
		for _, v := range values {
			for _, form := range formsOf(v.Reveal()) {
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

// Redact returns text with [redacted] in place of every value. Values that overlap
// become one. A text with more than 10,000 values becomes [redacted].
func (r *Redactor) Redact(text string) string {
	if r.isEmpty() || !strings.Contains(text, `\u`) && !strings.Contains(text, `\/`) && !r.forms().isIn([]byte(text)) {
		return text
	}
	return string(r.RedactBytes([]byte(text)))
}

// RedactBytes is Redact for bytes. It returns text itself if no value is in it.
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

// clean returns text without the values in it, and how many there were. If there are more
// than most, it reports false.
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

// holds reports whether a value is in text.
func (r *Redactor) holds(text []byte) bool {
	if r.forms().isIn(text) {
		return true
	}
	_, none := r.escaped(text, 0)
	return !none
}

// isEmpty reports whether r takes out nothing.
func (r *Redactor) isEmpty() bool { return r == nil || len(r.forms().texts) == 0 }

// replaced returns a text with [redacted] in place of each span, and text itself if
// there is none.
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

// TrimBytes takes off the end of a text that was cut short what may be the
// beginning of a value.
func (r *Redactor) TrimBytes(text []byte) []byte {
	if r == nil {
		return text
	}
	keep := len(text)
	for _, form := range r.forms().texts {
		for n := min(len(form)-1, len(text)); n >= minRedacted; n-- {
			if bytes.HasSuffix(text, form[:n]) {
				keep = min(keep, len(text)-n)
				break
			}
		}
	}
	return text[:keep]
}

// formsOf are the texts by which a value would be known.
func formsOf(text string) []string {
	var forms []string
	for _, whole := range []string{text, strings.TrimSpace(text)} {
		if len(whole) < minRedacted {
			continue
		}
		// Twice: what repeats a request may write JSON into a URL, or into JSON.
		for _, once := range written(whole) {
			forms = append(forms, written(once)...)
			forms = append(forms, encoded(once)...)
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

// written is a text as it is, in a URL, in JSON, in Go's quotes and in HTML.
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

// inJSON is text as a JSON string has it, less the quotes.
func inJSON(text string, forHTML bool) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(forHTML)
	if e.Encode(text) != nil {
		return "" // a string always encodes
	}
	return unquoted(strings.TrimSuffix(b.String(), "\n"))
}

// inASCII is text as a JSON string has it in which nothing but ASCII is, as some
// libraries write it by default.
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

// lowerEscapes writes %2F as %2f, which some do.
func lowerEscapes(text string) string {
	b := []byte(text)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:i+3], strings.ToLower(string(b[i+1:i+3])))
		}
	}
	return string(b)
}

// encoded is a text as base64, also where it stands in the midst of what was
// encoded, as a password does in Authorization: Basic.
func encoded(text string) []string {
	var forms []string
	for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		whole := encoding.EncodeToString([]byte(text))
		forms = append(forms, whole+strings.Repeat("=", (4-len(whole)%4)%4), whole)
		for before := range 3 {
			// Three bytes are four characters. Those that also hold bits of what
			// stands before or after the text are not the text's alone.
			shifted := encoding.EncodeToString(append(make([]byte, before), text...))
			from, to := (before*8+5)/6, (before+len(text))*8/6
			if part := shifted[from:to]; len(part) >= minPart {
				forms = append(forms, part)
			}
		}
	}
	return forms
}
