package audited

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/observe/audit"
	"github.com/orla-project/orla/internal/testing/testkit"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
)

// fixed is a provider with one answer.
type fixed struct {
	answer peer.Answer
	err    error
}

func (fixed) Tools() []*mcp.Tool {
	return []*mcp.Tool{{Name: "tool", InputSchema: map[string]any{"type": "object"}}}
}

func (f fixed) Call(context.Context, peer.Call) (peer.Answer, error) { return f.answer, f.err }

// supervised returns a supervisor of one provider with the options that Join makes.
func supervised(tb testing.TB, p supervisor.Provider, to *audit.Log, admit error) *supervisor.Supervisor {
	tb.Helper()
	opts := supervisor.Options{
		Build: map[manifest.Kind]supervisor.Build{manifest.Simple: func(manifest.Tool) (supervisor.Provider, error) { return p, nil }},
		Admit: func(context.Context, peer.Call, *rules.Target) (supervisor.Admitted, error) {
			return supervisor.Admitted{}, admit
		},
		Log: slog.New(slog.DiscardHandler),
	}
	if to != nil {
		r := Recorder{to}
		opts.Audit, opts.Admit = r.Begin, r.Admit(opts.Admit)
	}
	s := supervisor.New(opts)
	s.Apply([]manifest.Tool{{Name: "tool", Kind: manifest.Simple}})
	return s
}

// openedAudit returns a log that is closed after the test.
func openedAudit(tb testing.TB) (*audit.Log, string) {
	tb.Helper()
	l, path := openAudit(tb)
	tb.Cleanup(l.Close)
	return l, path
}

