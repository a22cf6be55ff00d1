package audit_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/observe/audit"
)

// A disk that is full: no call is made, the line that was begun is completed later, and the log says what
// happened.
func TestT88AFullDiskRefusesCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(t)
		var full atomic.Bool
		l := p.openOnDisk(t, full.Load)
		l.Record(callOf(1))
		time.Sleep(audit.RetryAfter / 2) // in the bubble
		full.Store(true)
		l.Record(callOf(2))
		time.Sleep(audit.RetryAfter * 3)
		if err := l.Err(); err == nil {
			t.Fatal("calls are made although they cannot be recorded")
		}
		l.Refused()
		l.Refused()
		l.Record(callOf(3)) // was under way
		full.Store(false)
		time.Sleep(audit.RetryAfter * 2)
		if err := l.Err(); err != nil {
			t.Errorf("calls are refused still: %v", err)
		}
		l.Record(callOf(4))
		l.Close()
		r := p.mustBeOK(t, p.read(t))
		if r.Calls != 4 || len(r.Notes) != 1 || !strings.Contains(r.Notes[0].Text, "0 calls were made and could not be recorded, and 2 were refused") {
			t.Errorf("the report is %+v", *r)
		}
		if l.Err() == nil {
			t.Error("a log that is closed takes calls")
		}
	})
}

// Lines that cannot be kept are counted, and an end in trouble ends.
func TestT88WhatCannotBeKeptIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(t)
		var full atomic.Bool
		full.Store(true)
		l, err := audit.OpenOver(p.options(), func(lines []byte, next func([]byte) (int, error)) (int, error) {
			if full.Load() {
				return 0, syscall.ENOSPC
			}
			return next(lines)
		})
		if err != nil {
			t.Fatal(err)
		}
		l.Record(callOf(0))
		time.Sleep(time.Second)
		n := 1
		for size := 0; size < 2*audit.MaxPending; n++ {
			l.Record(callOf(n))
			size += 300
		}
		full.Store(false)
		time.Sleep(5 * time.Second)
		full.Store(true)
		l.Record(callOf(n))
		l.Close()
		text := p.read(t)
		text = text[:bytes.LastIndexByte(text, '\n')+1]
		v := p.verifier(t)
		if err := v.File(t.Context(), "x", bytes.NewReader(text), false); err != nil {
			t.Fatal(err)
		}
		r := v.Report()
		if want := fmt.Sprintf("%d calls were made and could not be recorded", n-r.Calls); !r.OK() || len(r.Notes) != 1 || !strings.Contains(r.Notes[0].Text, want) || n == r.Calls {
			t.Errorf("%d calls; the report is %+v; want %q", n, *r, want)
		}
	})
}

// The end of a log whose disk was full: what waited is written if there is room again. If there is none at that moment, nothing follows
// in the file, and the next start goes on with it.
func TestT88TheEndOnAFullDisk(t *testing.T) {
	for name, c := range map[string]struct {
		failures int32 // of the writes at the end
		more     int   // calls that are under way
	}{"there is room at the end": {0, 1}, "a head follows": {0, 0}, "there is room after the last try": {1, 1}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlace(t)
				var left atomic.Int32 // writes that fail
				l := p.openOnDisk(t, func() bool { return left.Add(-1) >= 0 })
				left.Store(1 << 10)
				l.Record(callOf(1))
				time.Sleep(audit.RetryAfter / 2) // in the bubble
				for range c.more {
					l.Record(callOf(2))
				}
				left.Store(c.failures)
				l.Close()
				next, err := audit.Open(p.options())
				if err != nil {
					t.Fatalf("the next start: %v", err)
				}
				next.Close()
				if r := p.mustBeOK(t, p.read(t)); c.failures == 0 && r.Calls != 1+c.more {
					t.Errorf("the report is %+v", *r)
				}
			})
		})
	}
}

// A write that does not end makes calls wait, and then refuses them.
func TestT88AStuckWriteRefusesCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(t)
		release := make(chan struct{})
		l, err := audit.OpenOver(p.options(), func(lines []byte, next func([]byte) (int, error)) (int, error) {
			<-release
			return next(lines)
		})
		if err != nil {
			t.Fatal(err)
		}
		l.Record(callOf(0))
		time.Sleep(audit.Stuck / 2)
		if err := l.Err(); err != nil {
			t.Errorf("it is refused too early: %v", err)
		}
		time.Sleep(audit.Stuck)
		if l.Err() == nil {
			t.Error("calls are made although nothing is written")
		}
		n := 1
		for size := 0; size < audit.MaxPending-1000; n++ {
			l.Record(callOf(n))
			size += 400
		}
		var done sync.WaitGroup
		for i := range 8 { // some find no room, and wait
			done.Go(func() {
				for j := range 1000 {
					l.Record(callOf(i*1000 + j))
				}
			})
		}
		time.Sleep(time.Second)
		close(release)
		done.Wait()
		l.Close()
		if r := p.mustBeOK(t, p.read(t)); r.Calls != n+8000 {
			t.Errorf("%d of %d calls are there: %v", r.Calls, n+8000, r.Notes)
		}
	})
}

// A line is bounded, whatever a client sends, and stays one line.
func TestT88LinesAreBounded(t *testing.T) {
	p := newPlace(t)
	opts := p.options()
	opts.Full = true
	l, err := audit.Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	odd := strings.Repeat("\u2028\x00\n\"<", 1<<16)
	text, _ := json.Marshal(odd)
	for _, args := range []string{"", "null", `{"a":` + string(text) + `}`, `{"b":1, "a":"` + strings.Repeat("x", audit.MaxArgs-30) + `"}`} {
		l.Record(&audit.Call{
			Ended: l.Now(), Caller: odd, Tool: odd, Target: odd, Outcome: odd, ID: odd, Trace: odd, Args: []byte(args),
			Decision: audit.Decision{Class: odd, Rule: odd, Verdict: odd, Approval: odd, Decider: odd},
		})
	}
	l.Close()
	all := p.read(t)
	if r := p.mustBeOK(t, all); r.Calls != 4 {
		t.Errorf("%+v", *r)
	}
	for line := range bytes.Lines(all) {
		if len(line) > audit.MaxLine || !json.Valid(line) {
			t.Errorf("a line of %d bytes: %.200s", len(line), line)
		}
	}
	if !bytes.Contains(all, []byte(`"args":{"a":"xxx`)) || bytes.Count(all, []byte(`"args_omitted_bytes":`)) != 1 || bytes.Count(all, []byte(`"args":{}`)) != 2 {
		t.Errorf("the arguments are not as they should be")
	}
}

func BenchmarkT88Record(b *testing.B) {
	dir := b.TempDir()
	p := place{dir + "/audit.log", dir + "/state"}
	l, err := audit.Open(p.options())
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	c := callOf(1)
	for b.Loop() {
		l.Record(c)
	}
}

// openOnDisk opens the log on a disk that has room for 7 bytes of a write while it is full.
func (p place) openOnDisk(t *testing.T, full func() bool) *audit.Log {
	t.Helper()
	l, err := audit.OpenOver(p.options(), func(lines []byte, next func([]byte) (int, error)) (int, error) {
		if !full() {
			return next(lines)
		}
		n, err := next(lines[:min(len(lines), 7)])
		if err == nil {
			err = syscall.ENOSPC
		}
		return n, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}
