package audited

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/callid"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/call/trace"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/observe/audit"
	"github.com/orla-project/orla/internal/testing/testkit"
	"github.com/orla-project/orla/supervisor"
)

// linesOf closes a log and returns what it has of calls.
func linesOf(t *testing.T, l *audit.Log, path string) (calls []string) {
	t.Helper()
	l.Close()
	return linesIn(t, path)
}

func linesIn(t *testing.T, path string) (calls []string) {
	t.Helper()
	for line := range strings.Lines(testkit.ReadFile(t, path)) {
		if strings.Contains(line, `"event":"call"`) {
			calls = append(calls, line)
		}
	}
	return calls
}

// SPEC-TOOLS 8.8: a line says whose call it was, of what, and how it ended; nothing of it gets into the next line.
func TestT88ALineIsOfOneCall(t *testing.T) {
	l, path := openAudit(t)
	r := Recorder{l}
	ctx := callid.With(t.Context(), "call-1")
	parent, ok := trace.Parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "")
	if !ok {
		t.Fatal("there is no trace")
	}
	r.Refused(trace.With(ctx, parent), peer.Call{
		Tool: "first", Caller: "ann", Task: "task-1", Args: []byte(`{"a":1}`), Meta: []byte(`{"orloj.dev/agent":"bot"}`), Input: peer.Input{Responses: []byte(`{"q":{}}`)},
	}, fault.New(fault.RateLimited, "too many"))
	decided, ended, err := r.Begin(peer.Call{Tool: "second", Caller: "bob", Began: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	if decided.Verdict != audit.None {
		t.Errorf("before anything is decided it is %q", decided.Verdict)
	}
	decided.Verdict, decided.Rule = audit.Allow, "rule-2"
	if later := ended(t.Context(), "target-2", peer.Answer{Raw: []byte(`{}`)}, nil); later == nil {
		t.Error("nobody can say how the answer of a peer ended")
	} else {
		later("input_required", 1234567*time.Microsecond)
	}
	decided, ended, err = r.Begin(peer.Call{Tool: "third", Began: time.Now()})
	if err != nil || decided.Verdict != audit.None || decided.Rule != "" {
		t.Errorf("the next call begins with %+v, %v", decided, err)
	}
	if later := ended(t.Context(), "", peer.Answer{Raw: []byte(`{}`)}, errors.New("odd")); later != nil {
		t.Error("with an error it is asked how the answer ended")
	}
	lines := linesOf(t, l, path)
	if len(lines) != 3 {
		t.Fatalf("%d lines: %s", len(lines), lines)
	}
	for i, parts := range [][]string{
		{`"caller":"ann"`, `"agent":"bot"`, `"task":"task-1"`, `"tool":"first"`, `"verdict":"none"`, `"outcome":"rate_limited"`, "call-1", "0af7651916cd43dd8448eb211c80319c", `"input_sha256":`},
		{`"caller":"bob"`, `"tool":"second"`, `"target":"target-2"`, `"rule":"rule-2"`, `"verdict":"allow"`, `"outcome":"input_required"`, `"duration_ms":1234.567`},
		{`"tool":"third"`, `"verdict":"none"`, `"outcome":"execution_failed"`},
	} {
		for _, part := range parts {
			if !strings.Contains(lines[i], part) {
				t.Errorf("%s is not in %s", part, lines[i])
			}
		}
		for _, other := range []string{"call-1", "bot", "task-1", "0af7651916cd43dd", "input_sha256", "target-2", "rule-2"} {
			if strings.Contains(lines[i], other) && !strings.Contains(strings.Join(parts, " "), other) {
				t.Errorf("%s of another call is in %s", other, lines[i])
			}
		}
	}
}

// SPEC-TOOLS 8.8: a call that cannot be recorded is not made, and may be tried again; one that is refused anyway is refused without a line.
func TestT88WithoutALogNoCallIsMade(t *testing.T) {
	l, path := openAudit(t)
	l.Close() // it takes no lines
	made := false
	r := Recorder{l}
	s := supervised(t, provided(func() { made = true }), l, nil)
	_, err := s.Call(t.Context(), peer.Call{Tool: "tool"})
	if f, ok := errors.AsType[*fault.Error](err); !ok || f.Code != fault.NotReady || !f.Unsent || made || !strings.Contains(err.Error(), "audit_log") {
		t.Errorf("%v; it was made: %v", err, made)
	}
	r.Refused(t.Context(), peer.Call{Tool: "tool"}, fault.New(fault.UnsupportedTool, "no"))
	if lines := linesIn(t, path); lines != nil {
		t.Errorf("there are lines: %s", lines)
	}
	if entry, _, err := r.Begin(peer.Call{Tool: "tool"}); err == nil || entry != nil {
		t.Errorf("a call begins with %+v, %v", entry, err)
	}
}

// provided is a provider that notes its calls.
type provided func()

func (provided) Tools() []*mcp.Tool { return fixed{}.Tools() }

func (p provided) Call(context.Context, peer.Call) (peer.Answer, error) {
	p()
	return peer.Answer{}, nil
}

const approved = "approve" // a verdict that is noted with its reasons

// SPEC-TOOLS 8.8: what was decided about a call is noted, and only by the first that does.
func TestT88ADecisionIsNotedOnce(t *testing.T) {
	refuses := fault.New(fault.PermissionDenied, "no")
	for _, c := range []struct {
		before, by string // by is what the admission itself notes
		err        error
		want       string
	}{
		{audit.None, "", nil, audit.Allow},
		{audit.None, "", refuses, audit.Deny},
		{audit.None, approved, nil, approved},
		{audit.None, approved, refuses, approved},
		{audit.Allow, "", refuses, audit.Allow},
	} {
		made := &peer.Decision{Verdict: c.before}
		admit := Recorder{}.Admit(func(_ context.Context, call peer.Call, _ *rules.Target) (supervisor.Admitted, error) {
			if c.by != "" {
				call.Decided.Verdict = c.by
			}
			return supervisor.Admitted{}, c.err
		})
		if _, err := admit(t.Context(), peer.Call{Decided: made}, nil); made.Verdict != c.want || !errors.Is(err, c.err) {
			t.Errorf("%+v: %s, %v", c, made.Verdict, err)
		}
	}
	admit := Recorder{}.Admit(func(context.Context, peer.Call, *rules.Target) (supervisor.Admitted, error) {
		return supervisor.Admitted{}, refuses
	})
	if _, err := admit(t.Context(), peer.Call{}, nil); !errors.Is(err, refuses) {
		t.Errorf("without a place for it: %v", err)
	}
}
