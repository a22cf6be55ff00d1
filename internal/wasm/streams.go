package wasm

import (
	"context"
	"crypto/rand"
	"io"
	"time"

	"github.com/orla-project/orla/internal/call/pace"
)

// output collects what a module writes to stdout, up to a limit.
type output struct {
	data []byte
	most int64
	full func() // called if there is more
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	if int64(len(o.data))+int64(len(p)) > o.most {
		o.full()
		return 0, io.ErrShortWrite
	}
	o.data = append(o.data, p...)
	return len(p), nil
}

// until is a writer that fails once ctx is done: a single call by the guest may write a hundred
// million buffers.
type until struct {
	ctx  context.Context
	turn *turn
	io.Writer
}

// Write implements io.Writer.
func (u until) Write(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	if err := u.turn.room(u.ctx, int64(len(p))); err != nil {
		return 0, err
	}
	return u.Writer.Write(p)
}

// maxStderr is how much of stderr is kept: half of it from the beginning, and half from the end.
const maxStderr = 64 << 10

// tail keeps the beginning and the end of what a module writes to stderr.
type tail struct {
	head, end []byte
	dropped   int64
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	if room := maxStderr/2 - len(t.head); room > 0 {
		room = min(room, len(p))
		t.head = append(t.head, p[:room]...)
		p = p[room:]
	}
	if over := len(p) - maxStderr/2; over > 0 {
		t.dropped += int64(over)
		p = p[over:]
	}
	if over := len(t.end) + len(p) - maxStderr/2; over > 0 {
		t.dropped += int64(over)
		t.end = append(t.end[:0], t.end[over:]...)
	}
	t.end = append(t.end, p...)
	return n, nil
}

func (t *tail) bytes() []byte {
	if t.dropped == 0 {
		return append(t.head, t.end...)
	}
	all := append(t.head, "\n[…]\n"...)
	return append(all, t.end...)
}

// sleeper returns a sleep function that ends with ctx at the latest. Other calls can compute during
// it.
func sleeper(ctx context.Context, turn *turn) func(ns int64) {
	return func(ns int64) {
		_ = turn.wait(ctx, func() error { // after an error, ctx is over, which yield sees
			pace.Sleep(ctx, time.Duration(ns))
			return nil
		})
	}
}

// random is a source of random numbers that fails once ctx is done, however many are read at once.
type random struct{ ctx context.Context }

// Read implements io.Reader.
func (r random) Read(p []byte) (int, error) {
	const most = 1 << 20
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return rand.Read(p[:min(len(p), most)])
}
