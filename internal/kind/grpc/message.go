package grpc

import (
	"context"
	"encoding/binary"
	"errors"
	"io"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/service/outbound"
)

// message is an envelope as JSON.
type message []byte

// exchange is the context of one request, with its message. It gets the message of the answer.
type exchange struct {
	context.Context
	owner  turns.Owner // whose share it uses
	asks   message
	answer message
}

// exchangeKey is the key of an *exchange, in itself.
type exchangeKey struct{}

// Value implements context.Context.
func (x *exchange) Value(key any) any {
	if key == (exchangeKey{}) {
		return x
	}
	return x.Context.Value(key)
}

// prefix is the size of the flag and the length before a message.
const prefix = 5

// answer is the body of an answer. It reads the first message itself, into memory that the exchange keeps, and shows
// connect an empty message in its place: connect would read it into a buffer of its own, which grows, and copy it. A
// body that is too long ends with an error.
type answer struct {
	body io.ReadCloser
	from io.Reader // body, with its bytes counted
	to   *exchange
	tool string
	most int64 // bytes of a message

	read  int64
	began bool
	head  [prefix]byte
	shown []byte // what connect gets next
	err   error  // what connect gets after that; nil for the rest of the body
}

// Close implements io.Closer.
func (a *answer) Close() error { return a.body.Close() }

// Read implements io.Reader.
func (a *answer) Read(p []byte) (int, error) {
	if !a.began {
		a.began = true
		a.first()
	}
	switch {
	case len(a.shown) > 0:
		n := copy(p, a.shown)
		a.shown = a.shown[n:]
		return n, nil
	case a.err != nil:
		return 0, a.err
	}
	return bounded{a, a.from}.Read(p)
}

// first reads the first message. Of a broken one, connect gets what there is.
func (a *answer) first() {
	n, err := io.ReadFull(bounded{a, a.from}, a.head[:])
	a.shown = a.head[:n]
	size := int64(binary.BigEndian.Uint32(a.head[1:]))
	if err != nil || a.head[0] != 0 || size == 0 || size > a.most { // the last one breaks off at the bound
		a.err = cutOff(err)
		return
	}
	text, err := a.message(size)
	if err != nil {
		a.shown, a.err = append(a.shown, text...), cutOff(err)
		return
	}
	a.to.answer = text
	clear(a.head[1:])
}

// message reads so many bytes. An error comes with what has come.
func (a *answer) message(size int64) ([]byte, error) {
	if size <= turns.Little {
		text := make([]byte, size)
		n, err := io.ReadFull(bounded{a, a.from}, text)
		return text[:n], err
	}
	return outbound.Counted(a.to.Context, size).Exactly(bounded{a, a.body}, size)
}

// cutOff returns the error of a body that ends too early, as the body itself gives it.
func cutOff(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return io.EOF
	}
	return err
}

// bounded reads the body of an answer up to its bound.
type bounded struct {
	*answer

	from io.Reader // body, or answer.from
}

// Read implements io.Reader.
func (b bounded) Read(p []byte) (int, error) {
	left := prefix + b.most - b.read
	if left < 0 {
		return 0, fault.New(fault.ExecutionFailed, "%s answered more than max_output (%d bytes)", b.tool, b.most)
	}
	// One byte more shows whether the body is too long.
	n, err := b.from.Read(p[:min(int64(len(p)), left+1)])
	b.read += int64(n)
	return n, err
}
