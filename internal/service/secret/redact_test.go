//go:build !race

package secret_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/internal/testing/costtest"
)

// awkward is a secret that every encoding changes.
const awkward = `p/a+s&s <w>"rd'\=ü%🔑`

// SPEC-TOOLS 5.3: secrets are taken out of what services say, in whatever way
// they write them.
func TestRedact(t *testing.T) {
	inJSON, err := json.Marshal(awkward)
	if err != nil {
		t.Fatal(err)
	}
	r := secret.NewRedactor(secret.NewValue(awkward), secret.NewValue("other-secret"))
	for name, form := range map[string]string{
		"as it is":              awkward,
		"another":               "other-secret",
		"base64":                base64.StdEncoding.EncodeToString([]byte(awkward)),
		"base64 without =":      base64.RawStdEncoding.EncodeToString([]byte(awkward)),
		"base64 for URLs":       base64.URLEncoding.EncodeToString([]byte(awkward)),
		"in a query":            url.QueryEscape(awkward),
		"in a path":             url.PathEscape(awkward),
		"with small hex digits": strings.ToLower(url.QueryEscape("other-secret")),
		"in JSON":               strings.Trim(string(inJSON), `"`),
		"in JSON as ASCII":      `p/a+s&s <w>\"rd'\\=\u00fc%\ud83d\udd11`,
		"in quotes":             strconv.Quote(awkward),
		"in HTML":               html.EscapeString(awkward),
		"JSON in a query":       url.QueryEscape(strings.Trim(string(inJSON), `"`)),
		"JSON in JSON":          strings.Trim(strconv.Quote(strings.Trim(string(inJSON), `"`)), `"`),
		"a query in base64":     base64.StdEncoding.EncodeToString([]byte(url.QueryEscape(awkward))),
	} {
		got := r.Redact("before " + form + " after")
		if again := string(r.RedactBytes([]byte("before " + form + " after"))); again != got {
			t.Errorf("%s: as bytes it becomes %q", name, again)
		}
		if strings.Contains(got, form) || !strings.Contains(got, "[redacted]") || !strings.HasPrefix(got, "before ") || !strings.HasSuffix(got, " after") {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

// SPEC-TOOLS 5.3: JSON has several spellings of a character. PHP escapes "/", .NET escapes "+", and
// anybody may escape everything, also in JSON that stands in a string of JSON.
func TestT53RedactOddJSON(t *testing.T) {
	const value = "dGhpcyBpcyBh/c2VjcmV0+dG9rZW4/Zm9y+b3JsYQ=="
	everything := func(text, escape string) string {
		var b strings.Builder
		for _, r := range text {
			fmt.Fprintf(&b, `%su%04X`, escape, r)
		}
		return b.String()
	}
	r := secret.NewRedactor(secret.NewValue(value), secret.NewValue(awkward))
	for name, form := range map[string]string{
		"PHP":                strings.ReplaceAll(value, "/", `\/`),
		"NET":                strings.ReplaceAll(strings.ReplaceAll(value, "+", `\u002B`), "=", `\u003d`),
		"both":               strings.ReplaceAll(strings.ReplaceAll(value, "+", `\u002B`), "/", `\/`),
		"everything":         everything(value, `\`),
		"everything, deeper": everything(value, `\\`),
		"deepest":            everything(value, `\\\\`),
		"PHP, deeper":        strings.ReplaceAll(value, "/", `\\\/`),
		"base64, escaped":    everything(base64.StdEncoding.EncodeToString([]byte(value)), `\`),
		"awkward":            everything("p/a+s&s <w>", `\`) + `\"rd'\\=\u00fc%\uD83D\uDD11`,
	} {
		for _, text := range []string{`{"a":"before ` + form + ` after"}`, `{"a":"\u00e4\n` + form + `\/` + form + `"}`, strings.Repeat("x", 5000) + form} {
			got := r.Redact(text)
			if strings.Contains(got, form) || !strings.Contains(got, "[redacted]") || strings.HasPrefix(text, "{") && !json.Valid([]byte(got)) {
				t.Errorf("%s: got %q", name, got)
			}
			if again := string(r.RedactBytes([]byte(text))); again != got {
				t.Errorf("%s: as bytes it becomes %q", name, again)
			}
			if body := string(r.RedactBody([]byte(text))); strings.Contains(body, form) || !strings.Contains(body, "[redacted]") {
				t.Errorf("%s: as a body it becomes %q", name, body)
			}
		}
	}
	for _, text := range []string{`{"a":"x\/y \u00fc \ud83d \u12 \\u0041 \`, `\u`, `\/`, `\ud83d\ud83d\/`} {
		if got := r.Redact(text); got != text {
			t.Errorf("%q becomes %q", text, got)
		}
	}
}

// A password is found in the Authorization header that it is a part of.
func TestRedactInsideBase64(t *testing.T) {
	const password = "a-longer-password"
	r := secret.NewRedactor(secret.NewValue(password))
	for _, user := range []string{"", "a", "ab", "abc", "abcd"} {
		for _, after := range []string{"", "x", "xy", "xyz"} {
			for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding} {
				text := encoding.EncodeToString([]byte(user + ":" + password + after))
				got := r.Redact(text)
				raw, _, _ := strings.Cut(got, "[redacted]")
				left, err := base64.RawStdEncoding.DecodeString(raw[:len(raw)/4*4])
				if !strings.Contains(got, "[redacted]") || err != nil || strings.Contains(string(left), "longer") {
					t.Errorf("%q becomes %q", text, got)
				}
			}
		}
	}
}

func TestRedactLines(t *testing.T) {
	pem := "-----BEGIN KEY-----\nMC4CAQAwBQYDK2VwBCIEIH\nRk8tTzhQbnZ4c2VjcmV0MQ==\n-----END KEY-----"
	r := secret.NewRedactor(secret.NewValue(pem))
	got := r.Redact("line 3 is RXk8tTz, bad: MC4CAQAwBQYDK2VwBCIEIH and {\"key\":\"" + strings.ReplaceAll(pem, "\n", `\n`) + "\"}")
	for line := range strings.SplitSeq(pem, "\n") {
		if strings.Contains(got, line) {
			t.Errorf("%q is still in %q", line, got)
		}
	}
}

// What is too short to be told from the text around it stays: blanking it would
// show where it is.
func TestRedactLeavesTheRest(t *testing.T) {
	for _, values := range [][]secret.Value{nil, {{}}, {secret.NewValue("abc")}, {secret.NewValue("")}} {
		const text = "abc and abcd"
		if got := secret.NewRedactor(values...).Redact(text); got != text {
			t.Errorf("%d values: got %q", len(values), got)
		}
	}
	var none *secret.Redactor
	if got := none.Redact("text"); got != "text" {
		t.Errorf("a nil Redactor: got %q", got)
	}
	if got := secret.NewRedactor(secret.NewValue("1234"), secret.NewValue("12345678")).Redact("12345678"); got != "[redacted]" {
		t.Errorf("the longer one does not win: got %q", got)
	}
}

func FuzzRedact(f *testing.F) {
	f.Add("secret-value", "user:", " tail")
	f.Add(awkward, "", "")
	f.Add("\x00\xff\xfe\xfd\n", "é", "%")
	f.Fuzz(func(t *testing.T, text, before, after string) {
		if len(text) < 4 || strings.Contains("[redacted]", text) || strings.Contains(text, "[redacted]") || strings.Contains(before+after, "redacted") {
			return
		}
		r := secret.NewRedactor(secret.NewValue(text))
		for _, form := range []string{text, url.QueryEscape(text), url.PathEscape(text), base64.StdEncoding.EncodeToString([]byte(text))} {
			if got := r.Redact(fmt.Sprintf("%s%s%s", before, form, after)); !strings.Contains(got, "[redacted]") {
				t.Errorf("%q stays in %q", form, got)
			}
		}
	})
}

// SPEC-TOOLS 5.3: a text that is cut in the middle of a secret does not end in the
// half of it.
func TestT53ACutTextEndsInNoSecret(t *testing.T) {
	r := secret.NewRedactor(secret.NewValue("hunter2-and-more"))
	for text, want := range map[string]string{
		"x hunter2-and-mor": "x ", "x hunt": "x ", "x hun": "x hun", "": "", "hunter2": "", "harmless": "harmless", "hunter2 x": "hunter2 x",
	} {
		if got := string(r.TrimBytes([]byte(text))); got != want {
			t.Errorf("%q: got %q", text, got)
		}
	}
	if got := string((*secret.Redactor)(nil).TrimBytes([]byte("hunter2"))); got != "hunter2" {
		t.Errorf("without secrets: got %q", got)
	}
}

// SPEC S1: a service may give a token, and answers that begin like it everywhere.
func TestS1TheCostOfRedacting(t *testing.T) {
	costtest.Check(t, 10_000, func(n int) func() {
		r := secret.NewRedactor(secret.NewValue(strings.Repeat("a", n) + "b"))
		text := strings.Repeat("a", 100*n)
		own := text + strings.Repeat("a", n) + "b" + text
		return func() {
			if escaped := r.Redact(strings.Repeat(`\u0061\/`, 10*n)); len(escaped) != 80*n {
				t.Error("escapes are redacted wrongly")
			}
			if r.Redact(own) != text+"[redacted]"+text || len(r.RedactBytes([]byte(text))) != len(text) {
				t.Error("it is redacted wrongly")
			}
		}
	})
}
