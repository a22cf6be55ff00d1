package rawjson_test

import (
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// SPEC L1: a message is checked without anything on the heap, and brackets are matched at any depth.
func TestL1ACheckAllocatesNothing(t *testing.T) {
	message := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"a":[{"b":[1,{}]}]}}}`)
	if got := testing.AllocsPerRun(100, func() {
		if valid, _ := rawjson.Check(message); !valid {
			t.Error("not valid")
		}
	}); got > 0 {
		t.Errorf("a check allocates %.0f times", got)
	}
	for _, depth := range []int{1, 31, 32, 33, 100} { // each has two brackets
		begin, end := strings.Repeat(`[{"a":`, depth), strings.Repeat("}]", depth)
		for text, want := range map[string]bool{
			begin + "1" + end: true,
			"[" + begin + "1" + end + "," + begin + "2" + end + "]": true,
			begin + "1" + end + "]":                                 false,
			begin + "1" + end[1:]:                                   false,
			begin + "1]" + end[1:]:                                  false,
			begin + "1" + end[:len(end)-1]:                          false,
			begin + "1" + end[:depth*2-1] + "}":                     false,
		} {
			if valid, _ := rawjson.Check([]byte(text)); valid != want {
				t.Errorf("%d deep: %v for %.40s…%s", 2*depth, valid, text, text[max(0, len(text)-20):])
			}
		}
	}
}
