package wiring

import (
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/observe/audit"
)

// SPEC-TOOLS 8.8: an audit log whose lines the journal may drop is a problem, which the status has.
func TestT88TheJournalMayDropLines(t *testing.T) {
	limited, free := func() string { return "orla.service" }, func() string { return "" }
	if err := mayDrop(audit.Journal, limited); err == nil || !strings.Contains(err.Error(), "drops lines of orla.service") {
		t.Errorf("in the journal of a unit: %v", err)
	}
	if a, b := mayDrop(audit.Journal, free), mayDrop("/var/log/orla/audit.log", limited); a != nil || b != nil {
		t.Errorf("without a limit: %v; in a file: %v", a, b)
	}
}
