package clients

import (
	"encoding/json"
	"strings"
	"testing"
)

// A progress token is read from the params or from their _meta, and from
// nowhere deeper: a line of nothing but depth would be read once for each.
func TestTokenIsNotSoughtInTheDepth(t *testing.T) {
	const depth = 5000
	deep := strings.Repeat(`{"_meta":`, depth) + "[" + strings.Repeat("1,", 1<<19) + "1]" + strings.Repeat("}", depth)
	for _, test := range []struct {
		params string
		want   int64
	}{
		{`{"progressToken":5}`, 5},
		{`{"a":1,"_meta":{"progressToken":6}}`, 6},
		{`{"_meta":{"_meta":{"progressToken":7}}}`, 0},
		{`{"a":{"progressToken":8}}`, 0},
		{`{"progressToken":"x"}`, 0},
		{`[{"progressToken":9}]`, 0},
		{`null`, 0},
		{``, 0},
		{deep, 0},
	} {
		if got := token(json.RawMessage(test.params)); got != test.want {
			t.Errorf("the token of %.100s is %d, want %d", test.params, got, test.want)
		}
	}
}
