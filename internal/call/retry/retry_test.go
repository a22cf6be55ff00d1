package retry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/callid"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/retry"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
)

// script answers attempts in turn; the last answer is given again and again.
type script struct {
	answers []func(ctx context.Context, call peer.Call) (peer.Answer, error)
	calls   []peer.Call
	at      []time.Duration // after began
	began   time.Time
}

func (s *script) attempt(ctx context.Context, call peer.Call) (peer.Answer, error) {
	if s.began.IsZero() {
		s.began = time.Now()
	}
	s.calls = append(s.calls, call)
	s.at = append(s.at, time.Since(s.began))
	return s.answers[min(len(s.calls), len(s.answers))-1](ctx, call)
}

func fails(err error) func(context.Context, peer.Call) (peer.Answer, error) {
	return func(context.Context, peer.Call) (peer.Answer, error) { return peer.Answer{}, err }
}

func succeeds(context.Context, peer.Call) (peer.Answer, error) {
	return peer.Answer{Raw: json.RawMessage(`{"content":[]}`)}, nil
}

// crash is a failure after which trying again can help.
func crash() error { return fault.New(fault.Crashed, "it fell over") }

// tried is a tool whose every failure may be tried again.
func tried(policy manifest.Retry) manifest.Tool {
	return manifest.Tool{Name: "t", Kind: manifest.HTTP, Retry: policy, Resource: &manifest.Resource{}}
}

// wrapped is what is called of a tool that answers as s says.
func wrapped(of manifest.Tool, s *script, change ...func(*retry.Options, *mcp.Tool)) supervisor.Attempt {
	opts, listed := retry.Options{Log: slog.New(slog.DiscardHandler)}, &mcp.Tool{Name: of.Name}
	for _, c := range change {
		c(&opts, listed)
	}
	return retry.Wrap(opts)(of, listed, s.attempt)
}

// SPEC-TOOLS 6.1: 1 s with a 30 s cap: 1, 2, 4, 8, 16, 30, 30.
func TestRetryTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []func(context.Context, peer.Call) (peer.Answer, error){fails(crash())}}
		call := wrapped(tried(manifest.Retry{MaxAttempts: 8, Backoff: time.Second, MaxBackoff: 30 * time.Second, Jitter: manifest.JitterNone}), s)
		answer, err := call(t.Context(), peer.Call{Tool: "t"})
		var pauses []time.Duration
		for i := range len(s.at) - 1 {
			pauses = append(pauses, (s.at[i+1]-s.at[i])/time.Second)
		}
		if want := []time.Duration{1, 2, 4, 8, 16, 30, 30}; !slices.Equal(pauses, want) {
			t.Errorf("the pauses are %d s; want %d", pauses, want)
		}
		if answer.Attempts != 8 || fault.CodeOf(err) != fault.Crashed || fault.From(err).Reason != "it fell over (after 8 attempts)" {
			t.Errorf("attempts %d, error %v", answer.Attempts, err)
		}
	})
}

// SPEC-TOOLS 6.1: no pause is over the cap, and none below zero: not when the
// first is longer, nor after very many, nor at the end of what a duration can be.
func TestPausesDoNotOverflow(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, test := range []struct {
		policy manifest.Retry
		want   time.Duration // of all pauses
	}{
		{manifest.Retry{MaxAttempts: 3, Backoff: time.Minute, MaxBackoff: 30 * time.Second}, time.Minute},
		{manifest.Retry{MaxAttempts: 1000, MaxBackoff: 30 * time.Second}, 0},
		{manifest.Retry{MaxAttempts: 1001, Backoff: time.Second, MaxBackoff: time.Second}, 1000 * time.Second},
		{manifest.Retry{MaxAttempts: 2, Backoff: math.MaxInt64, MaxBackoff: 100 * year}, 100 * year},
		{manifest.Retry{MaxAttempts: 3, Backoff: 50 * year, MaxBackoff: math.MaxInt64}, 150 * year},
	} {
		synctest.Test(t, func(t *testing.T) {
			test.policy.Jitter = manifest.JitterNone
			s := &script{answers: []func(context.Context, peer.Call) (peer.Answer, error){fails(crash())}}
			answer, _ := wrapped(tried(test.policy), s)(t.Context(), peer.Call{})
			const exact = time.Microsecond // what the last bits of such times come to
			if got := s.at[len(s.at)-1]; answer.Attempts != test.policy.MaxAttempts || (got-test.want).Abs() > exact {
				t.Errorf("%+v: %d attempts in %s; want them in %s", test.policy, answer.Attempts, got, test.want)
			}
		})
	}
}

