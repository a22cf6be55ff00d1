package client

import (
	"fmt"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/call/turns"
)

// SPEC G3, Q2: a client that comes back is told again what came after the event that it names, each once, and nothing that it
// does not follow any more. If it is not known what that was, all lists may have changed.
func TestQ2NewsAfterAnEvent(t *testing.T) {
	in, by := NewInbox(), NewNotifier()
	pass := func(last string) string {
		in.ResourceUpdated(last)
		to := &heard{last: last}
		in.Pass(t.Context(), nil, to, by, turns.Owner{})
		return strings.Join(to.all, "")
	}
	begin := in.Told()
	in.ListChanged([Lists]bool{ListPrompts: true})
	in.ResourceUpdated("mem://a")
	pass("end://1")
	first := in.Told()
	in.ResourceUpdated("mem://b")
	in.ResourceUpdated("mem://c")
	pass("end://2")
	in.Forget("mem://c")
	in.TellAfter(in.Told())
	if got := pass("end://3"); strings.Count(got, "jsonrpc") != 1 {
		t.Errorf("after the last event: %s", got)
	}
	in.TellAfter(first)
	if got := pass("end://4"); !strings.Contains(got, "mem://b") || strings.Contains(got, "mem://c") || strings.Contains(got, "mem://a") || strings.Contains(got, "list_changed") {
		t.Errorf("after the first event: %s", got)
	}
	in.TellAfter(begin)
	if got := pass("end://5"); strings.Count(got, "mem://a") != 1 || strings.Count(got, "mem://b") != 1 || strings.Count(got, "list_changed") != 1 {
		t.Errorf("from the beginning: %s", got)
	}
	for n := range 2 * maxTold {
		in.ResourceUpdated(fmt.Sprint("many://", n))
	}
	pass("end://6")
	for _, id := range []string{first, newsPrefix + "another.3", newsPrefix, thisProcess + "-1", thisProcess + "100000"} {
		in.TellAfter(id)
		got := pass("end://7")
		if strings.Count(got, "list_changed") != int(Lists) || strings.Count(got, "many://") > maxTold {
			t.Errorf("after %s: %s", id, got)
		}
	}
}
