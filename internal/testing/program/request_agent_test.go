package program

import (
	"fmt"
	"strings"
	"testing"
)

// SPEC N1, SPEC-TOOLS 8.6: the agent and the task in a request for a resource, a prompt or a completion, or to follow a resource, are judged as those
// of a call are.
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
		"resources/subscribe": `{"uri":"box://one",`,
		"completion/complete": `{"ref":{"type":"ref/prompt","name":"ask"},"argument":{"name":"a","value":""},`,
	}
	const newest = `{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}`
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
		_, headers := r.send(c.caller, openEra)
		for method, params := range requests {
			answer, _ := r.send(c.caller, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params+c.meta+"}"),
				"Mcp-Session-Id", headers.Get("Mcp-Session-Id"), "Mcp-Protocol-Version", "2025-03-26")
			if strings.Contains(answer, `"result"`) != c.may || strings.Contains(answer, "permission_denied") == c.may {
				t.Errorf("%s of %s with %s: %.400s", method, c.caller, c.meta, answer)
			}
		}
		own := strings.TrimSuffix(strings.SplitN(c.meta, "{", 2)[1], "}")
		if own != "" {
			own = "," + own
		}
		_, _, answer := r.posts(c.caller, "", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"_meta":%s%s},"notifications":{"resourceSubscriptions":[%q]}}}`, newest, own, box),
			"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "subscriptions/listen")
		if strings.Contains(answer, "acknowledged") != c.may || strings.Contains(answer, "permission_denied") == c.may {
			t.Errorf("subscriptions/listen of %s with %s: %.400s", c.caller, c.meta, answer)
		}
	}
}