// SPEC-TOOLS 6.2: only what is retryable, and SPEC-TOOLS 6.3: only what may be
// done twice.
func TestWhatIsTriedAgain(t *testing.T) {
	yes, no := true, false
	refused := &jsonrpc.Error{Code: -32603, Message: "no"}
	for name, test := range map[string]struct {
		err   error
		safe  bool // the tool is annotated, or is a resource
		again bool
	}{
		"a crash":                               {crash(), true, true},
		"a crash of what must not be repeated":  {crash(), false, false},
		"what was never sent":                   {fault.Unsent(crash()), false, true},
		"the deadline of an attempt":            {fault.New(fault.Timeout, "late"), true, true},
		"a deadline without a code":             {context.DeadlineExceeded, true, true},
		"too many calls":                        {fault.New(fault.RateLimited, "slow down"), true, true},
		"arguments that do not fit":             {fault.New(fault.InvalidInput, "no"), true, false},
		"what was never sent, and never can be": {fault.Unsent(fault.New(fault.InvalidInput, "no")), true, false},
		"a 5xx":                                 {&fault.Error{Code: fault.ExecutionFailed, Retry: &yes}, true, true},
		"a crash that will not mend":            {&fault.Error{Code: fault.Crashed, Retry: &no, Unsent: true}, true, false},
		"a refusal of the tool's":               {refused, true, false},
		"something unknown":                     {errors.New("?"), true, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &script{answers: []func(context.Context, peer.Call) (peer.Answer, error){fails(test.err), succeeds}}
			of := manifest.Tool{Name: "t", Kind: manifest.Simple, Retry: manifest.Retry{MaxAttempts: 2, MaxBackoff: time.Second}}
			answer, err := wrapped(of, s, func(_ *retry.Options, listed *mcp.Tool) {
				if test.safe {
					listed.Annotations = &mcp.ToolAnnotations{IdempotentHint: true}
				}
			})(t.Context(), peer.Call{})
			if again := len(s.calls) == 2; again != test.again || again != (err == nil) || answer.Attempts != len(s.calls) {
				t.Errorf("%s: %d attempts, said to be %d, %v; want another one: %t", name, len(s.calls), answer.Attempts, err, test.again)
			}
			if !test.again && err != test.err { //nolint:errorlint // the very same
				t.Errorf("%s: the error has become %v", name, err)
			}
		})
	}
}

// SPEC-TOOLS 6.3: which tools' calls may be made twice.
func TestWhoIsTriedAgain(t *testing.T) {
	destructive := true
	for name, test := range map[string]struct {
		of    manifest.Tool
		hints *mcp.ToolAnnotations
		want  int
	}{
		"a simple tool":                    {manifest.Tool{Kind: manifest.Simple}, nil, 1},
		"a simple tool with other hints":   {manifest.Tool{Kind: manifest.Simple}, &mcp.ToolAnnotations{DestructiveHint: &destructive}, 1},
		"an idempotent one":                {manifest.Tool{Kind: manifest.Simple}, &mcp.ToolAnnotations{IdempotentHint: true}, 3},
		"one that only reads":              {manifest.Tool{Kind: manifest.Simple}, &mcp.ToolAnnotations{ReadOnlyHint: true}, 3},
		"a capsule's tool":                 {manifest.Tool{Kind: manifest.Capsule}, nil, 1},
		"a capsule's tool that only reads": {manifest.Tool{Kind: manifest.Capsule}, &mcp.ToolAnnotations{ReadOnlyHint: true}, 3},
		"a resource":                       {manifest.Tool{Kind: manifest.HTTP, Resource: &manifest.Resource{}}, nil, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &script{answers: []func(context.Context, peer.Call) (peer.Answer, error){fails(crash())}}
			test.of.Retry = manifest.Retry{MaxAttempts: 3, MaxBackoff: time.Second}
			_, err := wrapped(test.of, s, func(_ *retry.Options, listed *mcp.Tool) { listed.Annotations = test.hints })(t.Context(), peer.Call{})
			if len(s.calls) != test.want || err == nil {
				t.Errorf("%s: %d attempts, %v; want %d", name, len(s.calls), err, test.want)
			}
			if says := strings.Contains(err.Error(), "attempts)"); says != (test.want > 1) {
				t.Errorf("%s: %v; want the count of attempts where there was more than one", name, err)
			}
		})
	}
}

