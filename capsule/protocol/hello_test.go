package protocol

import (
	"reflect"
	"strings"
	"testing"
)

// SPEC S2: of a hello that was checked, nothing is kept that may be large.
func TestS2LittleIsKeptOfAHello(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for _, test := range []struct{ said, want []string }{
		{nil, nil},
		{[]string{long, "logging"}, nil},
		{[]string{"prompts", long, "tools", "tools", "tools"}, []string{"tools", "prompts"}},
	} {
		got := Hello{Name: long, Version: long, Capabilities: test.said}.Checked()
		if want := (Hello{Capabilities: test.want}); !reflect.DeepEqual(got, want) {
			t.Errorf("of %.20q, %.200v is kept", test.said, got)
		}
		if got.OffersLists() != (test.want != nil) {
			t.Errorf("%.20q offers lists: %v", test.said, got.OffersLists())
		}
	}
}
