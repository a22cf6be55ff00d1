package approvals_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/call/approvals"
	"github.com/orla-project/orla/internal/file/wholefile"
	"github.com/orla-project/orla/internal/testing/testkit"
	"github.com/orla-project/orla/manifest"
)

// large is an argument that takes the disk a while.
var large = `{"a":"` + strings.Repeat("x", 4<<20) + `"}`

// writing reports whether a file in the folder of the first process is being written.
func writing(t *testing.T, dir string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "0", wholefile.Prefix+"*"))
	if err != nil {
		t.Fatal(err)
	}
	return len(files) > 0
}

// during calls do while work writes a file, and reports whether the file was still being written after do.
func during(t *testing.T, dir string, work, do func()) (early bool) {
	t.Helper()
	over := make(chan struct{})
	go func() {
		defer close(over)
		work()
	}()
	for {
		if writing(t, dir) {
			do()
			early = writing(t, dir)
			break
		}
		select {
		case <-over:
			return false
		default:
		}
	}
	<-over
	return early
}

const rounds = 200 // until the disk is slower than the test

// SPEC S2: nobody waits while the disk takes the record of somebody else's call.
func TestS2NobodyWaitsForTheDisk(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	id := ask(t, s, question(large)).ID
	for what, work := range map[string]func(){
		"ask": func() {
			q := question(large)
			q.Tool += strings.Repeat("x", len(s.List()))
			_ = ask(t, s, q)
		},
		"extend": func() {
			_, _ = s.Extend(id, approvals.Decision{TTL: approvals.DefaultTTL, By: "root", How: manifest.ApproverOperator})
		},
	} {
		round := 0
		for ; round < rounds && !during(t, dir, work, func() { s.Pending() }); round++ {
			if what == "ask" && len(s.List()) > 2 { // their bytes are bounded
				s.Withdraw("2")
			}
		}
		if round == rounds {
			t.Errorf("%s: in %d rounds nobody looked at the records before the file was written", what, rounds)
		}
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
		round := 0
		for ; round < rounds; round++ {
			dir := t.TempDir()
			s := open(t, dir)
			id := ask(t, s, question(large)).ID
			if what == "use" {
				decide(t, s, id, approve)
			}
			var err error
			if during(t, dir, func() { err = work(s, id) }, func() { s.Withdraw("2") }); err == nil {
				s.Close()
				continue
			}
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
			break
		}
		if round == rounds {
			t.Errorf("%s: in %d rounds nothing ended while the file was written", what, rounds)
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
