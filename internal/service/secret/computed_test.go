//go:build !race

package secret_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/service/secret"
)

// SPEC S2: an answer that is full of a secret takes a few times its bytes, and what is not
// redacted in parts is redacted as a whole.
func TestS2AnAnswerFullOfTheSecretTakesAFewTimesItsBytes(t *testing.T) {
	const size = 2 << 20
	deep := strings.ReplaceAll(`\u0061bcd`, `\`, `\\\\\\\\`) // in a string of JSON in a string, three times
	for name, c := range map[string]struct {
		unit, begin, end string
		whole            string // what comes of it; "": what is JSON, and not of one string alone
	}{
		"text":              {"abcd ", "", "", "[redacted]"},
		"strings":           {`,"abcd"`, `["\u0061"`, "]", `"[redacted]"`},
		"numbers":           {",123456", "[1", "]", `"[redacted]"`},
		"escapes":           {`\u0061bcd `, "", "", "[redacted]"},
		"deep escapes":      {deep + " ", `["abcd","`, `"]`, `"[redacted]"`},
		"deep strings":      {`,"` + deep + `"`, `["abcd"`, "]", `"[redacted]"`},
		"other strings":     {`,"a"`, `["abcd"`, "]", ""},
		"other escapes":     {`,"\n1234\u0061"`, `["abcd"`, "]", ""},
		"a string":          {`\n1234\u0061 ghij`, `["abcd `, `"]`, ""},
		"long, overlapping": {"xyz", "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := secret.NewRedactor(secret.NewValue("abcd"), secret.NewValue("123456"), secret.NewValue(strings.Repeat("xyz", 90)))
			body := []byte(c.begin + strings.Repeat(c.unit, size/len(c.unit)) + c.end)
			r.RedactBody([]byte("abcd")) // which finds out the forms
			before := allocated()
			got := r.RedactBody(body)
			if took := allocated() - before; took > 5*uint64(len(body)) {
				t.Errorf("%d bytes took %d", len(body), took)
			}
			if c.whole != "" && string(got) != c.whole {
				t.Errorf("it becomes %d bytes: %.100q", len(got), got)
			}
			if json.Valid(body) && !json.Valid(got) || bytes.Contains(got, []byte("abcd")) || !bytes.Contains(got, []byte("[redacted]")) {
				t.Errorf("it becomes %.100q", got)
			}
			before = allocated()
			text := r.RedactBytes(body)
			if took := allocated() - before; took > 5*uint64(len(body)) {
				t.Errorf("as bytes, %d took %d", len(body), took)
			}
			if bytes.Contains(text, []byte("abcd")) {
				t.Errorf("as bytes it becomes %.100q", text)
			}
		})
	}
}
