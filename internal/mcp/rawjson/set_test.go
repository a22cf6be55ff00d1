package rawjson_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

func TestSet(t *testing.T) {
	for _, c := range []struct{ raw, value, want string }{
		{`{}`, `1`, `{"k":1}`},
		{`{"a": 12345678901234567890 }`, `{"x":1}`, `{"k":{"x":1},"a":12345678901234567890}`},
		{`{"k":1,"a":2,"k":3}`, `4`, `{"k":4,"a":2}`},
		{`{"k":1,"a":2}`, ``, `{"a":2}`},
		{`{"\u006b":1,"a":2}`, `4`, `{"k":4,"a":2}`},
		{`{"\u006b":1,"a":2,"\"\u00e9":1.0,"k":3}`, ``, `{"a":2,"\"é":1.0}`},
		{`{"\u006b":1}`, ``, `{}`},
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

// SPEC S2: an object takes a few times its bytes here, also where keys have escapes.
func TestS2SetTakesAFewTimesItsBytes(t *testing.T) {
	members := []byte(`{"\u0061":1`)
	for i := range 100_000 {
		members = fmt.Appendf(members, `,"%x":0`, i)
	}
	raw := append(members, '}')
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	rawjson.Set(raw, "k", json.RawMessage("1"))
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > uint64(4*len(raw)) {
		t.Errorf("%d bytes took %d", len(raw), took)
	}
}
