package program

import (
	"os"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/app/control"
)

// approved makes a call that is to be approved by the control socket and to run once, and returns what was asked.
func (a *asking) approved(params string) control.Approval {
	a.t.Helper()
	before := len(a.runs())
	over := make(chan string, 1)
	go func() {
		answer, err := a.post("tools/call", params)
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
	if s := a.orla("approvals", "approve", r.ID, "--socket", a.socket); s.code != 0 {
		a.t.Errorf("orla approvals approve ends with %d: %s%s", s.code, s.out, s.err)
		_ = a.orla("approvals", "deny", r.ID, "--socket", a.socket)
	}
	if text := <-over; !strings.Contains(text, "wiped") || len(a.runs()) != before+1 {
		a.t.Errorf("the call ends with %.200q, and the tool ran %d times", text, len(a.runs())-before)
	}
	return r
}

// SPEC-TOOLS 8.7: a call whose client names a task, and the agent that it acts for, is approved like any other.
func TestT87ACallOfATaskIsApproved(t *testing.T) {
	t.Parallel()
	a := serveAsking(t, os.Geteuid(), "approvals: {same_user: true}\ncallers: [{name: anonymous, may_speak_for: [bot]}]\n")
	r := a.approved(`{"name":"wipe","arguments":{"n":1},"_meta":{"orloj.dev/task":"t1","orloj.dev/agent":"bot"}}`)
	if r.Task != "t1" || r.Agent != "bot" {
		t.Errorf("the record has the task %q and the agent %q", r.Task, r.Agent)
	}
}

// SPEC-TOOLS 8.7: arguments that JSON may write with escapes, such as a large document of HTML, are approved like any others.
func TestT87ArgumentsWithManyEscapesAreApproved(t *testing.T) {
	t.Parallel()
	a := serveAsking(t, os.Geteuid(), "approvals: {same_user: true}\n")
	a.approved(`{"name":"wipe","arguments":{"n":1,"page":"` + strings.Repeat("<&>", 16_000) + `"}}`)
}
