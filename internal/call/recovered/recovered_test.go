package recovered_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/orla-project/orla/internal/call/recovered"
)

func TestAPanicIsLoggedAndFailsWhatWasBeingDone(t *testing.T) {
	var log bytes.Buffer
	var got any
	func() {
		defer recovered.To(slog.New(slog.NewTextHandler(&log, nil)), "read", func(p any) { got = p })
		panic("cursed")
	}()
	if got != "cursed" {
		t.Errorf("fail was given %v", got)
	}
	for _, want := range []string{"level=ERROR", `msg="panic in a goroutine"`, "doing=read", "panic=cursed", "recovered_test.go"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %s: %s", want, log.String())
		}
	}
}

func TestWithoutAPanicNothingHappens(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	allocs := testing.AllocsPerRun(100, func() {
		defer recovered.To(log, "read", func(any) { t.Error("fail was called") })
	})
	if allocs != 0 {
		t.Errorf("it allocates %v times", allocs)
	}
}

func TestAPanicIsRaisedByWhoWaits(t *testing.T) {
	var later recovered.Later
	later.Raise() // nothing has happened
	var all sync.WaitGroup
	ended := make(chan bool, 2)
	for range 2 {
		all.Go(func() {
			defer later.Catch(func() { ended <- true })
			panic("cursed")
		})
	}
	all.Wait()
	defer func() {
		p, _ := recover().(string)
		if !strings.HasPrefix(p, "cursed\n") || !strings.Contains(p, "recovered_test.go") || len(ended) != 2 {
			t.Errorf("raised was %q, and %d ended", p, len(ended))
		}
	}()
	later.Raise()
}
