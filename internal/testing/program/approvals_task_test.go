package program

import (
	"os"
	"strings"
	"testing"
)

// SPEC-TOOLS 8.7: a call whose client names a task, and the agent that it acts for, is approved like any other.
func TestT87ACallOfATaskIsApproved(t *testing.T) {
	t.Parallel()
	a := serveAsking(t, os.Geteuid(), "approvals: {same_user: true}\ncallers: [{name: anonymous, may_speak_for: [bot]}]\n")
	over := make(chan string, 1)
	go func() {
		answer, err := a.post("tools/call", `{"name":"wipe","arguments":{"n":1},"_meta":{"orloj.dev/task":"t1","orloj.dev/agent":"bot"}}`)
		switch {
		case err != nil:
			over <- err.Error()
		case answer.Result == nil || len(answer.Result.Content) == 0:
			over <- "no result"
		default:
			over <- answer.Result.Content[0].Text
		}
	}()
	r := a.waiting()
	if r.Task != "t1" || r.Agent != "bot" {
		t.Errorf("the record has the task %q and the agent %q", r.Task, r.Agent)
	}
	if s := a.orla("approvals", "approve", r.ID, "--socket", a.socket); s.code != 0 {
		t.Errorf("orla approvals approve ends with %d: %s%s", s.code, s.out, s.err)
		_ = a.orla("approvals", "deny", r.ID, "--socket", a.socket)
	}
	if text := <-over; !strings.Contains(text, "wiped") || len(a.runs()) != 1 {
		t.Errorf("the call ends with %q, and the tool ran: %q", text, a.runs())
	}
}
