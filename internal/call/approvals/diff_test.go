package approvals_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/call/approvals"
)

// SPEC-TOOLS 8.7: what differs from the last approved arguments.
func TestT87Diff(t *testing.T) {
	for _, c := range []struct{ was, is, want string }{
		{`{}`, `{}`, `null`},
		{`{"a":1}`, `{"a":1}`, `null`},
		{`{"a":1}`, `{"a":1.0}`, `[{"path":"/a","was":1,"is":1.0}]`},
		{`{"a":1,"b":"x"}`, `{"b":"y","c":null}`, `[{"path":"/a","was":1},{"path":"/b","was":"x","is":"y"},{"path":"/c","is":null}]`},
		{`{"a":{"b":[1,2]}}`, `{"a":{"b":[1,3,4]}}`, `[{"path":"/a/b/1","was":2,"is":3},{"path":"/a/b/2","is":4}]`},
		{`{"a":[]}`, `{"a":{}}`, `[{"path":"/a","was":[],"is":{}}]`},
		{`{"a":{}}`, `{"a":{"b":"<"}}`, `[{"path":"/a/b","is":"<"}]`},
		{`{"a/b":1,"~":2}`, `{}`, `[{"path":"/a~1b","was":1},{"path":"/~0","was":2}]`},
		{`{"a":1,"a":2}`, `{"a":2}`, `[{"path":"","was":{"a":1,"a":2},"is":{"a":2}}]`},
		{`{"a":1,"a":2}`, `{"a":1,"a":2}`, `null`},
		{`[1]`, `{"a":1}`, `[{"path":"","was":[1],"is":{"a":1}}]`},
		{`{"a":12345678901234567890}`, `{"a":12345678901234567891}`, `[{"path":"/a","was":12345678901234567890,"is":12345678901234567891}]`},
	} {
		changes, more := approvals.Diff(json.RawMessage(c.was), json.RawMessage(c.is))
		var got strings.Builder
		e := json.NewEncoder(&got)
		e.SetEscapeHTML(false)
		if err := e.Encode(changes); err != nil {
			t.Fatal(err)
		}
		if strings.TrimSpace(got.String()) != c.want || more != 0 {
			t.Errorf("%s, %s: %s and %d more; want %s", c.was, c.is, got.String(), more, c.want)
		}
	}
}

// SPEC S2: a diff has no more entries than somebody looks through, and no path that is longer.
func TestS2ADiffIsBounded(t *testing.T) {
	var was, is strings.Builder
	for i := range 10000 {
		fmt.Fprintf(&was, `,"k%d":1`, i)
		fmt.Fprintf(&is, `,"k%d":2`, i)
	}
	under := func(text string) json.RawMessage {
		return json.RawMessage(`{"` + strings.Repeat("x", 100<<10) + `":{` + text[1:] + `}}`)
	}
	changes, more := approvals.Diff(under(was.String()), under(is.String()))
	if len(changes) != 100 || more != 9900 {
		t.Errorf("%d changes and %d more", len(changes), more)
	}
	raw, err := json.Marshal(changes)
	if err != nil || len(raw) > 200<<10 {
		t.Errorf("%d bytes, %v", len(raw), err)
	}
}
