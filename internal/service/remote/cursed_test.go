package remote

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/orla-project/orla/capsule"
)

// Curse has one of a session's goroutines panic.
func Curse(p capsule.Connection) {
	s, _ := p.(*session)
	s.work.Go(func() {
		defer s.contain()
		panic("for the test")
	})
}

// SPEC F2: the end of a session asks its server as well, in the goroutine that owns all
// others and that nobody else recovers.
func TestF2APanicOverTheEndOfASessionEndsNothingElse(t *testing.T) {
	var log bytes.Buffer
	s := &session{state: state{id: "a"}, endpoint: "http://127.0.0.1/", life: newLife(), opts: Options{Log: slog.New(slog.NewTextHandler(&log, nil))}}
	s.leave(t.Context()) // it has no Client
	if text := log.String(); strings.Count(text, "level=ERROR") != 1 || !strings.Contains(text, "remote.go") {
		t.Errorf("the log: %q", text)
	}
}
