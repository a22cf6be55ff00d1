package mcpbridge

import (
	"context"
	"log/slog"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/trace"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// loggedCall is what the log says about a call.
type loggedCall struct {
	id, tool      string
	argumentBytes int
	from          client.Origin
	trace         trace.Context
	took          time.Duration
	how           outcome
}

// record writes the line of a call in the log (SPEC I2). docs/LOG.md has its keys. For nil it
// writes nothing.
func (b *Bridge) record(ctx context.Context, c *loggedCall) {
	to := b.log.Handler()
	if c == nil || !to.Enabled(ctx, slog.LevelInfo) {
		return
	}
	how := &c.how
	attrs := []slog.Attr{
		slog.String("tool", wire.BriefName(c.tool)),
		slog.String("call_id", c.id),
		slog.Float64("duration_ms", float64(c.took.Microseconds())/1000),
		slog.Bool("ok", how.ok),
		slog.String("caller", c.from.Caller),
		slog.String("session", wire.Shortened(c.from.Session)),
		slog.Int("request_bytes", c.argumentBytes),
		slog.Int("response_bytes", how.answerBytes),
	}
	if !how.ok {
		attrs = append(attrs, slog.String("code", how.code))
	}
	if how.attempts > 1 {
		attrs = append(attrs, slog.Int("attempts", how.attempts))
	}
	if !c.trace.IsZero() {
		attrs = append(attrs, slog.String("trace_id", c.trace.TraceID()))
	}
	if f := how.fault; f != nil {
		reason, cause := f.Log()
		attrs = append(attrs, slog.String("reason", wire.Brief(reason)))
		if cause != nil {
			attrs = append(attrs, slog.String("err", wire.Brief(cause.Error())))
		}
	}
	line := slog.NewRecord(time.Now(), slog.LevelInfo, "call", 0) // a Logger would also look up the source line
	line.AddAttrs(attrs...)
	_ = to.Handle(ctx, line) // as a Logger does
}

// outcome is how a call ended, for the log.
type outcome struct {
	ok          bool
	answerBytes int    // size of the result that the client gets: of the JSON if a peer wrote it, else of its text and data
	code        string // why it is not ok
	fault       *fault.Error
	attempts    int // how many were made
}

// end returns the CallEnd for the observer. result says that the answer is a result, not a
// JSON-RPC error.
func (o outcome) end(result bool, took time.Duration) CallEnd {
	return CallEnd{OK: o.ok, Code: o.code, IsError: result && !o.ok, Attempts: o.attempts, ResponseBytes: o.answerBytes, Took: took}
}
