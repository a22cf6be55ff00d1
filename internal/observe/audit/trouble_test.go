package audit_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
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
		l, err := audit.OpenOver(p.options(), func(lines []byte, next func([]byte) (int, error)) (int, error) {
			if !full.Load() {
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

func TestT88CanonicalArguments(t *testing.T) {
	for in, want := range map[string]string{
		`{}`: `{}`,
		` { "b" : [ 1 , 2.0 , -1e+3 ] , "a" : { } } `: `{"a":{},"b":[1,2.0,-1e+3]}`,
		`{"a":[],"c":null,"b":true}`:                  `{"a":[],"b":true,"c":null}`,
		`{"z":{"y":1,"x":2},"a":{"c":3,"b":4}}`:       `{"a":{"b":4,"c":3},"z":{"x":2,"y":1}}`,
		`{"a":2,"a":1}`:                               `{"a":2,"a":1}`,
		`{"\u0061":"\u20ac\u000A\/\u001f\"\\"}`:       `{"a":"€\n/\u001f\"\\"}`,
		// The order of RFC 8785, 3.2.3: by UTF-16 code units.
		`{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}`: "{\"\\r\":2,\"1\":4,\"\u0080\":6,\"ö\":7,\"€\":1,\"😀\":5,\"\ufb33\":3}",
	} {
		if got, ok := audit.Canonical([]byte(in)); !ok || got != want {
			t.Errorf("%s: got %s, %v; want %s", in, got, ok, want)
		}
	}
	for name, in := range map[string]string{
		"too deep":  strings.Repeat("[", 1000) + strings.Repeat("]", 1000),
		"too large": `"` + strings.Repeat("x", 1<<20) + `"`,
	} {
		if _, ok := audit.Canonical([]byte(in)); ok {
			t.Errorf("%s: it has a canonical form", name)
		}
	}
}

// What encoding/json makes of a value has one canonical form, whatever the order and the spaces.
func FuzzT88Canonical(f *testing.F) {
	f.Add(`{"a":1,"b":[{"d":"\u00e9","c":null}]}`, uint64(1))
	f.Add(`[1,"x",{"":{}}]`, uint64(2))
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		var value any
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		if !json.Valid([]byte(text)) || d.Decode(&value) != nil {
			return
		}
		tight, ok := audit.Canonical(shuffled(value, rand.New(rand.NewPCG(seed, 1))))
		again, ok2 := audit.Canonical(shuffled(value, rand.New(rand.NewPCG(seed, 2))))
		if ok != ok2 || ok && tight != again {
			t.Fatalf("%s has the forms %s and %s", text, tight, again)
		}
		if ok && !json.Valid([]byte(tight)) {
			t.Fatalf("%s became %s", text, tight)
		}
		if got, ok := audit.Canonical([]byte(text)); ok && !json.Valid([]byte(got)) {
			t.Fatalf("%s became %s", text, got)
		}
	})
}

// shuffled writes a value with its members in a random order, and spaces.
func shuffled(value any, r *rand.Rand) []byte {
	switch v := value.(type) {
	case map[string]any:
		var keys []string
		for key := range v {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		r.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		out := []byte("{ ")
		for i, key := range keys {
			if i > 0 {
				out = append(out, " ,\n"...)
			}
			name, _ := json.Marshal(key)
			out = append(append(append(out, name...), " :\t"...), shuffled(v[key], r)...)
		}
		return append(out, " }"...)
	case []any:
		out := []byte("[")
		for i, item := range v {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(out, shuffled(item, r)...)
		}
		return append(out, ']')
	default:
		out, _ := json.Marshal(v)
		return out
	}
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
			Caller: odd, Tool: odd, Target: odd, Outcome: odd, ID: odd, Trace: odd, Args: []byte(args),
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
