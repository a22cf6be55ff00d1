package contract_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/orla-project/orla/internal/call/fault"
)

// FuzzAnswer checks what must hold for whatever a service answers (SPEC-TOOLS 2, 3.1).
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		``, `null`, `{}`, `[]`, `"x"`, `{"status":"queued"}`, "\xff", "\xEF\xBB\xBF{}",
		`{"request_id":"` + id + `","status":"success","result":{"a":1.0}}`,
		`{"request_id":"` + id + `","status":"ok","output":{"result":"\ud800"}}`,
		`{"request_id":"` + id + `","status":"error","error":{"tool_code":"a","tool_reason":"b","retryable":true}}`,
		`{"request_id":"` + id + `","status":"error","error":{"code":"a","reason":"b","retryable":null}}`,
		`{"request_id":"` + id + `","status":"denied"}`, `{"status":"error","error":{}}`,
		`{"request_id":"` + id + `","st\u0061tus":"success","result":[[[]]]}`, `{"a":1,"a":2}`, `{"request_id":"sk-secret-0123"}`, `{"sk-secret-0123":1,"sk-secret-0123":2}`,
		`{"request_id":"` + id + `","status":"error","error":{"tool_code":"a","tool_reason":"sk-sk-secret-0123 sk\u002dsecret-0123","retryable":true}}`,
		`{"request_id":"` + id + `","status":"sk-secret-0123"}`, `sk-secret-0123`, `{"status":"error","error":{"tool_code":"sk-secret-0123 "}}`,
	} {
		f.Add([]byte(seed))
	}
	const secret = "sk-secret-0123"
	f.Fuzz(func(t *testing.T, body []byte) {
		x := exchange(t, secret)
		r, err := x.Decode(body)
		if err == nil && r.Status == "" {
			t.Error("an envelope without a status was understood")
		}
		strict, err := x.Answer(body)
		checkAnswer(t, "strictly", strict.Result != nil, err)
		for _, contentType := range []string{"", "application/json", "image/png", "text/html;;"} {
			raw, err := x.Raw(body, contentType)
			checkAnswer(t, contentType, raw.Result != nil, err)
			if raw.Result == nil {
				continue
			}
			out, err := json.Marshal(raw.Result)
			if err != nil || !utf8.Valid(out) {
				t.Errorf("%q: the answer is not JSON: %v", contentType, err)
			}
			if structured, ok := raw.Result.StructuredContent.(json.RawMessage); ok && (structured[0] != '{' || !json.Valid(structured)) {
				t.Errorf("structured content = %s", structured)
			}
		}
		_ = x.Failure(body, true)
		_ = x.Failure(body, false)
	})
}

// checkAnswer checks that there is an answer or an error, and no secret in it.
func checkAnswer(t *testing.T, how string, answered bool, err error) {
	t.Helper()
	if answered == (err != nil) {
		t.Errorf("%s: answered: %v, error: %v", how, answered, err)
	}
	if f := fault.From(err); f != nil && (strings.Contains(f.Reason, "sk-secret-0123") || f.Code == "" || len(f.Reason) > 5000) {
		t.Errorf("%s: fault = %v", how, f)
	}
}
