package linefilter_test

import (
	"testing"

	"github.com/orla-project/orla/internal/observe/linefilter"
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
