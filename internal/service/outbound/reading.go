package outbound

import (
	"context"
	"errors"
	"io"
	"math"
	"runtime"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
)

// Body reads an answer's body. A body over max bytes is an error, and never truncated. The error is
// a *fault.Error.
func Body(r io.Reader, max int64) ([]byte, error) { return Reading{}.Body(r, max) }

// Reading is how the body of an answer that may be large is read.
type Reading struct {
	Length int64 // how many bytes the answer has, as it says; 0 or less if it does not
	// Turn does work, which makes room for a body of n bytes and copies what is there, when it may: SPEC N2. Without
	// it, work is done at once.
	Turn func(n int, work func()) error
	// Room waits until n bytes more may be in memory, before there is room for them: SPEC S2. Without it, they are not
	// counted. From turns.Little bytes on, it counts as many as the answer is said to have.
	Room func(n int64) error
}

// Counted returns a Reading in the turn, and with the room, of the call of a context.
func Counted(ctx context.Context, length int64) Reading {
	account := turns.AccountOf(ctx)
	return Reading{
		Length: length,
		Turn:   func(n int, work func()) error { return account.Work(ctx, n, work) },
		Room:   func(n int64) error { return account.Need(ctx, n) },
	}
}

const (
	// firstRoom is how many bytes a body has room for at first.
	firstRoom = 4 << 10
	// ahead is how many times as much as has come there may be room for, if the answer is said to be as long.
	ahead = 4
	// portion is how many bytes are read before other goroutines are let run: a service that is near is read without a
	// pause, and a processor would be busy with it for 10 ms.
	portion = 256 << 10
)

// Body reads a body as Body does.
func (g Reading) Body(r io.Reader, max int64) ([]byte, error) {
	max = min(max, math.MaxInt-2)
	b := growing{Reading: g, most: max + 1} // one byte more shows that the body is too long
	var err error
	for int64(len(b.bytes)) <= max && err == nil {
		err = b.readFrom(r)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	switch f, ok := errors.AsType[*fault.Error](err); {
	case ok:
		return nil, f
	case err != nil:
		reason, again := transportReason(err, true)
		f := fault.New(fault.ExecutionFailed, "%s", reason)
		f.Retry = &again
		return nil, f
	case int64(len(b.bytes)) > max:
		return nil, fault.New(fault.ExecutionFailed, "the answer is over %d bytes, which is the limit (max_output)", max)
	}
	return b.bytes, nil
}

// Exactly reads n bytes. An error is the reader's own, and what has come by then is returned with it.
func (g Reading) Exactly(r io.Reader, n int64) ([]byte, error) {
	b := growing{Reading: g, most: n}
	for int64(len(b.bytes)) < n {
		if err := b.readFrom(r); err != nil && int64(len(b.bytes)) < n {
			return b.bytes, err
		}
	}
	return b.bytes, nil
}

// growing is a body that is being read.
type growing struct {
	Reading
	most    int64 // bytes that there may be room for
	bytes   []byte
	counted int64 // bytes for which Room was asked
	alone   int   // bytes that were read since others were let run
}

// readFrom reads more of the body.
func (b *growing) readFrom(r io.Reader) error {
	if len(b.bytes) == cap(b.bytes) {
		if err := b.grow(); err != nil {
			return err
		}
	}
	n, err := r.Read(b.bytes[len(b.bytes):min(cap(b.bytes), len(b.bytes)+portion)])
	b.bytes = b.bytes[:len(b.bytes)+n]
	if b.alone += n; b.alone >= portion {
		b.alone = 0
		runtime.Gosched()
	}
	return err
}

// grow makes room for more of the body.
func (b *growing) grow() error {
	has := int64(cap(b.bytes))
	room := max(2*has, firstRoom)
	if b.Length > 0 { // one byte more shows the end
		room = min(b.Length+1, max(ahead*has, firstRoom))
		if room <= has { // it is longer than it said
			room = 2 * has
		}
	}
	room = min(room, b.most)
	if err := b.count(room); err != nil {
		return err
	}
	work := func() { b.bytes = append(make([]byte, 0, room), b.bytes...) }
	if b.Turn == nil {
		work()
		return nil
	}
	return b.Turn(int(room), work)
}

// count has room counted before it is made. Calls that each have a part, and wait for the rest, would have more memory
// together than those that wait before they begin.
func (b *growing) count(room int64) error {
	if room > turns.Little {
		room = max(room, min(b.Length+1, b.most))
	}
	more := room - b.counted
	if b.Room == nil || more <= 0 {
		return nil
	}
	b.counted = room
	return b.Room(more)
}
