package linefilter_test

import (
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/observe/linefilter"
	"github.com/orla-project/orla/internal/testing/costtest"
)

// SPEC J1, O2: --grep finds what a person sees in a line, and nothing else.
func TestO2GrepFindsWhatALineSays(t *testing.T) {
	t.Parallel()
	const line = `{"time":"2026-01-02T15:04:05Z","level":"info","msg":"state","tool":"Mail","to":"READY","reason":"said \"a < b\" twice","pid":12,"list":["x","y"]}`
	for text, want := range map[string]bool{
		"state": true, "STATE": true, "mail": true, "ready": true, "to=ready": true, "pid=12": true, `"a < b"`: true, "<": true, "=": true, "reason": true, "twice": true, `["x"`: true,
		"info": false, "2026": false, "level": false, "msg": false, "pid:12": false, "mail state": false, `\"a`: false, "Ä": false, "": true,
	} {
		q := linefilter.Filter{Grep: text}
		keep := q.Func()
		if got := keep == nil || keep([]byte(line)); got != want {
			t.Errorf("grep %q: %v, want %v", text, got, want)
		}
	}
	q := linefilter.Filter{Grep: "ready", Level: "warn"}
	if q.Func()([]byte(line)) {
		t.Error("grep selects a line below the level")
	}
	q = linefilter.Filter{Grep: "x"}
	if q.Func()([]byte("x")) {
		t.Error("grep selects what is not JSON")
	}
}

// SPEC J1, O2: the level and the stream of a line are those that its JSON has, however it is written.
func TestO2LevelAndStreamAreThoseOfTheLine(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][2]bool{ // whether it is at least warn, and on stderr
		`{"time":"2026-01-02T15:04:05Z","level":"warn","msg":"stderr","tool":"a","stream":"stderr","text":"x"}`: {true, true},
		`{"time":"2026-01-02T15:04:05Z","level":"info","msg":"stderr","tool":"a","stream":"stderr","text":"x"}`: {false, true},
		`{"time":"2026-01-02T15:04:05Z","level":"ERROR","msg":"stderr","stream":"stdout"}`:                      {true, false},
		`{"level":"info","msg":"said \"level\":\"warn\"","stream":"std\u0065rr"}`:                               {false, true},
		`{"msg":"x\",\"level\":\"warn","level":"info","text":"\",\"stream\":\"stderr"}`:                         {false, false},
		`{"pid":1,"in":{"level":"warn","stream":"stderr"},"level":"info"}`:                                      {false, false},
		`{"list":["a","level":"warn"`:                   {false, false},
		` { "stream" : "stderr" , "level" : "fatal" } `: {true, true},
		`{"stream":"stderr","level":"warn"}`:            {true, true},
		`{"level":"","stream":""}`:                      {false, false},
		`{"level":"warn","stream":1}`:                   {true, false},
		`"level":"warn"`:                                {false, false},
		``:                                              {false, false},
	} {
		got := [2]bool{linefilter.Filter{Level: "warn"}.Func()([]byte(line)), linefilter.Filter{Stream: "stderr"}.Func()([]byte(line))}
		if got != want {
			t.Errorf("%s: %v, want %v", line, got, want)
		}
	}
}

// SPEC O4: most lines are not decoded.
func TestO4ALineIsSelectedWithoutDecodingIt(t *testing.T) {
	line := []byte(`{"time":"2026-11-27T00:30:01.27269962Z","level":"info","msg":"stderr","tool":"printing","stream":"stderr","pid":6838,"text":"174518: the quick brown fox"}`)
	keep := linefilter.Filter{Level: "info", Stream: "stderr"}.Func()
	if n := testing.AllocsPerRun(100, func() {
		if !keep(line) {
			t.Error("it is not selected")
		}
	}); n > 0 {
		t.Errorf("%v allocations for a line", n)
	}
}

// SPEC S1, N2: who looks for a long text makes no line take long, whatever both are.
func TestS1GrepTakesTheTimeOfTheLine(t *testing.T) {
	costtest.Check(t, 5000, func(n int) func() {
		keep := linefilter.Filter{Grep: strings.Repeat("a", n) + "b"}.Func()
		line := []byte(`{"msg":"` + strings.Repeat("A", 2*n) + `"}`)
		return func() {
			if keep(line) {
				t.Error("it is selected")
			}
		}
	})
}
