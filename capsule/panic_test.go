package capsule_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/capsuletest"
)

// cursed is a client that panics when it is asked.
type cursed struct{ client }

func (*cursed) Ask(context.Context, string, json.RawMessage) (json.RawMessage, error) {
	panic("for the test")
}

// TestC15APanicOverAQuestionIsAnswered: the capsule is told that its question failed, and
// its process serves on.
func TestC15APanicOverAQuestionIsAnswered(t *testing.T) {
	l := live(t, "echo")
	got := l.askFor(&cursed{}, capsuletest.Args{Ask: &capsuletest.Notice{Method: "roots/list"}})
	if !strings.Contains(string(got.Client), "-32603") {
		t.Errorf("the capsule got %s, want -32603", got.Client)
	}
	if log := l.log.String(); !strings.Contains(log, "panic in a goroutine") || !strings.Contains(log, "for the test") {
		t.Errorf("the log lacks the panic: %s", log)
	}
	l.call(capsuletest.Args{})
}
