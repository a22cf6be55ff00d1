package mcpbridge

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
)

// ServeStdio serves one client over in and out until in ends and every request
// that was read is answered, or until ctx ends (SPEC G1). Messages are one a
// line; maxMessage bounds a line in bytes. It returns why out could not be
// written to, ctx's error, or nil.
func (b *Bridge) ServeStdio(ctx context.Context, in io.Reader, out io.Writer, maxMessage int64) error {
	c := newConn(func(raw json.RawMessage) error {
		_, err := out.Write(append(raw, '\n'))
		return err
	}, maxMessage, b.log)
	// A read of stdin cannot be interrupted on every system, so this goroutine
	// may outlive the connection until its input ends. It touches nothing then.
	go c.readLines(bufio.NewReaderSize(in, 64<<10))

	session, err := b.server.Connect(context.WithoutCancel(ctx), c, nil)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- session.Wait() }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		c.hangUp()
		<-ended
		err = ctx.Err()
	}
	if failed := c.failure(); failed != nil {
		return failed
	}
	return err
}

// readLines hands over line after line until the input ends.
func (c *conn) readLines(r *bufio.Reader) {
	defer close(c.read)
	for {
		l, err := readLine(r, c.max)
		if len(bytes.TrimSpace(l.data)) > 0 || l.tooLong {
			select {
			case c.read <- l:
			case <-c.done:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// readLine reads one line of at most maxLine bytes; a longer one is read to its end
// and dropped.
func readLine(r *bufio.Reader, maxLine int64) (line, error) {
	var l line
	for {
		part, err := r.ReadSlice('\n')
		if int64(len(l.data)+len(part)) > maxLine {
			l.tooLong, l.data = true, nil
		} else if !l.tooLong {
			l.data = append(l.data, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return l, err
		}
	}
}
