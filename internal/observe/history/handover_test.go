package history_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/observe/history"
)

// taken returns a history that has taken what another one has given.
func taken(t *testing.T, from *history.History) *history.History {
	t.Helper()
	h := history.New()
	if err := h.Take(from.Give()); err != nil {
		t.Fatal(err)
	}
	return h
}

// SPEC Q1: the next program has the lines of this one, each in its place, and its own after them.
func TestQ1TheHistoryGoesOn(t *testing.T) {
	h := history.New()
	for i := range 3000 {
		h.Add(line("busy", []string{"call", "stderr", "state"}[i%3], i))
	}
	h.Add(line("", "serving", 3000))
	h.Add(line("quiet", "state", 3001))
	for i := range 3000 {
		h.Add(line("busier", "call", 4000+i))
	}
	next := taken(t, h)
	for _, q := range []history.Query{{}, {Tools: []string{"busy"}}, {Tools: []string{"quiet"}}, {Tools: []string{"busier", "quiet"}}} {
		if was, is := h.Last(q), next.Last(q); len(was) == 0 || !reflect.DeepEqual(is, was) {
			t.Errorf("lines of %v: %v; they were %v", q.Tools, numbers(t, is), numbers(t, was))
		}
	}
	next.Add(line("quiet", "state", 9000))
	if got := numbers(t, next.Last(history.Query{Tools: []string{"quiet"}})); len(got) != 2 || got[1] != 9000 {
		t.Errorf("lines of quiet, with a new one: %v", got)
	}
}

// SPEC Q1: another format, or one that is not whole, is refused, and nothing of it is taken.
func TestQ1AHistoryThatCannotBeTaken(t *testing.T) {
	h := history.New()
	h.Add(line("a", "state", 1))
	h.Add(line("b", "state", 2))
	good := h.Give()
	bad := map[string][]byte{"nothing": nil, "newer": bytes.Replace(good, []byte(" 1\n"), []byte(" 2\n"), 1)}
	for size := range good {
		if size != len("orla history 1\n") && size != len("orla history 1\n")+(len(good)-len("orla history 1\n"))/2 {
			bad[fmt.Sprintf("%d bytes", size)] = good[:size]
		}
	}
	for name, given := range bad {
		next := history.New()
		if err := next.Take(given); err == nil || len(next.Last(history.Query{})) != 0 {
			t.Errorf("%s: %v, with %d lines", name, err, len(next.Last(history.Query{})))
		}
	}
}

var record = flag.Bool("record", false, "write the recorded history again")

// SPEC Q1: what a program has given in format 1 is read by this one. The file stays as it is for as long as the format is
// read.
func TestQ1ARecordedHistoryIsRead(t *testing.T) {
	file := filepath.Join("testdata", "history-1")
	want := []history.Line{line("", "serving", 1), line("notes", "state", 2), line("notes", "call", 3)}
	if *record {
		h := history.New()
		for _, l := range want {
			h.Add(l)
		}
		if err := os.WriteFile(file, h.Give(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	given, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	h := history.New()
	if err := h.Take(given); err != nil {
		t.Fatal(err)
	}
	got := h.Last(history.Query{})
	for i := range got {
		got[i].Time = got[i].Time.In(time.UTC)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the recorded history is read as %v; want %v", got, want)
	}
}

// FuzzQ1TakeHistory: nothing that is given makes Take panic.
func FuzzQ1TakeHistory(f *testing.F) {
	h := history.New()
	h.Add(line("a", "state", 1))
	f.Add(h.Give())
	f.Fuzz(func(_ *testing.T, given []byte) { _ = history.New().Take(given) })
}
