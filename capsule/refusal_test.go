package capsule_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/testing/capsuletest"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/manifest"
)

// SPEC-TOOLS 4.1: a JSON-RPC error whose data has a tool_code is that fault, of
// any capsule; the rest of it is passed on, as far as it is in order.
func TestErrorWithACodeIsThatFault(t *testing.T) {
	l := live(t, "echo", byHandshake, capsuletest.Set("HELLO", "no"))
	yes, no := true, false
	for raw, want := range map[string]fault.Error{
		`{"code":-32000,"message":"m","data":{"tool_code":"rate_limited","tool_reason":"slow down","retry_after_ms":2500.5}}`: {
			Code: fault.RateLimited, Reason: "capsule: slow down", RetryAfter: 2500500 * time.Microsecond,
		},
		`{"code":-32000,"message":"m","data":{"tool_code":"auth_invalid","retryable":true}}`:                    {Code: fault.AuthInvalid, Reason: "capsule: m", Retry: &yes},
		`{"code":-32602,"message":"m","data":{"tool_code":"crashed","retryable":false,"more":[1]}}`:             {Code: fault.Crashed, Reason: "capsule: m", Retry: &no},
		`{"code":-32000,"message":"","data":{"tool_code":"Out-of.Stock_7"}}`:                                    {Code: "Out-of.Stock_7", Reason: "capsule: it gave no reason"},
		`{"code":-32000,"message":"m","data":{"tool_code":"timeout","retry_after_ms":1e300}}`:                   {Code: fault.Timeout, Reason: "capsule: m", RetryAfter: 30 * 24 * time.Hour},
		`{"code":-32000,"message":"m","data":{"tool_code":"timeout","retry_after_ms":-7}}`:                      {Code: fault.Timeout, Reason: "capsule: m"},
		`{"code":-32000,"message":"` + strings.Repeat("é", 4<<10) + `","data":{"tool_code":"timeout"}}`:         {Code: fault.Timeout, Reason: "capsule: " + strings.Repeat("é", 2<<10) + "…"},
		`{"code":-32000,"message":"m","data":{"tool_code":"` + strings.Repeat("x", 64) + `","retryable":null}}`: {Code: fault.Code(strings.Repeat("x", 64)), Reason: "capsule: m"},
	} {
		_, err := l.ask(capsuletest.Args{Error: json.RawMessage(raw)})
		f, ok := errors.AsType[*fault.Error](err)
		if !ok || f.Code != want.Code || f.Reason != want.Reason || f.RetryAfter != want.RetryAfter || f.Retryable() != want.Retryable() || f.Unsent {
			t.Errorf("%.120s: got %+v, %v", raw, f, err)
		}
	}
}

// Something that is not a code leaves the error as it was: the MCP server's own.
func TestErrorWithoutACodeStaysTheServers(t *testing.T) {
	l := live(t, "echo", byHandshake, capsuletest.Set("HELLO", "no"))
	for _, data := range []string{
		`null`, `"rate_limited"`, `[]`, `{}`, `{"tool_code":""}`, `{"tool_code":5}`, `{"tool_code":"no code"}`, `{"tool_code":"` + strings.Repeat("x", 65) + `"}`,
		`{"tool_code":"timeout","retryable":"yes"}`, `{"tool_code":"timeout","retry_after_ms":"soon"}`,
	} {
		_, err := l.ask(capsuletest.Args{Error: json.RawMessage(`{"code":-32042,"message":"m","data":` + data + `}`)})
		if wire, ok := errors.AsType[*jsonrpc.Error](err); !ok || wire.Code != -32042 {
			t.Errorf("%s: got %v", data, err)
		}
	}
}

// SPEC-TOOLS 6.3: a failed call knows if its process may have seen it.
func TestUnsentIsWhatNoProcessHasSeen(t *testing.T) {
	t.Parallel()
	needs.Time(t, "waits for seconds")
	unsent := func(t *testing.T, err error, code fault.Code, want bool) {
		t.Helper()
		if f := fault.From(err); f == nil || f.Code != code || f.Unsent != want {
			t.Errorf("got %+v; want %s, unsent %t", f, code, want)
		}
	}
	t.Run("never started", func(t *testing.T) {
		l := live(t, "exits-starting", startsOnce)
		l.await("STOPPED")
		_, err := l.ask(capsuletest.Args{})
		unsent(t, err, fault.StartFailed, true)
	})
	t.Run("starting", func(t *testing.T) {
		l := live(t, "silent", callTimeout(200*time.Millisecond))
		_, err := l.ask(capsuletest.Args{})
		unsent(t, err, fault.Timeout, true)
	})
	t.Run("not ready in time", func(t *testing.T) {
		l := live(t, "silent", func(t *manifest.Tool) { t.Runtime.QueueTimeout = 100 * time.Millisecond })
		_, err := l.ask(capsuletest.Args{})
		unsent(t, err, fault.NotReady, true)
	})
	t.Run("stopped by an operator", func(t *testing.T) {
		l := live(t, "echo")
		l.await("READY")
		asked := l.asking(capsuletest.Args{Hold: "it", Stderr: "it is here"})
		l.logged("it is here")
		if err := l.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		unsent(t, <-asked, fault.NotReady, false)
		_, err := l.ask(capsuletest.Args{})
		unsent(t, err, fault.NotReady, true)
	})
	t.Run("no place", func(t *testing.T) {
		l := live(t, "echo", func(t *manifest.Tool) { t.Run.MaxConcurrency = 1 })
		l.await("READY")
		asked := l.asking(capsuletest.Args{Hold: "it", Stderr: "it is here"})
		l.logged("it is here")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, fault.New(fault.Timeout, "late"))
		defer cancel()
		_, err := l.Call(ctx, peer.Call{Tool: l.tool.Name})
		unsent(t, err, fault.Timeout, true)
		l.stop()
		unsent(t, <-asked, fault.NotReady, false)
		_, err = l.ask(capsuletest.Args{})
		unsent(t, err, fault.NotReady, true)
	})
	t.Run("in flight", func(t *testing.T) {
		l := live(t, "echo")
		l.await("READY")
		three := 3
		_, err := l.askWithin(patience, capsuletest.Args{Exit: &three})
		unsent(t, err, fault.Crashed, false)
		l.await("READY")
		ctx, end := context.WithCancelCause(t.Context())
		asked := make(chan error, 1)
		go func() {
			_, err := l.result(ctx, l.tool.Name, capsuletest.Args{Hold: "it"}.JSON())
			asked <- err
		}()
		eventually(t, "the capsule has heard it", func() bool { return l.call(capsuletest.Args{}).InFlight == 2 })
		end(fault.New(fault.Timeout, "late")) // as a deadline ends it, however long it took to send it
		unsent(t, <-asked, fault.Timeout, false)
	})
}
