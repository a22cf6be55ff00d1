package mcpbridge

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/orla-project/orla/mcpbridge/wire"
)

// counted is a client that leaves at the third message.
type counted int

func (c *counted) tell(context.Context, json.RawMessage) error {
	if *c++; *c == 3 {
		return errHungUp
	}
	return nil
}

// SPEC S2: news of many resources under a long id takes no more memory than one message.
func TestS2NewsAreMadeOneByOne(t *testing.T) {
	in := newInbox()
	in.subscription = json.RawMessage(`"` + strings.Repeat("x", 100<<10) + `"`)
	in.listChanged([lists]bool{true})
	for n := range 1000 {
		in.resourceUpdated(fmt.Sprint("mem://", n))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var to counted
	in.pass(t.Context(), nil, &to)
	runtime.ReadMemStats(&after)
	if size := after.TotalAlloc - before.TotalAlloc; to != 3 || size > 5<<20 {
		t.Errorf("%d messages took %d bytes", to, size)
	}
}

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
