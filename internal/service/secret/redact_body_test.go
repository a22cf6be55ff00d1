package secret_test

import (
	"encoding/json"
	"testing"

	"github.com/orla-project/orla/internal/service/secret"
)

// SPEC-TOOLS 5.3: what a service answers stays what it is, less the secret.
func TestT53ARedactedBodyStaysJSON(t *testing.T) {
	r := secret.NewRedactor(secret.NewValue(`n-key/"1234`), secret.NewValue("987654"))
	for body, want := range map[string]string{
		`{"a":"n-key/\"1234"}`:                       `{"a":"[redacted]"}`,
		`{"a":"\n-key/\"1234"}`:                      `{"a":"\n-key/\"1234"}`, // the text is another
		`{ "n" : 19876540, "m": [987654] }`:          `{ "n" : "[redacted]", "m": ["[redacted]"] }`,
		`{"a":"{\"b\":\"n-key/\\\"1234\"}"}`:         `{"a":"{\"b\":\"[redacted]\"}"}`,
		`{"n-key/\"1234":1}`:                         `{"[redacted]":1}`,
		`{"a":"bi1rZXkvIjEyMzQ="}`:                   `{"a":"[redacted]"}`,
		`{"a":"<987654>\u0041"}`:                     `{"a":"<[redacted]>A"}`,
		`987654`:                                     `"[redacted]"`,
		`{"a":"nothing"}`:                            `{"a":"nothing"}`,
		`{"a":987654`:                                `{"a":[redacted]`, // it is not JSON
		`the key is n-key/"1234 and n-key%2F%221234`: `the key is [redacted] and [redacted]`,
		``: ``,
	} {
		got := string(r.RedactBody([]byte(body)))
		if got != want {
			t.Errorf("%s becomes %s, want %s", body, got, want)
		}
		if json.Valid([]byte(body)) && !json.Valid([]byte(got)) {
			t.Errorf("%s becomes %s, which is not JSON", body, got)
		}
	}
}
