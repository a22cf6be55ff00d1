package audit_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/observe/audit"
)

// SPEC-TOOLS 8.3, 8.8: who accepted that rules are gone, where they were and what has become of them is a line of the chain.
func TestT83AcceptedRulesHaveALine(t *testing.T) {
	p := newPlace(t)
	l := p.open(t)
	l.Record(callOf(0))
	l.RecordNoRules(&audit.NoRules{By: "user:ada(1000)", At: "/srv/\ttools", Why: "had rules, in " + strings.Repeat("x", 10_000)})
	l.Record(callOf(1))
	l.Close()
	(*audit.Log)(nil).RecordNoRules(&audit.NoRules{}) // without an audit log
	p.mustBeOK(t, p.read(t))
	var got []string
	if _, err := (audit.Selection{}).Show(t.Context(), bytes.NewReader(p.read(t)), func(l *audit.Line, _ []byte) error {
		if l.IsNoRules() {
			got = append(got, l.Event, l.Decider, l.Target)
			if len(l.Reason) < 200 || len(l.Reason) > 400 {
				t.Errorf("the reason has %d bytes", len(l.Reason))
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if want := []string{"rules", "user:ada(1000)", "/srv/\ttools"}; !slices.Equal(got, want) {
		t.Errorf("it has %q, want %q", got, want)
	}
}

// SPEC-TOOLS 8.8: the order of lines is that of their numbers. A clock that jumps changes their times, and nothing that is
// checked; what is shown since a time goes by the times of the lines.
func TestT88TheClockJumps(t *testing.T) {
	p := newPlace(t)
	now := time.Now()
	for _, jumps := range [][]time.Duration{{0, time.Hour, -time.Hour, 24 * time.Hour}, {-24 * time.Hour, 0}} { // with a start in between
		l := p.open(t)
		for i, jump := range jumps {
			c := callOf(i)
			c.Ended = l.Now() + jump
			l.Record(c)
		}
		l.Close()
	}
	if r := p.mustBeOK(t, p.read(t)); r.Calls != 6 || r.Unsigned != 0 {
		t.Errorf("%+v", *r)
	}
	var since int
	if _, err := (audit.Selection{Since: now}).Show(t.Context(), bytes.NewReader(p.read(t)), func(*audit.Line, []byte) error {
		since++
		return nil
	}); err != nil || since != 4 {
		t.Errorf("%d calls are shown since now, %v", since, err)
	}
}
