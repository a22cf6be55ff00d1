package program

import (
	"strings"
	"testing"
)

// SPEC N1, SPEC-TOOLS 8.6: the agent and the task in a request for a resource are judged as those of a call are.
func TestT86TheAgentOfARequestIsJudged(t *testing.T) {
	t.Parallel()
	r := serveRuled(t, `apiVersion: orloj.dev/v1
kind: AgentPolicy
metadata: {name: nobox}
spec: {target_systems: [bot], target_tasks: [night], blocked_tools: [box]}
`, "callers:\n  - {name: ann, may_speak_for: [bot, free]}\n  - {name: bot}\n  - {name: free}\n")
	r.knows("ann", "box://one")
	reads := func(caller, meta string) string {
		return r.asks(caller, "resources/read", `{"uri":"box://one",`+meta+`}`)
	}
	for _, c := range []struct {
		caller, meta string
		may          bool
	}{
		{"ann", `"_meta":{}`, true},
		{"ann", `"_meta":{"orloj.dev/agent":"free"}`, true},
		{"ann", `"_meta":{"orloj.dev/task":"day"}`, true},
		{"ann", `"_meta":{"orloj.dev/agent":"bot"}`, false},
		{"ann", `"\u005fmeta":{"orloj.dev\u002fagent":"bot"}`, false},
		{"ann", `"_meta":{"orloj.dev/task":"night"}`, false},
		{"bob", `"_meta":{"orloj.dev/agent":"root"}`, false},
	} {
		if answer := reads(c.caller, c.meta); strings.Contains(answer, `"contents"`) != c.may || strings.Contains(answer, "permission_denied") == c.may {
			t.Errorf("%s with %s: %.400s", c.caller, c.meta, answer)
		}
	}
}
