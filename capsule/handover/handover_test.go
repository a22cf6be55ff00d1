package handover_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/orla-project/orla/capsule/handover"
	"github.com/orla-project/orla/capsule/records"
)

// SPEC N2, S2: all requests wait while the next program reads the state, so large lists are not in it, of whatever kind.
func TestS2LargeListsAreNotGiven(t *testing.T) {
	list := func(size int) []json.RawMessage {
		return []json.RawMessage{json.RawMessage(`{"name":"` + strings.Repeat("x", size/2) + `"}`), json.RawMessage(`{"name":"` + strings.Repeat("y", size/2) + `"}`)}
	}
	const large = 100 << 10
	for name, said := range map[string]records.Offered{
		"tools": {Tools: list(large)}, "resources": {Resources: list(large)}, "templates": {Templates: list(large)}, "prompts": {Prompts: list(large)},
		"together": {Tools: list(large / 4), Resources: list(large / 4), Templates: list(large / 4), Prompts: list(large / 4)},
	} {
		if handover.OfferedOf(said) != nil {
			t.Errorf("%s: they are given", name)
		}
	}
	if got := handover.OfferedOf(records.Offered{Tools: list(large / 2), Reads: true}); got == nil || len(got.Tools) != 2 || !got.Reads {
		t.Errorf("small lists: %v", got)
	}
}
