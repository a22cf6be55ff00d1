package linerpc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/rpc"
)

var (
	ann = turns.Owner{Caller: "ann", Session: "1"}
	bob = turns.Owner{Caller: "bob", Session: "2"}
)

// spareNotes is an Options.Spare: notifications of the method "n", whose params are the id of a call.
func spareNotes(line []byte) (call int64, spare bool) {
	_, after, spare := bytes.Cut(line, []byte(`"method":"n","params":`))
	_, _ = fmt.Sscan(string(after), &call)
	return call, spare
}

// flooding is a process that has said too much, and says so many lines more of a call, of about so many bytes.
type flooding struct {
	*process
	heard map[int64]int // notes of each call
	out   []int         // what LeftOut was told
}

func floods(t *testing.T, p *process) *flooding {
	t.Helper()
	f := &flooding{process: p, heard: map[int64]int{}}
	p.heard.notified = func(_ string, params json.RawMessage) {
		var id int64
		_, _ = fmt.Sscan(string(params), &id)
		f.heard[id]++
	}
	p.spare, p.left = spareNotes, func(lines int) { f.out = append(f.out, lines) }
	return f
}

func (f *flooding) note(id int64, size int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"n","params":%d,"x":"%s"}`+"\n", id, strings.Repeat("x", size))
}

// keeps says lines all at once, as a pipe that is full has them.
func (f *flooding) keeps(lines string) {
	f.t.Helper()
	if _, err := f.process.out.Write([]byte(lines)); err != nil {
		f.t.Error(err)
	}
}

// begins makes a call of an owner, and returns its id.
func (f *flooding) begins(owner turns.Owner) (id int64, done <-chan outcome) {
	f.t.Helper()
	done = f.calls(f.t.Context(), rpc.Request{Owner: owner, Client: owner.Session})
	return f.gets().ID, done
}

// SPEC N2: what a process says of a call of one caller does not hold up the answers for another.
func TestN2NotesOfOneCallerDelayNoOther(t *testing.T) {
	for name, test := range map[string]struct {
		lines, bytes int
		most         time.Duration
	}{
		"small":      {20_000, 10, 100 * time.Millisecond},
		"large":      {16, 1 << 20, 200 * time.Millisecond},
		"very large": {1, 15 << 20, 200 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, p *process) {
				f := floods(t, p)
				anns, floodsOf := f.begins(ann)
				bobs, asks := f.begins(bob)
				began := time.Now()
				f.keeps(strings.Repeat(f.note(anns, test.bytes), test.lines) + f.note(bobs, 10))
				f.answers(bobs)
				if got := <-asks; got.err != nil {
					t.Errorf("the other call: %v", got.err)
				}
				if took := time.Since(began); took > test.most {
					t.Errorf("behind %d lines of %d bytes, the answer comes after %v", test.lines, test.bytes, took)
				}
				if f.heard[bobs] != 1 {
					t.Errorf("the other call has %d notes, want 1", f.heard[bobs])
				}
				f.answers(anns)
				<-floodsOf
			})
		})
	}
}

// SPEC S2: a process that works for one caller is slowed down, and nothing is left out.
func TestS2AProcessOfOneCallerIsSlowedDown(t *testing.T) {
	inBubble(t, func(t *testing.T, p *process) {
		f := floods(t, p)
		anns, done := f.begins(ann)
		other, alsoDone := f.begins(turns.Owner{Caller: "ann", Session: "3"})
		began := time.Now()
		const lines = pace.MaxLines
		f.keeps(strings.Repeat(f.note(anns, 10), lines))
		f.answers(anns)
		f.answers(other)
		<-done
		<-alsoDone
		if took := time.Since(began); f.heard[anns] != lines || len(f.out) > 0 || took < 900*time.Millisecond {
			t.Errorf("%d of %d notes are heard after %v, and left out were %v", f.heard[anns], lines, took, f.out)
		}
	})
}

// SPEC N2: a call of another caller ends a pause that has begun. Without calls, the pause goes on.
func TestN2AnotherCallersCallEndsAPause(t *testing.T) {
	inBubble(t, func(t *testing.T, p *process) {
		f := floods(t, p)
		anns, done := f.begins(ann)
		said := make(chan struct{})
		go func() {
			defer close(said)
			f.keeps(strings.Repeat(f.note(anns, 8<<20-100), 2))
		}()
		time.Sleep(100 * time.Millisecond) // of two seconds
		synctest.Wait()
		bobs, asks := f.begins(bob)
		began := time.Now()
		<-said
		f.answers(bobs)
		<-asks
		if took := time.Since(began); took > 200*time.Millisecond {
			t.Errorf("the other call is answered after %v", took)
		}
		f.answers(anns)
		<-done
		for range 30 { // before the next look at who waits, some are read
			f.keeps(f.note(0, 32<<10))
		}
		if took := time.Since(began); took < 500*time.Millisecond {
			t.Errorf("without a call the pause ends after %v", took)
		}
	})
}

// SPEC S2: how much is left out is told once a minute at most, and at the end. What may not be left out is taken.
func TestS2WhatIsLeftOutIsCounted(t *testing.T) {
	var f *flooding
	var sent, kept int
	inBubble(t, func(t *testing.T, p *process) {
		f = floods(t, p)
		anns, done := f.begins(ann)
		bobs, asks := f.begins(bob)
		for range 10 {
			f.keeps(strings.Repeat(f.note(anns, 10), 1000) + `{"jsonrpc":"2.0","method":"changed","params":0}` + "\n")
			sent += 1000
		}
		f.answers(anns)
		f.answers(bobs)
		<-done
		<-asks
		kept = f.heard[anns]
		if f.heard[0] != 10 {
			t.Errorf("%d of 10 other notifications are heard", f.heard[0])
		}
	})
	all := 0
	for _, n := range f.out {
		all += n
	}
	if len(f.out) < 1 || len(f.out) > 2 || all != sent-kept || all == 0 {
		t.Errorf("of %d lines %d are heard, and left out were %v", sent, kept, f.out)
	}
}
