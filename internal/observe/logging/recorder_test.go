package logging

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/orla-project/orla/internal/testing/testkit"
)

// SPEC I1: lines of calls wait for others to be written with, but no line comes
// before one that was said earlier, and each is written without another to follow.
func TestI1LinesOfCallsAreWrittenInTheirTurn(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "log")
	if err != nil {
		t.Fatal(err)
	}
	l := New(file, "")
	l.Configure("info", JSON, nil)
	written := func() []string {
		var said []string
		for _, line := range testkit.LinesOf(t, file.Name()) {
			said = append(said, fmt.Sprint(line["msg"], line["n"]))
		}
		return said
	}
	var want []string
	for n := range 100 { // more than go out at once
		l.Info("call", "n", n)
		want = append(want, fmt.Sprint("call", n))
	}
	l.Info("state", "n", 100)
	want = append(want, "state100")
	if got := written(); !slices.Equal(got, want) {
		t.Errorf("written is %q; want %q", got, want)
	}
	l.Info("call", "n", 101)
	want = append(want, "call101")
	testkit.Eventually(t, "the last call is written", func() bool { return slices.Equal(written(), want) })
	l.Info("call", "n", 102)
	l.out.use(nil)
	if got := written(); len(got) != len(want)+1 {
		t.Errorf("%d lines are written before another file is; want %d", len(got), len(want)+1)
	}
}
