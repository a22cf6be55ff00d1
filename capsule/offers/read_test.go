package offers

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
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

// A tool whose own name is longer than any that a person reads is left out.
func TestT84ALongOwnNameIsLeftOut(t *testing.T) {
	for n, ok := range map[int]bool{maxOwnName: true, maxOwnName + 1: false} {
		if _, err := readTool([]byte(`{"name":"` + strings.Repeat("_", n) + `"}`)); (err == nil) != ok {
			t.Errorf("a name of %d bytes: %v", n, err)
		}
	}
}
