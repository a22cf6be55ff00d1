package rawjson_test

import (
	"encoding/json"
	"testing"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

func TestSet(t *testing.T) {
	for _, c := range []struct{ raw, value, want string }{
		{`{}`, `1`, `{"k":1}`},
		{`{"a": 12345678901234567890 }`, `{"x":1}`, `{"k":{"x":1},"a":12345678901234567890}`},
		{`{"k":1,"a":2,"k":3}`, `4`, `{"k":4,"a":2}`},
		{`{"k":1,"a":2}`, ``, `{"a":2}`},
		{`{"\u006b":1,"a":2}`, `4`, `{"a":2,"k":4}`},
		{`[1]`, `4`, ``},
		{`7`, `4`, ``},
	} {
		var value json.RawMessage
		if c.value != "" {
			value = json.RawMessage(c.value)
		}
		if got := rawjson.Set([]byte(c.raw), "k", value); string(got) != c.want {
			t.Errorf("%s with %s is %s, want %s", c.raw, c.value, got, c.want)
		}
	}
}