func openAudit(tb testing.TB) (*audit.Log, string) {
	tb.Helper()
	dir := tb.TempDir()
	path := filepath.Join(dir, "audit.log")
	l, err := audit.Open(audit.Options{Path: path, StateDir: filepath.Join(dir, "state"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		tb.Fatal(err)
	}
	return l, path
}

// The difference of the two is what the audit log adds to a call (SPEC-TOOLS 8.8).
func BenchmarkT88Call(b *testing.B) {
	run := func(b *testing.B, to *audit.Log) {
		s := supervised(b, fixed{answer: peer.Answer{Raw: []byte(`{"content":[]}`)}}, to, nil)
		call := peer.Call{Tool: "tool", Caller: "anonymous", Args: []byte(`{"size":64,"text":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}`)}
		b.ReportAllocs()
		for b.Loop() {
			got, err := s.Call(b.Context(), call)
			if err != nil {
				b.Fatal(err)
			}
			if got.Ended != nil {
				got.Ended("ok", 0)
			}
		}
	}
	b.Run("none", func(b *testing.B) { run(b, nil) })
	b.Run("file", func(b *testing.B) {
		to, _ := openedAudit(b)
		run(b, to)
	})
}

// panics is a provider that panics.
type panics struct{ fixed }

func (panics) Call(context.Context, peer.Call) (peer.Answer, error) { panic("odd") }

// How a call ended is what its client gets, whoever finds it out.
func TestT88OutcomeIsWhatTheClientGets(t *testing.T) {
	failed := func(meta mcp.Meta) *mcp.CallToolResult { return &mcp.CallToolResult{IsError: true, Meta: meta} }
	for name, test := range map[string]struct {
		provider supervisor.Provider
		admit    error
		tool     string
		want     string
	}{
		"a result":              {fixed{answer: peer.Answer{Result: &mcp.CallToolResult{}}}, nil, "tool", "allow ok"},
		"a failure":             {fixed{answer: peer.Answer{Result: failed(nil)}}, nil, "tool", "allow execution_failed"},
		"a failure with a code": {fixed{answer: peer.Answer{Result: failed(mcp.Meta{"tool_code": "odd"})}}, nil, "tool", "allow odd"},
		"a fault":               {fixed{err: fault.New(fault.Timeout, "late")}, nil, "tool", "allow timeout"},
		"an error of JSON-RPC":  {fixed{err: &jsonrpc.Error{Code: -32042}}, nil, "tool", "allow -32042"},
		"cancelled":             {fixed{err: context.Canceled}, nil, "tool", "allow canceled"},
		"a panic":               {panics{}, nil, "tool", "allow execution_failed"},
		"an answer of a peer":   {fixed{answer: peer.Answer{Raw: []byte(`{}`)}}, nil, "tool", "allow as told"},
		"denied":                {fixed{}, fault.New(fault.PermissionDenied, "no"), "tool", "deny permission_denied"},
		"unknown":               {fixed{}, nil, "other", "none unsupported_tool"},
	} {
		t.Run(name, func(t *testing.T) {
			l, path := openAudit(t)
			s := supervised(t, test.provider, l, test.admit)
			func() {
				defer func() { _ = recover() }() // as the bridge does
				got, _ := s.Call(t.Context(), peer.Call{Tool: test.tool, Caller: "ada", Args: []byte(`{"a":1}`)})
				if got.Ended != nil {
					got.Ended("as told", 0)
				}
			}()
			l.Close()
			var lines []string
			_, err := audit.Selection{Caller: "ada"}.Show(t.Context(), strings.NewReader(testkit.ReadFile(t, path)), func(l *audit.Line, _ []byte) error {
				lines = append(lines, l.Verdict+" "+l.Outcome)
				return nil
			})
			if err != nil || len(lines) != 1 || lines[0] != test.want {
				t.Errorf("got %q, %v; want %q", lines, err, test.want)
			}
		})
	}
}

// Large arguments are hashed in the turn of their caller, and the line is there too if the turn does not come.
func TestT88LargeArgumentsHaveALine(t *testing.T) {
	l, path := openedAudit(t)
	s := supervised(t, fixed{answer: peer.Answer{Result: &mcp.CallToolResult{}}}, l, nil)
	args := []byte(`{"text":"` + strings.Repeat("x", turns.Heavy) + `"}`)
	ctx, release := turns.NewRoom(1<<20).Open(t.Context(), turns.Owner{Caller: "ada"})
	defer release()
	for _, ended := range []bool{false, true} {
		ctx, cancel := context.WithCancel(ctx)
		if ended {
			cancel()
		}
		_, _ = s.Call(ctx, peer.Call{Tool: "tool", Args: args})
		cancel()
	}
	testkit.Eventually(t, "both lines are there", func() bool {
		return strings.Count(testkit.ReadFile(t, path), `"args_form":"as_sent"`) == 2
	})
}

// SPEC-TOOLS 8.8: the duration of a call begins when it came, as in the log, and not when it got to the tools.
func TestT88TheDurationIsSinceTheCallCame(t *testing.T) {
	l, path := openedAudit(t)
	s := supervised(t, fixed{answer: peer.Answer{Result: &mcp.CallToolResult{}}}, l, nil)
	refused := Recorder{l}.Refused
	for _, began := range []time.Time{time.Now().Add(-time.Hour), {}} {
		_, _ = s.Call(t.Context(), peer.Call{Tool: "tool", Began: began})
		refused(t.Context(), peer.Call{Tool: "tool", Began: began}, fault.New(fault.Timeout, "late"))
	}
	testkit.Eventually(t, "the lines are there", func() bool {
		return strings.Count(testkit.ReadFile(t, path), `"event":"call"`) == 4
	})
	var late []bool
	_, err := audit.Selection{Tool: "tool"}.Show(t.Context(), strings.NewReader(testkit.ReadFile(t, path)), func(l *audit.Line, _ []byte) error {
		late = append(late, l.DurationMS >= float64(time.Hour/time.Millisecond))
		if l.DurationMS < 0 {
			t.Errorf("a call took %f ms", l.DurationMS)
		}
		return nil
	})
	if want := []bool{true, true, false, false}; err != nil || !slices.Equal(late, want) {
		t.Errorf("over an hour: %v, %v; want %v", late, err, want)
	}
}