// A tool without a policy is called as if this package were not there.
func TestNoPolicyIsNoWrapper(t *testing.T) {
	s := &script{answers: []func(context.Context, peer.Call) (peer.Answer, error){fails(fault.Unsent(crash()))}}
	for _, attempts := range []int{0, 1} {
		s.calls = nil
		answer, err := wrapped(tried(manifest.Retry{MaxAttempts: attempts}), s)(t.Context(), peer.Call{Attempt: 1})
		if len(s.calls) != 1 || answer.Attempts != 0 || fault.From(err).Reason != "it fell over" {
			t.Errorf("max_attempts %d: %d attempts, said to be %d, %v", attempts, len(s.calls), answer.Attempts, err)
		}
	}
}

// SPEC-TOOLS 4.1, 6.2: a result in which the tool says that trying again can
// help is a failure; any other is the answer, and both reach the client as they are.
func TestResultThatSaysSoIsTriedAgain(t *testing.T) {
	for _, test := range []struct {
		answer peer.Answer
		want   int
	}{
		{peer.Answer{Raw: json.RawMessage(`{"content":[],"isError":true,"_meta":{"tool_code":"busy","retryable":true}}`)}, 2},
		{peer.Answer{Raw: json.RawMessage(`{"content":[],"isError":true,"_meta":{"retryable":false}}`)}, 1},
		{peer.Answer{Raw: json.RawMessage(`{"content":[],"isError":true}`)}, 1},
		{peer.Answer{Raw: json.RawMessage(`{"content":[],"_meta":{"retryable":true}}`)}, 1},
		{peer.Answer{Raw: json.RawMessage(`{"content":[],"isError":false,"_meta":{"retryable":true}}`)}, 1},
		{peer.Answer{Raw: json.RawMessage(`{"content":[],"isError":true,"_meta":"retryable"}`)}, 1},
		{peer.Answer{Result: &mcp.CallToolResult{IsError: true, Meta: mcp.Meta{"retryable": true}}}, 2},
		{peer.Answer{Result: &mcp.CallToolResult{IsError: true, Meta: mcp.Meta{"retryable": "true"}}}, 1},
		{peer.Answer{Result: &mcp.CallToolResult{Meta: mcp.Meta{"retryable": true}}}, 1},
		{peer.Answer{}, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			s := &script{answers: []func(context.Context, peer.Call) (peer.Answer, error){func(context.Context, peer.Call) (peer.Answer, error) { return test.answer, nil }}}
			got, err := wrapped(tried(manifest.Retry{MaxAttempts: 2, MaxBackoff: time.Second}), s, func(o *retry.Options, _ *mcp.Tool) {
				o.Log = slog.New(slog.NewTextHandler(&log, nil))
			})(t.Context(), peer.Call{})
			if len(s.calls) != test.want || err != nil || string(got.Raw) != string(test.answer.Raw) || got.Result != test.answer.Result || got.Attempts != test.want {
				t.Errorf("%s: %d attempts, %+v, %v; want %d", test.answer.Raw, len(s.calls), got, err, test.want)
			}
			if test.want == 2 && strings.Contains(string(test.answer.Raw), "busy") && !strings.Contains(log.String(), "code=busy") {
				t.Errorf("the log does not have the tool's own code: %s", &log)
			}
		})
	}
}

// SPEC-TOOLS 6.2: Retry-After raises the pause and never shortens it. For one
// that no client would wait for, the call is given up, and says so.
func TestRetryAfterRaisesThePause(t *testing.T) {
	for _, test := range []struct {
		asked, backoff, most time.Duration
		pause                time.Duration // -1: given up
	}{
		{0, time.Second, time.Second, time.Second},
		{7 * time.Second, time.Second, time.Second, 7 * time.Second},
		{time.Second, 3 * time.Second, 30 * time.Second, 3 * time.Second},
		{5 * time.Minute, 0, time.Second, 5 * time.Minute},
		{72 * time.Hour, time.Second, time.Second, -1},
		{6 * time.Minute, time.Second, 10 * time.Minute, 6 * time.Minute},
		{-time.Second, time.Second, time.Second, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := fault.New(fault.RateLimited, "slow down")
			f.RetryAfter = test.asked
			s := &script{answers: []func(context.Context, peer.Call) (peer.Answer, error){fails(f), succeeds}}
			_, err := wrapped(tried(manifest.Retry{MaxAttempts: 2, Backoff: test.backoff, MaxBackoff: test.most, Jitter: manifest.JitterNone}), s)(t.Context(), peer.Call{})
			switch {
			case test.pause < 0:
				if len(s.calls) != 1 || !strings.Contains(fault.From(err).Reason, "72h0m0s") || fault.From(err).RetryAfter != test.asked {
					t.Errorf("asked for %s: %d attempts, %v", test.asked, len(s.calls), err)
				}
			case err != nil || s.at[1] != test.pause:
				t.Errorf("asked for %s: a pause of %s, %v; want %s", test.asked, s.at[1], err, test.pause)
			}
		})
	}
}

