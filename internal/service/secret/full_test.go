package secret_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"runtime"
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

func allocated() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.TotalAlloc
}

// SPEC S2: to search for a long value does not take thousands of times its size.
func TestS2ALongValueTakesLittle(t *testing.T) {
	const size, most = secret.MaxValue, 600
	value := strings.Repeat("a<\"&\\/+é%", size/10)
	r := secret.NewRedactor(secret.NewValue(value))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := r.Redact("it says " + url.QueryEscape(value) + ".")
	runtime.ReadMemStats(&after)
	if got != "it says [redacted]." {
		t.Errorf("%.100s", got)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > most*size {
		t.Errorf("it took %d bytes for each of the value; want %d at most", took/size, most)
	}
}

// SPEC S2: many short values cost no more than one long value.
func TestS2ManyValuesTakeLittle(t *testing.T) {
	const size, most = secret.MaxValues, 1500
	var values []secret.Value
	for i := range size / 64 {
		values = append(values, secret.NewValue(fmt.Sprintf("%016d", i)+strings.Repeat("a<\"&\\/+é%", 5)[:48]))
	}
	if err := secret.CheckSize(values); err != nil {
		t.Fatal(err)
	}
	var last secret.Last
	r := last.Redactor(values...)
	before := allocated()
	got := r.Redact("it says " + url.QueryEscape(values[7].Reveal()) + ".")
	if took := allocated() - before; took > most*size {
		t.Errorf("it took %d bytes for each of the values; want %d at most", took/size, most)
	}
	if got != "it says [redacted]." {
		t.Errorf("%.100s", got)
	}
	if last.Redactor(values...) != r {
		t.Error("the same values are searched for by another Redactor")
	}
	if last.Redactor(values[1:]...) == r {
		t.Error("other values are searched for by the same Redactor")
	}
	if err := secret.CheckSize(append(values, secret.NewValue("x"))); err == nil {
		t.Error("more than 64 KiB of values are allowed")
	}
}
