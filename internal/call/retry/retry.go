// Package retry repeats failed calls (SPEC-TOOLS 6). It wraps the attempts of a tool whose manifest has a
// policy for retries (supervisor.Options.Wrap). Other tools are not wrapped.
//
//	attempt ─► failed, and trying again can help and is harmless ─► pause ─► attempt
//	        └► otherwise: the answer
//
// Its invariant: a call is repeated only if its failure says that this can help, and if making it twice is
// known to be harmless.
package retry

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/callid"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/rejudge"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/observe/brief"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
)

// longestWait bounds the Retry-After of a service that is still waited for, unless max_backoff is longer.
// For a longer one the call fails, and its caller is told when to try again.
const longestWait = 5 * time.Minute

// Options configures Wrap.
type Options struct {
	// Stopping returns a channel that is closed when Orla stops, after which nothing is
	// repeated. If nil, it never is.
	Stopping func() <-chan struct{}
	// Log gets a line for each attempt that another one follows. Required.
	Log *slog.Logger
}

// Wrap returns a supervisor.Options.Wrap that follows the policies of manifests.
func Wrap(opts Options) func(manifest.Tool, *mcp.Tool, supervisor.Attempt) supervisor.Attempt {
	if opts.Stopping == nil {
		opts.Stopping = func() <-chan struct{} { return nil }
	}
	return func(of manifest.Tool, listed *mcp.Tool, next supervisor.Attempt) supervisor.Attempt {
		if of.Retry.MaxAttempts <= 1 {
			return next
		}
		t := &tries{opts: opts, policy: of.Retry, next: next, harmless: harmless(of, listed)}
		return t.answer
	}
}

// harmless reports whether a tool's call may be made twice, whatever happened the first time. For a Tool
// resource, its policy says so; for a simple tool, and for a tool of a capsule or an MCP server, its
// annotations do (SPEC-TOOLS 6.3).
func harmless(of manifest.Tool, listed *mcp.Tool) bool {
	if of.Resource != nil {
		return true
	}
	hints := listed.Annotations
	return hints != nil && (hints.IdempotentHint || hints.ReadOnlyHint)
}

// tries answers the calls of one tool.
type tries struct {
	opts     Options
	policy   manifest.Retry
	next     supervisor.Attempt
	harmless bool
}

// answer makes attempts until one is the answer.
func (t *tries) answer(ctx context.Context, call peer.Call) (peer.Answer, error) {
	if call.Client != nil {
		call.Client = peer.Rising(call.Client)
	}
	var pauses *pauses // nil before the first failure
	for call.Attempt = 1; ; call.Attempt++ {
		answer, err := t.next(ctx, call)
		answer.Attempts = call.Attempt
		failure := failureOf(answer, err)
		if !t.again(ctx, failure, call.Attempt) {
			return answer, told(err, call.Attempt, "")
		}
		if pauses == nil {
			pauses = newPauses(t.policy)
		}
		pause := max(pauses.next(), failure.RetryAfter)
		if most := max(longestWait, t.policy.MaxBackoff); pause > most {
			return answer, told(err, call.Attempt, fmt.Sprintf("it asks to be left alone for %s, and a call waits %s at most", pause, most))
		}
		if t.stopping() {
			return answer, told(err, call.Attempt, "Orla is stopping")
		}
		t.record(ctx, call, failure, pause)
		ended := t.wait(ctx, pause)
		switch {
		case ended != nil:
			answer.Raw = nil // there is an error now
			return answer, told(ended, call.Attempt, "")
		case t.stopping():
			return answer, told(err, call.Attempt, "Orla is stopping")
		}
	}
}

// again reports whether a failure is to be followed by another attempt.
func (t *tries) again(ctx context.Context, failure *fault.Error, attempt int) bool {
	return failure != nil && failure.Retryable() && (t.harmless || failure.Unsent) &&
		attempt < t.policy.MaxAttempts && ctx.Err() == nil
}

// record writes the line that a failed attempt leaves in the log.
func (t *tries) record(ctx context.Context, call peer.Call, failure *fault.Error, pause time.Duration) {
	reason, cause := failure.Log()
	attrs := []slog.Attr{
		slog.String("tool", call.Tool),
		slog.String("call_id", callid.From(ctx)),
		slog.Int("attempt", call.Attempt),
		slog.String("code", string(failure.Code)),
		slog.String("reason", brief.Cut(reason, maxWords)),
		slog.Float64("pause_ms", float64(pause.Microseconds())/1000),
	}
	if cause != nil {
		attrs = append(attrs, slog.String("err", brief.Cut(cause.Error(), maxWords)))
	}
	t.opts.Log.LogAttrs(ctx, slog.LevelInfo, "attempt", attrs...)
}

// maxWords bounds what one line of the log takes of a tool's words.
const maxWords = 1 << 10

// wait pauses, until the call's context ends, the call may not be made any more, or Orla is about to stop. The
// error says why the call ends.
func (t *tries) wait(ctx context.Context, pause time.Duration) (err error) {
	ctx, end := rejudge.While(ctx)
	defer end()
	select {
	case <-time.After(pause):
	case <-t.opts.Stopping():
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}

// stopping reports whether nothing more is to be begun.
func (t *tries) stopping() bool {
	select {
	case <-t.opts.Stopping():
		return true
	default:
		return false
	}
}
