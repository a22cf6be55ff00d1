package peer

import (
	"context"
	"encoding/json"
	"testing"
)

// hearer is a client that remembers its progress.
type hearer struct {
	Client
	wants bool
	heard []string
}

func (h *hearer) WantsProgress() bool { return h.wants }

func (h *hearer) Notify(_ context.Context, method string, params json.RawMessage) {
	h.heard = append(h.heard, method+" "+string(params))
}

// SPEC R4: callers who wait for packages get progress, if they want it, which leaves room for the tool's own.
func TestR4Reporter(t *testing.T) {
	Reporter(t.Context(), nil, "")("nobody hears this")
	deaf := &hearer{}
	Reporter(t.Context(), deaf, "")("nor this")
	if len(deaf.heard) != 0 {
		t.Errorf("a client that wants no progress hears %q", deaf.heard)
	}
	h := &hearer{wants: true}
	report := Reporter(t.Context(), Rising(h), "installing: ")
	for _, message := range []string{"one", "one", "two"} {
		report(message)
	}
	want := []string{
		`notifications/progress {"message":"installing: one","progress":0.000001,"progressToken":0}`,
		`notifications/progress {"message":"installing: two","progress":0.000002,"progressToken":0}`,
	}
	if len(h.heard) != 2 || h.heard[0] != want[0] || h.heard[1] != want[1] {
		t.Errorf("it hears %q", h.heard)
	}
}
