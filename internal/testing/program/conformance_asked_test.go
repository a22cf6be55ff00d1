package program

import (
	"strings"
	"testing"
)

// SPEC D8, N2: what a server of 2026-07-28 requires (input_required), a client of an older
// version is asked by requests, and the server gets its answers: for each official SDK as
// the server, and each as the client. Each server serves several clients.
func TestD8OlderClientsAreAskedForRequiredInput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	servers := everythings(t, conformanceSuite(t))
	for _, e := range servers {
		e.capsule(t, dir, e.name, stateless, e.name+"__")
	}
	o := serveOrla(t, dir)
	for _, e := range servers {
		o.waitListed(e.name + "__test_simple_text")
	}
	for _, s := range sdks(t) {
		if s.era != "legacy" || s.via != "http" {
			continue
		}
		s.argv = append(s.argv, "--answer")
		c := s.connect(t, o, dir)
		said := map[string]chan reply{} // by the server, the tool and a part of what it says
		for _, e := range servers {
			for tool, says := range map[string]string{
				"elicitation":     "Hello, canned!",
				"sampling":        "canned",
				"list_roots":      "file:///canned",
				"request_state":   "state-ok",
				"multiple_inputs": "canned canned",
				"multi_round":     "canned likes canned",
			} {
				name := e.name + "__test_input_required_result_" + tool
				_, said[name+" "+says] = c.send("call", fields{"name": name, "arguments": fields{}})
			}
			name := e.name + "__test_input_required_result_prompt"
			_, said[name+" canned"] = c.send("getPrompt", fields{"name": name, "arguments": fields{}})
		}
		for asked, answer := range said {
			tool, says, _ := strings.Cut(asked, " ")
			if a := c.await(answer); !a.OK || !strings.Contains(string(a.Result), says) {
				t.Errorf("%s of %s answers %s %+v, not %q", tool, s.name, a.Result, a.Error, says)
			}
		}
	}
}
