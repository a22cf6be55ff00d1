package simple

import (
	"encoding/json"
	"maps"
	"testing"
)

// However the members of an object are found, they are those of encoding/json.
func TestC1MembersAreEncodingJSONs(t *testing.T) {
	for _, args := range []string{
		`{}`, ` { "a" : [ 1 , {"b":2} ] , "c":"\"" } `, `{"a":1,"a":{"x":2}}`, `{"":null}`, `{"\u0061":1,"b":2,"a":3}`, `{"é":"\ud800"}`, "{\"\xff\":\"\xff\"}",
		`[1]`, `"x"`, ``, `{`, `{"a":}`, `{"a":1}x`,
	} {
		var want map[string]json.RawMessage
		wantErr := json.Unmarshal([]byte(args), &want)
		got := map[string]json.RawMessage{}
		err := eachMember(json.RawMessage(args), func(key string, value json.RawMessage) bool {
			got[key] = value
			return true
		})
		if (err != nil) != (wantErr != nil) || err == nil && !maps.EqualFunc(got, want, func(a, b json.RawMessage) bool { return string(a) == string(b) }) {
			t.Errorf("%q: %q, %v; want %q, %v", args, got, err, want, wantErr)
		}
	}
	for _, args := range []string{`{"a":1,"b":2}`, `{"\u0061":1,"b":2}`} {
		n := 0
		if err := eachMember(json.RawMessage(args), func(string, json.RawMessage) bool { n++; return false }); err != nil || n != 1 {
			t.Errorf("%q: %d members after the end, %v", args, n, err)
		}
	}
	for _, raw := range []string{`""`, `"a"`, `"\n"`, "\"\xff\"", `"é"`} {
		var want string
		if err := json.Unmarshal([]byte(raw), &want); err != nil {
			t.Fatal(err)
		}
		if got, err := unquote(json.RawMessage(raw)); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", raw, got, err, want)
		}
	}
}
