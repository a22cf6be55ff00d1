package outbound_test

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/service/outbound"
)

// watched is a body that must not be read in a turn.
type watched struct {
	t      *testing.T
	r      io.Reader
	inTurn *bool
}

func (w watched) Read(p []byte) (int, error) {
	if *w.inTurn {
		w.t.Error("the body is read in a turn")
	}
	return w.r.Read(p)
}

// SPEC N2, S1: a large body is copied in turns, in which nothing waits for the network, and room is made for no more than
// a few times what has come.
func TestN2ABodyIsCopiedInTurns(t *testing.T) {
	whole := bytes.Repeat([]byte("0123456789abcdef"), 500_000) // 8 MB
	for _, c := range []struct {
		what   string
		length int64 // as it says
		sent   int
		most   int64
		copies int // of as many bytes as were sent, and a bit
	}{
		{"in chunks", -1, len(whole), 16 << 20, 3},
		{"with its length", int64(len(whole)), len(whole), 16 << 20, 2},
		{"with its length, which is the limit", int64(len(whole)), len(whole), int64(len(whole)), 2},
		{"with another length", 10, len(whole), 16 << 20, 4},
		{"much shorter than it says", 16 << 20, 100_000, 16 << 20, 7},
		{"empty", 0, 0, 16 << 20, 0},
	} {
		inTurn, room, counted := false, 0, 0
		got, err := outbound.Reading{Length: c.length, Turn: func(n int, work func()) error {
			if n > counted {
				t.Errorf("%s: room for %d bytes is made, and %d are counted", c.what, n, counted)
			}
			inTurn = true
			work()
			inTurn = false
			room += n
			return nil
		}, Room: func(n int64) error {
			counted += int(n)
			return nil
		}}.Body(watched{t, iotest.HalfReader(bytes.NewReader(whole[:c.sent])), &inTurn}, c.most)
		if err != nil || !bytes.Equal(got, whole[:c.sent]) {
			t.Errorf("%s: %d bytes, %v", c.what, len(got), err)
		}
		if room > c.copies*c.sent+8<<10 {
			t.Errorf("%s: room for %d bytes was made for %d", c.what, room, c.sent)
		}
	}
	if _, err := (outbound.Reading{Length: 10}).Body(bytes.NewReader(whole), int64(len(whole)-1)); err == nil {
		t.Error("a body that is too long is read")
	}
	late := errors.New("too late")
	if _, err := (outbound.Reading{Turn: func(int, func()) error { return late }}).Body(bytes.NewReader(whole), 16<<20); err == nil {
		t.Error("a body is read without a turn")
	}
}

// SPEC S2: of answers that wait for room, only the beginning is in memory.
func TestS2AnswersThatWaitAreNotRead(t *testing.T) {
	const mebi = 1 << 20
	synctest.Test(t, func(t *testing.T) {
		room := turns.NewRoom(16 * mebi)
		var large atomic.Int32 // of which more than the beginning was read
		var all sync.WaitGroup
		read := make(chan struct{})
		whole := bytes.Repeat([]byte("x"), 4*mebi)
		for range 16 {
			all.Go(func() {
				ctx, release := room.Open(t.Context(), turns.Owner{Caller: "ann"})
				defer release()
				body := io.MultiReader(bytes.NewReader(whole[:100_000]), waiting{&large, read}, bytes.NewReader(whole[100_000:]))
				if got, err := outbound.Counted(ctx, 4*mebi).Body(body, 16*mebi); err != nil || !bytes.Equal(got, whole) {
					t.Errorf("%d bytes, %v", len(got), err)
				}
			})
		}
		synctest.Wait()
		if got := large.Load(); got == 0 || got > 3 {
			t.Errorf("%d answers of 4 MiB are being read in a room of 16 MiB, of which one caller has half; want 2, and one more", got)
		}
		close(read)
		all.Wait()
	})
}

// waiting is a reader of nothing that counts who has come as far, and waits.
type waiting struct {
	here *atomic.Int32
	end  <-chan struct{}
}

func (w waiting) Read([]byte) (int, error) {
	w.here.Add(1)
	<-w.end
	return 0, io.EOF
}
