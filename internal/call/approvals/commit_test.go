package approvals_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/call/approvals"
	"github.com/orla-project/orla/internal/testing/testkit"
	"github.com/orla-project/orla/manifest"
)

// during calls do while work writes a record, and waits for both.
func during(t *testing.T, s *approvals.Store, what string, work, do func()) {
	t.Helper()
	writes := 0
	s.BeforeWrites(func() {
		if writes++; writes > 1 {
			return
		}
		over := make(chan struct{})
		go func() {
			defer close(over)
			do()
		}()
		select {
		case <-over:
		case <-time.After(testkit.Patience):
			t.Errorf("%s: others wait while the record is written", what)
		}
	})
	if work(); writes == 0 {
		t.Errorf("%s: nothing was written", what)
	}
	s.BeforeWrites(func() {})
}

// SPEC S2: nobody waits while the disk takes the record of somebody else's call.
func TestS2NobodyWaitsForTheDisk(t *testing.T) {
	s := open(t, t.TempDir())
	id := ask(t, s, question(`{"a":1}`)).ID
	for what, work := range map[string]func(){
		"ask": func() { _ = ask(t, s, question(`{"a":2}`)) },
		"extend": func() {
			_, _ = s.Extend(id, approvals.Decision{TTL: approvals.DefaultTTL, By: "root", How: manifest.ApproverOperator})
		},
	} {
		during(t, s, what, work, func() { s.Pending() })
	}
}

// SPEC-TOOLS 8.7: of a decision and the end of the record while the decision is written, only the end counts, also after a
// restart.
func TestT87ARecordThatEndsWhileItIsWritten(t *testing.T) {
	for what, work := range map[string]func(*approvals.Store, string) error{
		"decide": func(s *approvals.Store, id string) error { _, err := s.Decide(id, approve); return err },
		"extend": func(s *approvals.Store, id string) error {
			_, err := s.Extend(id, approvals.Decision{TTL: approvals.MaxTTL, By: "root", How: manifest.ApproverOperator})
			return err
		},
		"use": func(s *approvals.Store, id string) error { return s.Use(id) },
	} {
		dir := t.TempDir()
		s := open(t, dir)
		id := ask(t, s, question(`{"a":1}`)).ID
		if what == "use" {
			decide(t, s, id, approve)
		}
		var err error
		during(t, s, what, func() { err = work(s, id) }, func() { s.Withdraw("2") })
		var decided *approvals.DecidedError
		if !errors.As(err, &decided) && !errors.Is(err, approvals.ErrUsed) {
			t.Errorf("%s: %v", what, err)
		}
		s.Close()
		raw, err := os.ReadFile(filepath.Join(dir, "0", id+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var r approvals.Record
		if err := json.Unmarshal(raw, &r); err != nil || r.Phase != approvals.Expired {
			t.Errorf("%s: on the disk it is %s, %v", what, r.Phase, err)
		}
	}
}

// SPEC-TOOLS 8.7: another process does not read a record before its last write has ended.
func TestT87CloseWaitsForTheDisk(t *testing.T) {
	s := open(t, t.TempDir())
	end := s.Writing("ann")
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.Close()
	}()
	testkit.Eventually(t, "the end waits", func() bool { return s.Writers() == 1 })
	select {
	case <-closed:
		t.Error("it is closed while somebody writes")
	default:
	}
	end()
	<-closed
}
