package capsule_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/testing/capsuletest"
	"github.com/orla-project/orla/manifest"
)

// late makes a call for a client that leaves a question and a log message of the
// capsule's behind, and ends as how says.
func (l *living) late(a peer.Client, how string) {
	l.t.Helper()
	l.await("READY")
	args := capsuletest.Args{
		Later: "a", Notify: []capsuletest.Notice{{Method: "notifications/message", Params: json.RawMessage(`{"level":"info","data":"a secret of A's"}`)}},
		Ask: &capsuletest.Notice{Method: "elicitation/create", Params: json.RawMessage(`{"message":"A's password?"}`)},
	}
	ctx, end := context.WithCancelCause(l.t.Context())
	defer end(nil)
	why := map[string]error{"cancelled": nil, "timed out": fault.New(fault.Timeout, "late")}
	if how == "answered" {
		l.askFor(a, args)
		return
	}
	args.Mute, args.Hold, args.Stderr = true, "never", "it is here"
	done := make(chan error, 1)
	go func() {
		_, err := l.raw(ctx, peer.Call{Tool: l.tool.Name, Args: args.JSON(), Client: a})
		done <- err
	}()
	l.logged("it is here") // one that ends before it was sent leaves nothing
	end(why[how])
	if err := <-done; err == nil {
		l.t.Fatalf("the call that was to be %s succeeded", how)
	}
}

// SPEC N2: what a capsule asks or logs for a call that has ended reaches no other
// client, however the call ended.
func TestN2AQuestionReachesOnlyItsCaller(t *testing.T) {
	for _, how := range []string{"cancelled", "timed out", "answered"} {
		t.Run(how, func(t *testing.T) {
			l := live(t, "echo")
			a := &client{session: "a", reply: json.RawMessage(`{"from":"A"}`)}
			b := &client{session: "b", reply: json.RawMessage(`{"from":"B"}`)}
			l.late(a, how)
			got := l.askFor(b, capsuletest.Args{Release: "a", Heard: "a"})
			if len(b.asked)+len(b.notes) > 0 {
				t.Errorf("B was asked %q and told %q", b.asked, b.notes)
			}
			if !strings.Contains(string(got.Client), "-32600") || !strings.Contains(string(got.Client), "orla/call") {
				t.Errorf("the capsule got %s, want an error that says how to name a call", got.Client)
			}
		})
	}
}

// SPEC N2: one call at a time makes no difference.
func TestN2OneCallAtATimeIsNoAttribution(t *testing.T) {
	// The cancelled call keeps its place for as long as its timeout.
	l := live(t, "echo", func(t *manifest.Tool) { t.Run.MaxConcurrency, t.Run.Timeout = 1, time.Second })
	b := &client{session: "b", reply: json.RawMessage(`{"from":"B"}`)}
	l.late(&client{session: "a"}, "cancelled")
	l.askFor(b, capsuletest.Args{Release: "a", Heard: "a"})
	if len(b.asked)+len(b.notes) > 0 {
		t.Errorf("B was asked %q and told %q", b.asked, b.notes)
	}
}

// SPEC N2: an operator's call is a client's of its own, to whom nobody can speak.
func TestN2AnOperatorsQuestionsReachNobody(t *testing.T) {
	l := live(t, "echo")
	b := &client{session: "b", reply: json.RawMessage(`{"from":"B"}`)}
	holding := make(chan capsuletest.Answer, 1)
	go func() { holding <- l.askFor(b, capsuletest.Args{Hold: "b"}) }()
	l.inFlight()
	got := l.askFor(nil, capsuletest.Args{
		Notify: []capsuletest.Notice{{Method: "notifications/message", Params: json.RawMessage(`{"level":"info","data":"for the operator"}`)}},
		Ask:    &capsuletest.Notice{Method: "elicitation/create"}, Release: "b",
	})
	<-holding
	if len(b.asked)+len(b.notes) > 0 {
		t.Errorf("B was asked %q and told %q", b.asked, b.notes)
	}
	if !strings.Contains(string(got.Client), `"code"`) {
		t.Errorf("the capsule got %s, want an error", got.Client)
	}
}

// SPEC N2, D8: other requests count as calls do.
func TestN2ReadsAreAttributedAsWell(t *testing.T) {
	l := live(t, "echo")
	a, b := &client{session: "a"}, &client{session: "b", reply: json.RawMessage(`{"from":"B"}`)}
	if _, err := l.Request(t.Context(), peer.Request{Method: "resources/read", Params: json.RawMessage(`{"uri":"x:y"}`), Client: a}); err != nil {
		t.Fatal(err)
	}
	got := l.askFor(b, capsuletest.Args{Ask: &capsuletest.Notice{Method: "elicitation/create"}})
	if len(b.asked) > 0 || !strings.Contains(string(got.Client), `"code"`) {
		t.Errorf("B was asked %q, and the capsule got %s", b.asked, got.Client)
	}
}

// SPEC D8: one client that has several calls in flight is asked, and a process that
// is started afterwards knows nothing of who was served before.
func TestD8TheOnlyClientIsAsked(t *testing.T) {
	l := live(t, "echo")
	ask := capsuletest.Args{Ask: &capsuletest.Notice{Method: "roots/list"}}
	a := &client{session: "a", reply: json.RawMessage(`{"from":"A"}`)}
	first := make(chan capsuletest.Answer, 1)
	go func() { first <- l.askFor(a, capsuletest.Args{Hold: "first"}) }()
	l.inFlight()
	again := ask
	again.Release = "first"
	got := l.askFor(&client{session: "a", reply: json.RawMessage(`{"from":"A again"}`)}, again)
	if !strings.Contains(string(got.Client), "A again") {
		t.Errorf("the capsule got %s, want the answer of the newest request", got.Client)
	}
	before := <-first
	b := &client{session: "b", reply: json.RawMessage(`{"from":"B"}`)}
	if got := l.askFor(b, ask); strings.Contains(string(got.Client), "from") {
		t.Errorf("the capsule got %s", got.Client)
	}
	l.Reload("a test")
	l.newer(before.Pid)
	if got := l.askFor(b, ask); !strings.Contains(string(got.Client), `"from":"B"`) {
		t.Errorf("the new process got %s, want B's answer", got.Client)
	}
}

// A notification or a request without params, or with params that are not an object,
// does a capsule and its callers no harm.
func TestS2ParamsThatAreNotAnObject(t *testing.T) {
	l := live(t, "echo")
	a := &client{session: "a", reply: json.RawMessage(`{"from":"A"}`)}
	var notices []capsuletest.Notice
	for _, method := range []string{"message", "progress", "resources/updated", "cancelled", "tools/list_changed"} {
		for _, params := range []string{"", "null", "7", `"x"`, "[1]"} {
			notices = append(notices, capsuletest.Notice{Method: "notifications/" + method, Params: json.RawMessage(params)})
		}
	}
	l.askFor(a, capsuletest.Args{Notify: notices})
	l.askFor(a, capsuletest.Args{Ask: &capsuletest.Notice{Method: "roots/list", Params: json.RawMessage(`[1]`)}})
	if strings.Contains(l.log.String(), "panic") || !strings.Contains(l.log.String(), "params are not an object") {
		t.Errorf("the log:\n%s", l.log)
	}
}