// SPEC-TOOLS 6.2: cancellation ends the pause at once, and so does Orla's stop;
// the error says how many attempts there were.
func TestPauseEndsAtOnce(t *testing.T) {
	stopping := fault.New(fault.NotReady, "halted")
	for name, test := range map[string]struct {
		end  func(cancel context.CancelCauseFunc, stop chan struct{})
		code fault.Code
		text string
	}{
		"cancelled": {func(cancel context.CancelCauseFunc, _ chan struct{}) { cancel(nil) }, fault.Canceled, "the call was cancelled (after 2 attempts)"},
		"halted":    {func(cancel context.CancelCauseFunc, _ chan struct{}) { cancel(stopping) }, fault.NotReady, "halted (after 2 attempts)"},
		"stopping":  {func(_ context.CancelCauseFunc, stop chan struct{}) { close(stop) }, fault.Crashed, "it fell over (after 2 attempts; not tried again: Orla is stopping)"},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			stop := make(chan struct{})
			s := &script{answers: []func(context.Context, peer.Call) (peer.Answer, error){fails(crash())}}
			call := wrapped(tried(manifest.Retry{MaxAttempts: 9, Backoff: time.Hour, MaxBackoff: 24 * time.Hour, Jitter: manifest.JitterNone}), s,
				func(o *retry.Options, _ *mcp.Tool) { o.Stopping = func() <-chan struct{} { return stop } })
			time.AfterFunc(90*time.Minute, func() { test.end(cancel, stop) }) // in the second pause
			began := time.Now()
			answer, err := call(ctx, peer.Call{})
			if took := time.Since(began); took != 90*time.Minute || answer.Attempts != 2 || fault.CodeOf(err) != test.code || fault.From(err).Reason != test.text {
				t.Errorf("%s: after %s and %d attempts: %v", name, took, answer.Attempts, err)
			}
		})
	}
}

