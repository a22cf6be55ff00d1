package audit_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/observe/audit"
)

// What a call has is copied when it ends: its buffers are used again before its line is made (SPEC-TOOLS 8.8).
func TestT88ALineIsOfTheCallAsItEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(t)
		l, err := audit.Open(p.options())
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]bool{}
		c := callOf(0)
		c.Args = []byte(`{"n":"a"}`)
		for n := range 26 {
			c.Args[6] = byte('a' + n)
			c.Tool = "tool" + string(c.Args[6:7])
			want[c.Tool+" "+fmt.Sprintf("%x", sha256.Sum256(c.Args))] = true
			l.Record(c)
			c.Args[6] = '?'
		}
		l.Close()
		p.mustBeOK(t, p.read(t))
		for _, line := range callsIn(t, p.read(t)) {
			delete(want, line.Tool+" "+line.ArgsSHA256)
		}
		if len(want) > 0 {
			t.Errorf("not there: %v", want)
		}
	})
}

// Lines of calls and others have the order in which they came, also those that whoever calls makes because they are large.
func TestT88LinesKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(t)
		l, err := audit.Open(p.options())
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for n := range 2000 {
			c := callOf(n)
			c.Tool = "tool" + strings.Repeat("x", n)
			if n%3 == 0 {
				c.Args = []byte(`"` + strings.Repeat("y", 2*n) + `"`)
			}
			want = append(want, c.Tool[:min(len(c.Tool), 300)])
			l.Record(c)
		}
		l.Close()
		p.mustBeOK(t, p.read(t))
		got := callsIn(t, p.read(t))
		if len(got) != len(want) {
			t.Fatalf("%d calls of %d", len(got), len(want))
		}
		for n, line := range got {
			if line.Tool[:min(len(line.Tool), 300)] != want[n] {
				t.Fatalf("call %d is %.40s", n, line.Tool)
			}
		}
	})
}

// A line has the time when its call ended, by the clock of the machine, also if the line is made later (SPEC-TOOLS 8.8).
func TestT88ALineHasTheTimeWhenItsCallEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(t)
		l, err := audit.Open(p.options())
		if err != nil {
			t.Fatal(err)
		}
		var want []time.Time
		for n := range 8 {
			c := callOf(n)
			if n%2 == 1 {
				c.Args = []byte(`"` + strings.Repeat("x", 2000) + `"`)
			}
			want = append(want, time.Now())
			c.Ended = l.Now()
			time.Sleep(time.Duration(n) * 123_456_789)
			l.Record(c)
		}
		l.Close()
		for n, line := range callsIn(t, p.read(t)) {
			if !line.Time.Equal(want[n]) {
				t.Errorf("call %d has ended at %s, want %s", n, line.Time, want[n])
			}
		}
	})
}

func callsIn(t *testing.T, text []byte) (all []audit.Line) {
	t.Helper()
	for line := range bytes.Lines(text) {
		var l audit.Line
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatal(err)
		}
		if l.Event == "call" {
			all = append(all, l)
		}
	}
	return all
}
