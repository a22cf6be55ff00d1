package jsondiff_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/orla-project/orla/internal/mcp/jsondiff"
)

// Each place is named once, in order, and what is the same in both is not.
func TestPlacesThatDiffer(t *testing.T) {
	for _, c := range []struct {
		was, is string
		want    []string
	}{
		{`{"a":1,"b":[1,{"c":null}]}`, `{"b":[1,{"c":null}],"a":1}`, nil},
		{`{"b":1,"a":2}`, `{"c":3,"a":4}`, []string{"[a] 2 4", "[b] 1 {}", "[c] {} 3"}},
		{`[1,[2,3]]`, `[1,[2,4,5],6]`, []string{"[1 1] 3 4", "[1 2] {} 5", "[2] {} 6"}},
		{`{"a":{}}`, `{"a":[]}`, []string{"[a] map[] []"}},
		{`{"a":null}`, `{}`, []string{"[a] <nil> {}"}},
		{`1`, `"1"`, []string{"[] 1 1"}},
	} {
		var was, is any
		if err := json.Unmarshal([]byte(c.was), &was); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(c.is), &is); err != nil {
			t.Fatal(err)
		}
		var got []string
		jsondiff.Compare(was, is, func(at []any, was, is any) { got = append(got, fmt.Sprint(at, " ", was, " ", is)) })
		if !slices.Equal(got, c.want) {
			t.Errorf("%s and %s: %q, want %q", c.was, c.is, got, c.want)
		}
	}
}