// While Orla stops nothing is begun, also without a pause; and a call that has
// been left is not made again.
func TestNothingIsBegunForNobody(t *testing.T) {
	policy := manifest.Retry{MaxAttempts: 9}
	stop := make(chan struct{})
	close(stop)
	s := &script{answers: []func(context.Context, peer.Call) (peer.Answer, error){fails(crash())}}
	var log bytes.Buffer
	_, err := wrapped(tried(policy), s, func(o *retry.Options, _ *mcp.Tool) {
		o.Stopping = func() <-chan struct{} { return stop }
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
	})(t.Context(), peer.Call{})
	if len(s.calls) != 1 || fault.From(err).Reason != "it fell over (not tried again: Orla is stopping)" || log.Len() > 0 {
		t.Errorf("%d attempts while Orla stops, %v, and the log tells of another to come: %s", len(s.calls), err, &log)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s = &script{answers: []func(context.Context, peer.Call) (peer.Answer, error){func(context.Context, peer.Call) (peer.Answer, error) {
		cancel()
		return peer.Answer{}, crash()
	}}}
	_, _ = wrapped(tried(policy), s)(ctx, peer.Call{})
	if len(s.calls) != 1 {
		t.Errorf("%d attempts for nobody", len(s.calls))
	}
}

// SPEC-TOOLS 2.1: attempt starts at 1 and rises; all else, and the call's id,
// stays as it is.
func TestAttemptRisesAndTheRestStays(t *testing.T) {
	var ids []string
	see := func(ctx context.Context, call peer.Call) (peer.Answer, error) {
		ids = append(ids, callid.From(ctx))
		return peer.Answer{}, crash()
	}
	s := &script{answers: []func(context.Context, peer.Call) (peer.Answer, error){see}}
	call := peer.Call{Tool: "t", Args: json.RawMessage(`{}`), Meta: json.RawMessage(`{}`), Caller: "ada", Task: "x", Attempt: 1}
	_, _ = wrapped(tried(manifest.Retry{MaxAttempts: 3}), s)(callid.With(t.Context(), "id"), call)
	for i, got := range s.calls {
		want := call
		want.Attempt = i + 1
		if got.Attempt != want.Attempt || got.Tool != want.Tool || string(got.Args) != "{}" || string(got.Meta) != "{}" || got.Caller != "ada" || got.Task != "x" || ids[i] != "id" {
			t.Errorf("attempt %d is %+v with the id %s", i+1, got, ids[i])
		}
	}
	if len(s.calls) != 3 {
		t.Errorf("%d attempts", len(s.calls))
	}
}

// listener is a client that keeps what it is told.
type listener struct {
	mu   sync.Mutex
	told []string
}

func (l *listener) Session() string         { return "s" }
func (l *listener) Owner() turns.Owner      { return turns.Owner{} }
func (l *listener) Hears() bool             { return true }
func (l *listener) WantsProgress() bool     { return true }
func (l *listener) Declared() peer.Declared { return peer.Declared{} }
func (l *listener) Ask(context.Context, string, json.RawMessage) (json.RawMessage, error) {
	return json.RawMessage(`{}`), nil
}

func (l *listener) Notify(_ context.Context, method string, params json.RawMessage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told = append(l.told, strings.TrimPrefix(method, "notifications/")+" "+string(params))
}

// The client of a call is spoken to in each attempt, and its progress never falls.
func TestProgressClimbsOverAttempts(t *testing.T) {
	speak := func(ctx context.Context, call peer.Call) (peer.Answer, error) {
		for _, p := range []string{`{"progress":1}`, `{"progress":2.5,"total":4}`, `{"message":"?"}`} {
			call.Client.Notify(ctx, "notifications/progress", json.RawMessage(p))
		}
		call.Client.Notify(ctx, "notifications/message", json.RawMessage(`{}`))
		if call.Attempt == 2 {
			call.Client.Notify(ctx, "notifications/progress", json.RawMessage(`{"progress":3}`))
		}
		if raw, err := call.Client.Ask(ctx, "roots/list", nil); err != nil || string(raw) != "{}" || call.Client.Session() != "s" || !call.Client.WantsProgress() {
			t.Errorf("attempt %d: the client is another: %s, %v", call.Attempt, raw, err)
		}
		return peer.Answer{}, crash()
	}
	l := &listener{}
	s := &script{answers: []func(context.Context, peer.Call) (peer.Answer, error){speak, speak, succeeds}}
	if _, err := wrapped(tried(manifest.Retry{MaxAttempts: 3}), s)(t.Context(), peer.Call{Client: l}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`progress {"progress":1}`, `progress {"progress":2.5,"total":4}`, `progress {"message":"?"}`, `message {}`,
		`progress {"message":"?"}`, `message {}`, `progress {"progress":3}`,
	}
	if !slices.Equal(l.told, want) {
		t.Errorf("the client is told\n%q\nwant\n%q", l.told, want)
	}
}

// Each failed attempt that another one follows is one line of the log, without
// what clients and tools have sent (SPEC I2).
func TestAttemptsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		quoting := fault.Wrap(fault.Timeout, errors.New("cause"), "it printed hunter2")
		quoting.Logged = "it printed something"
		s := &script{answers: []func(context.Context, peer.Call) (peer.Answer, error){
			fails(quoting), fails(fault.Wrap(fault.Crashed, errors.New("signal"), "%s", strings.Repeat("x", 1<<16))), fails(crash()),
		}}
		policy := manifest.Retry{MaxAttempts: 3, Backoff: 1500 * time.Millisecond, MaxBackoff: time.Minute, Jitter: manifest.JitterNone}
		_, _ = wrapped(tried(policy), s, func(o *retry.Options, _ *mcp.Tool) {
			o.Log = slog.New(slog.NewJSONHandler(&log, nil))
		})(callid.With(t.Context(), "id"), peer.Call{Tool: "t"})
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 2 || strings.Contains(log.String(), "hunter2") {
			t.Fatalf("the log is\n%.2000s", &log)
		}
		for i, want := range []string{
			`"msg":"attempt","tool":"t","call_id":"id","attempt":1,"code":"timeout","reason":"it printed something","pause_ms":1500}`,
			`"pause_ms":3000,"err":"signal"}`,
		} {
			if !strings.HasSuffix(lines[i], want) || len(lines[i]) > 2<<10 {
				t.Errorf("line %d is\n%.2000s\nwant\n%s", i+1, lines[i], want)
			}
		}
	})
}
