package program

import (
	"strings"
	"testing"
)

// SPEC N1, SPEC-TOOLS 8.6: the agent and the task in a request for a resource, a prompt or a completion are judged as those of a call are.
func TestT86TheAgentOfARequestIsJudged(t *testing.T) {
	t.Parallel()
	r := serveRuled(t, `apiVersion: orloj.dev/v1
kind: AgentPolicy
metadata: {name: nobox}
spec: {target_systems: [bot], target_tasks: [night], blocked_tools: [box]}
`, "callers:\n  - {name: ann, may_speak_for: [bot, free]}\n  - {name: bot}\n  - {name: free}\n")
	r.knows("ann")
	requests := map[string]string{
		"resources/read":      `{"uri":"box://one",`,
		"prompts/get":         `{"name":"ask",`,
		"completion/complete": `{"ref":{"type":"ref/prompt","name":"ask"},"argument":{"name":"a","value":""},`,
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
		for method, params := range requests {
			answer := r.asks(c.caller, method, params+c.meta+"}")
			if strings.Contains(answer, `"result"`) != c.may || strings.Contains(answer, "permission_denied") == c.may {
				t.Errorf("%s of %s with %s: %.400s", method, c.caller, c.meta, answer)
			}
		}
	}
}
