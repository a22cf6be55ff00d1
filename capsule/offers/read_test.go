package offers

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/capsule/records"
)

// SPEC S2: an item of a list takes a few times its bytes, whatever is in its _meta and its
// schemas.
func TestS2AnItemTakesAFewTimesItsBytes(t *testing.T) {
	many := `{"a":[` + strings.Repeat(`{"":0},`, 50_000) + `{}]}`
	for name, item := range map[string]string{
		"_meta":        `{"name":"n","_meta":` + many + `}`,
		"_META":        `{"name":"n","\u005fMETA":` + many + `}`,
		"inputSchema":  `{"name":"n","inputSchema":` + many + `}`,
		"outputSchema": `{"name":"n","Outputſchema":` + many + `}`,
	} {
		var tool mcp.Tool
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := read([]byte(item), &tool, &tool.Meta)
		runtime.ReadMemStats(&after)
		if err != nil || tool.Name != "n" {
			t.Errorf("%s: %v", name, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > uint64(4*len(item)) {
			t.Errorf("%s: %d bytes took %d", name, len(item), took)
		}
	}
}

// What is in the _meta of an item, and its schemas, stay as they came.
func TestAnItemKeepsItsBytes(t *testing.T) {
	var tool mcp.Tool
	input, output, err := read([]byte(`{"name":"n","title":null,"annotations":{"title":"t"},"_meta":{"n":12345678901234567890,"o":{"b":1.0,"a":[]}},"inputSchema":{"x":1.50},"outputSchema":null,"more":5}`), &tool, &tool.Meta)
	if err != nil || string(input) != `{"x":1.50}` || output != nil {
		t.Errorf("schemas %s and %s, %v", input, output, err)
	}
	raw, err := json.Marshal(&tool)
	if want := `{"_meta":{"n":12345678901234567890,"o":{"b":1.0,"a":[]}},"annotations":{"idempotentHint":false,"readOnlyHint":false,"title":"t"},"inputSchema":null,"name":"n"}`; err != nil || string(raw) != want {
		t.Errorf("%s, %v; want %s", raw, err, want)
	}
	for _, item := range []string{`5`, `{"name":5}`, `{"name":"n","_meta":[]}`} {
		if _, _, err := read([]byte(item), new(mcp.Tool), new(mcp.Meta)); err == nil {
			t.Errorf("%s is read", item)
		}
	}
}

// SPEC-TOOLS 8.4: a tool whose own name is longer than any that a person reads is left out, and the others of its list are served.
func TestT84ALongOwnNameIsLeftOut(t *testing.T) {
	named := func(n int) string { return `{"name":"` + strings.Repeat("_", n) + `"}` }
	o := offering(records.Offered{Tools: raws(`{"name":"a"}`, named(1<<10), named(1<<10+1), named(1<<20), `{"name":"b"}`)})
	for range 2 { // also when the same is listed once more
		var own []string
		for _, tool := range o.Current().Tools {
			own = append(own, o.OwnTool(tool.Name))
		}
		slices.Sort(own)
		if want := []string{strings.Repeat("_", 1<<10), "a", "b"}; !slices.Equal(own, want) {
			t.Errorf("served: %.2000q", own)
		}
		o.Set(o.Last())
	}
	var many []string
	for i := range 2000 {
		many = append(many, fmt.Sprintf(`{"name":"%01000d"}`, i))
	}
	o.Set(records.Offered{Tools: raws(many...)})
	if n := len(o.Current().Tools); n != 1<<20/1000 {
		t.Errorf("%d tools of names with 1000 bytes are served", n)
	}
}
