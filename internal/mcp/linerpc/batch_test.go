package linerpc

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/orla-project/orla/internal/mcp/rpc"
)

// gathering holds the turn to write with a first line, and starts calls that join it.
func gathering(p *process, first string, calls ...rpc.Request) (b *batch, done []<-chan outcome) {
	p.w.writing <- struct{}{}
	b = &batch{pieces: [][]byte{[]byte(first)}, size: len(first)}
	p.w.next = b
	for _, req := range calls {
		done = append(done, p.calls(p.t.Context(), req))
		synctest.Wait()
	}
	p.w.mu.Lock()
	p.w.next = nil
	p.w.mu.Unlock()
	return b, done
}

// SPEC L1: what is to be written at the same moment is written at once, in order. A long
// line goes by itself.
func TestL1LinesAreWrittenTogether(t *testing.T) {
	inBubble(t, func(t *testing.T, p *process) {
		b, done := gathering(p, "{}\n", rpc.Request{Method: "a"}, rpc.Request{Method: "long", Params: sized(longLine)}, rpc.Request{Method: "b"})
		if len(b.pieces) != 1 || len(b.joined) != 2 || strings.Count(string(b.pieces[0]), "\n") != 3 {
			t.Fatalf("%d calls have joined: %.300q", len(b.joined), b.pieces)
		}
		wrote := make(chan error, 1)
		go func() { wrote <- p.w.writeNow(*b) }()
		var got []string
		for range 4 {
			m := p.gets()
			if got = append(got, m.Method); m.Method != "" {
				p.answers(m.ID)
			}
		}
		if err := <-wrote; err != nil || strings.Join(got, " ") != " a b long" {
			t.Errorf("the process reads %q, %v", got, err)
		}
		for _, d := range done {
			if o := <-d; o.err != nil {
				t.Error(o.err)
			}
		}
	})
}

// SPEC L1: a line of some KiB is written at once, although its parts are not in one piece. A longer one is not copied.
func TestL1TheLineOfSomeKiBIsOnePiece(t *testing.T) {
	inBubble(t, func(t *testing.T, p *process) {
		for size, pieces := range map[int]int{longLine + 1: 1, batchSize: 1, batchSize + 1: 3} {
			line := [][]byte{[]byte("{"), bytes.Repeat([]byte(" "), size-3), []byte("}\n")}
			b := p.w.gather(line)
			if len(b.pieces) != pieces || b.size != size || !bytes.Equal(slices.Concat(b.pieces...), slices.Concat(line...)) {
				t.Errorf("a line of %d bytes is written in %d pieces of %d bytes", size, len(b.pieces), b.size)
			}
		}
	})
}

// A call that has joined others, and of whose line nothing was sent, says so: it may be
// made again (SPEC D10). So does one that the end of the connection found before its write.
func TestD10ALineThatJoinedAndWasNotSentIsNot(t *testing.T) {
	for name, end := range map[string]func(p *process, b *batch){
		"a broken pipe": func(p *process, b *batch) {
			go func() {
				_, _ = io.ReadFull(p.lines, make([]byte, len("{}\n")+10)) // the first line, and a part of the second
				_ = p.theirIn.Close()
			}()
			for _, j := range b.joined {
				_ = p.Sending(j.call) // as gather does
			}
			_ = p.w.writeNow(*b)
		},
		"a close": func(p *process, b *batch) {
			p.GiveUp(io.ErrClosedPipe)
			_ = p.w.writeNow(*b) // the first line's error is its own
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, p *process) {
				b, done := gathering(p, "{}\n", rpc.Request{Method: "a"}, rpc.Request{Method: "b"})
				end(p, b)
				synctest.Wait()
				p.Close(errors.New("the process is gone"))
				if o := <-done[1]; !errors.Is(o.err, rpc.ErrNotSent) {
					t.Errorf("the second call ends with %v", o.err)
				}
				if o := <-done[0]; errors.Is(o.err, rpc.ErrNotSent) != (name == "a close") {
					t.Errorf("the first call, of which a part may have been sent, ends with %v", o.err)
				}
			})
		})
	}
}
