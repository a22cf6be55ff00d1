package stdio

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/budget"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// LastAnswers bounds the time to write the answers of calls that have ended, when the connection
// ends.
const LastAnswers = 500 * time.Millisecond

// Serve serves one client over in and out until in ends and every request
// that was read is answered, or until ctx ends (SPEC G1). Messages are one a
// line; maxMessage bounds a line in bytes. It returns why out could not be
// written to, ctx's error, or nil.
//
// Not every system can interrupt a read or a write, so the goroutine that reads or writes may outlive
// this function. It does not use the bridge then.
func Serve(ctx context.Context, b *mcpbridge.Bridge, in io.Reader, out io.Writer, maxMessage int64) error {
	c := newConn(b, client.Origin{Caller: "stdio", Transport: client.Stdio}, maxMessage)
	c.send = writeLines(out, c.ctx.Done())
	c.out = out
	go c.readLines(bufio.NewReaderSize(in, 64<<10)) //nolint:contextcheck // a request has the context of its connection

	var err error
	select {
	case <-c.answered:
	case <-c.ctx.Done():
	case <-ctx.Done():
		err = ctx.Err()
		c.StopReading()
		select {
		case <-c.answered:
		case <-c.ctx.Done():
		case <-time.After(LastAnswers):
		}
	}
	c.finish()
	if failed := c.failure(); failed != nil {
		return failed
	}
	return err
}

// writeLines returns a function that writes a message as a line, and that
// returns when done is closed even if the write does not.
func writeLines(out io.Writer, done <-chan struct{}) func(wire.Parts) error {
	lines, wrote := make(chan []byte), make(chan error)
	go func() {
		for {
			select {
			case line := <-lines:
				_, err := out.Write(line)
				select {
				case wrote <- err:
				case <-done:
					return
				}
			case <-done:
				return
			}
		}
	}()
	return func(message wire.Parts) error {
		select {
		case lines <- append(message.Join(), '\n'):
		case <-done:
			return client.ErrHungUp
		}
		select {
		case err := <-wrote:
			return err
		case <-done:
			return client.ErrHungUp
		}
	}
}

// readLines passes on each line until the input ends.
func (c *Conn) readLines(r *bufio.Reader) {
	defer c.endInput()
	var account *budget.Account // of a line that nobody has taken yet
	defer recovered.To(c.log, "read from a client", func(any) { account.End() })
	like := 0 // how long the last long line was: the next may be as long
	for {
		c.awaitReader()
		l, err := readLine(r, c.max, &like)
		select {
		case <-c.stop:
			return
		default:
		}
		l.data = bytes.TrimSpace(l.data)
		var admitted bool
		account, admitted = c.admit(l.data)
		l.account = account
		if admitted && (len(l.data) > 0 || l.tooLong) {
			c.take(l)
		}
		account = nil
		select {
		case <-c.ctx.Done():
			return
		default:
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				c.log.Debug("read from the client", "err", err)
			}
			return
		}
	}
}

// admit waits for room for a line, and does not read on in the meantime. A request without room is refused
// after a while; an answer is always taken, since calls in flight may wait for it.
func (c *Conn) admit(raw []byte) (account *budget.Account, ok bool) {
	if len(raw) <= budget.Small {
		return nil, true
	}
	account = budget.NewAccount(c.bridge.Requests(), c.from.Owner())
	if account.Grow(c.ctx, int64(len(raw)), budget.Patience) == nil || raw[0] != '[' && !wire.AsksSomething(raw) {
		return account, true
	}
	c.deliverLogged(wire.Parts{budget.RefusalJSON(wire.IDOf(raw), fault.NotReady, budget.NoRoom)})
	return nil, false
}

// readLine reads one line of at most maxLine bytes. A longer one is read to its end and dropped. like
// is the size of the last long line, which the caller keeps.
func readLine(r *bufio.Reader, maxLine int64, like *int) (line, error) {
	var l line
	for {
		part, err := r.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) && l.data == nil && !l.tooLong {
			l.data = make([]byte, 0, max(*like, 2*len(part)))
		}
		switch {
		case l.tooLong:
		case int64(len(l.data)+len(bytes.TrimRight(part, "\r\n"))) > maxLine:
			l.tooLong, l.data = true, nil
		default:
			l.data = append(l.data, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			*like = max(len(l.data), *like/2) // the effect of a rare long line decays
			return l, err
		}
	}
}
