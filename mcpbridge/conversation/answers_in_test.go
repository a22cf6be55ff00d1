package conversation

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/orla-project/orla/mcpbridge/wire"
)

// SPEC S2: answers to more questions than there can be are not decoded.
func TestS2FewAnswersAreDecoded(t *testing.T) {
	for n, want := range map[int]int{1: 1, wire.MaxMembers: wire.MaxMembers, wire.MaxMembers + 1: 0} {
		var given strings.Builder
		for i := range n {
			fmt.Fprintf(&given, `,"k%d":{}`, i)
		}
		p := wire.Params{State: json.RawMessage(`"orla:x"`), Responses: json.RawMessage("{" + given.String()[1:] + "}")}
		if state, answers := answersIn(p); state != "orla:x" || len(answers) != want {
			t.Errorf("%d: %d answers to %q, want %d", n, len(answers), state, want)
		}
	}
}
