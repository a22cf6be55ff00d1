package approvals_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/approvals"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
	"github.com/orla-project/orla/manifest"
)

func open(t *testing.T, dir string) *approvals.Store {
	t.Helper()
	s, err := approvals.Open(approvals.Options{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func question(args string) approvals.Question {
	return approvals.Question{
		Caller: "ann", Tool: "wipe", Args: json.RawMessage(args), Policy: "1",
		Approvers: []manifest.Approver{manifest.ApproverOperator},
	}
}

func ask(t *testing.T, s *approvals.Store, q approvals.Question) approvals.Record {
	t.Helper()
	r, _, err := s.Ask(q)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var (
	approve = approvals.Decision{Approve: true, By: "root", How: manifest.ApproverOperator}
	deny    = approvals.Decision{By: "root", How: manifest.ApproverOperator, Reason: "not today"}
)

func decide(t *testing.T, s *approvals.Store, id string, d approvals.Decision) approvals.Record {
	t.Helper()
	r, err := s.Decide(id, d)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// SPEC-TOOLS 8.7: an approval is for one call, and for exactly that one.
func TestT87AnApprovalIsForExactlyOneCall(t *testing.T) {
	both(t, func(t *testing.T, opened func() *approvals.Store) {
		s := opened()
		first := ask(t, s, question(`{"a":1}`))
		if again := ask(t, s, question(`{"a":1}`)); again.ID != first.ID {
			t.Errorf("the same call has another record: %s, %s", first.ID, again.ID)
		}
		other := question(`{"a":1}`)
		for what, change := range map[string]func(q *approvals.Question){
			"arguments":  func(q *approvals.Question) { q.Args = json.RawMessage(`{"a":2}`) },
			"caller":     func(q *approvals.Question) { q.Caller = "bob" },
			"agent":      func(q *approvals.Question) { q.Agent = "bot" },
			"tool":       func(q *approvals.Question) { q.Tool = "wipe2" },
			"rules":      func(q *approvals.Question) { q.Policy = "2" },
			"input":      func(q *approvals.Question) { q.Input = json.RawMessage(`{}`) },
			"class":      func(q *approvals.Question) { q.Class = "delete" },
			"task":       func(q *approvals.Question) { q.Task = "t2" },
			"rule":       func(q *approvals.Question) { q.Rule = "other" },
			"target":     func(q *approvals.Question) { q.Runs = []string{"other"} },
			"approvers":  func(q *approvals.Question) { q.Approvers = []manifest.Approver{manifest.ApproverPasskey} },
			"definition": func(q *approvals.Question) { q.Definition = "sha256:1" },
			"borders":    func(q *approvals.Question) { q.Caller, q.Agent = "an", "n" },
		} {
			q := other
			change(&q)
			if r := ask(t, s, q); r.ID == first.ID {
				t.Errorf("a call with another %s has the same record", what)
			}
		}
		if err := s.Use(first.ID); !errors.Is(err, approvals.ErrUsed) {
			t.Errorf("used before anybody decided: %v", err)
		}
		decide(t, s, first.ID, approve)
		if r := ask(t, s, question(`{"a":1}`)); r.Phase != approvals.Approved || r.By != "root" {
			t.Errorf("after the decision: %+v", r)
		}
		if err := s.Use(first.ID); err != nil {
			t.Error(err)
		}
		if err := s.Use(first.ID); !errors.Is(err, approvals.ErrUsed) {
			t.Errorf("used twice: %v", err)
		}
		if r := ask(t, s, question(`{"a":1}`)); r.ID == first.ID || r.Phase != approvals.Pending {
			t.Errorf("the next call like it: %+v", r)
		}
	})
}

// SPEC-TOOLS 8.7: the first decision counts, whoever comes at the same time.
func TestT87TheFirstDecisionCounts(t *testing.T) {
	both(t, func(t *testing.T, opened func() *approvals.Store) {
		s := opened()
		r := ask(t, s, question(`{}`))
		var wins, late sync.Map
		var all sync.WaitGroup
		for i := range 16 {
			all.Go(func() {
				d := deny
				d.Approve, d.By = i%2 == 0, fmt.Sprint(i)
				if _, err := s.Decide(r.ID, d); err == nil {
					wins.Store(d.By, true)
				} else if e, ok := errors.AsType[*approvals.DecidedError](err); ok {
					late.Store(e.Record.By, true)
				} else {
					t.Error(err)
				}
			})
		}
		all.Wait()
		got, _, err := s.Get(r.ID)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		wins.Range(func(by, _ any) bool { n++; return by == got.By })
		late.Range(func(by, _ any) bool {
			if by != got.By {
				t.Errorf("a late decider was told of %v, and %s has decided", by, got.By)
			}
			return true
		})
		if n != 1 {
			t.Errorf("%d decisions counted", n)
		}
	})
}

// SPEC-TOOLS 8.7: who may not decide does not, and neither does who was shown another call.
func TestT87WhoMayDecide(t *testing.T) {
	both(t, func(t *testing.T, opened func() *approvals.Store) {
		s := opened()
		q := question(`{}`)
		q.Approvers = []manifest.Approver{manifest.ApproverPasskey}
		r := ask(t, s, q)
		for _, how := range []manifest.Approver{manifest.ApproverOperator, manifest.ApproverClient, ""} {
			if _, err := s.Decide(r.ID, approvals.Decision{Approve: true, By: "x", How: how}); !errors.Is(err, approvals.ErrApprover) {
				t.Errorf("%q: %v", how, err)
			}
		}
		other := q
		other.Args = json.RawMessage(`{"b":1}`)
		if got := decide(t, s, ask(t, s, other).ID, deny); got.Phase != approvals.Denied {
			t.Errorf("an operator denies: %+v", got)
		}
		wrong := approvals.Decision{Approve: true, By: "x", How: manifest.ApproverPasskey, Digest: "00"}
		if _, err := s.Decide(r.ID, wrong); !errors.Is(err, approvals.ErrDigest) {
			t.Errorf("another digest: %v", err)
		}
		if _, err := s.Decide("ap-none", approve); !errors.Is(err, approvals.ErrUnknown) {
			t.Errorf("an unknown id: %v", err)
		}
		wrong.Digest, wrong.Proof = r.Digest(), json.RawMessage(`{"signature":"x"}`)
		if got := decide(t, s, r.ID, wrong); string(got.Proof) != `{"signature":"x"}` {
			t.Errorf("the proof: %s", got.Proof)
		}
	})
}

// SPEC-TOOLS 8.7: what is decided survives a restart, and what was used stays used.
func TestT87RecordsSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	ids := map[string]string{}
	for _, args := range []string{`{"is":"pending"}`, `{"is":"approved"}`, `{"is":"denied"}`, `{"is":"used"}`} {
		ids[args] = ask(t, s, question(args)).ID
	}
	decide(t, s, ids[`{"is":"approved"}`], approve)
	decide(t, s, ids[`{"is":"denied"}`], deny)
	decide(t, s, ids[`{"is":"used"}`], approve)
	if err := s.Use(ids[`{"is":"used"}`]); err != nil {
		t.Fatal(err)
	}
	before := s.List()
	s.Close()
	// Half a file, and one under another name, are not records.
	broken := filepath.Join(dir, "0", "ap-broken.json")
	for path, text := range map[string]string{broken: `{"id":"ap-broken","phase":"Approved"`, filepath.Join(dir, "0", "ap-other.json"): `{"id":"ap-x","phase":"Approved"}`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s = open(t, dir)
	if after := s.List(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("after the restart\n%v\nbefore\n%v", after, before)
	}
	for args, want := range map[string]approvals.Phase{`{"is":"pending"}`: approvals.Pending, `{"is":"approved"}`: approvals.Approved, `{"is":"denied"}`: approvals.Denied} {
		if r := ask(t, s, question(args)); r.ID != ids[args] || r.Phase != want {
			t.Errorf("%s: %+v", args, r)
		}
	}
	if err := s.Use(ids[`{"is":"used"}`]); !errors.Is(err, approvals.ErrUsed) {
		t.Errorf("used again after a restart: %v", err)
	}
	if r := ask(t, s, question(`{"is":"used"}`)); r.ID == ids[`{"is":"used"}`] {
		t.Error("the used approval is asked for again")
	}
	if err := s.Use(ids[`{"is":"approved"}`]); err != nil {
		t.Errorf("an approval of before the restart: %v", err)
	}
	info, err := os.Stat(filepath.Join(dir, "0", ids[`{"is":"used"}`]+".json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
}

// Two processes that serve one folder do not have one record.
func TestT87EachProcessHasItsOwnRecords(t *testing.T) {
	dir := t.TempDir()
	one := open(t, dir)
	r := ask(t, one, question(`{}`))
	two := open(t, dir)
	if other := ask(t, two, question(`{}`)); other.ID == r.ID {
		t.Error("both have the record")
	}
	decide(t, one, r.ID, approve)
	one.Close()
	if got, _, err := open(t, dir).Get(r.ID); err != nil || got.Phase != approvals.Approved {
		t.Errorf("the next process: %+v, %v", got, err)
	}
}

// SPEC-TOOLS 8.7: who may not approve makes nothing good for longer, before a decision and after it.
func TestT87WhoMayNotApproveMakesNothingLonger(t *testing.T) {
	both(t, func(t *testing.T, opened func() *approvals.Store) {
		s := opened()
		q := question(`{}`)
		q.Approvers = []manifest.Approver{manifest.ApproverPasskey}
		r := ask(t, s, q)
		extend := func(how manifest.Approver, ttl time.Duration) error {
			_, err := s.Extend(r.ID, approvals.Decision{TTL: ttl, By: "x", How: how})
			return err
		}
		for _, phase := range []approvals.Phase{approvals.Pending, approvals.Approved} {
			for _, how := range []manifest.Approver{manifest.ApproverOperator, manifest.ApproverClient, ""} {
				if err := extend(how, time.Hour); !errors.Is(err, approvals.ErrApprover) {
					t.Errorf("%s: longer with %q: %v", phase, how, err)
				}
			}
			if err := extend(manifest.ApproverOperator, time.Minute); err != nil {
				t.Errorf("%s: shorter: %v", phase, err)
			}
			if err := extend(manifest.ApproverPasskey, 2*time.Minute); err != nil {
				t.Errorf("%s: longer with a passkey: %v", phase, err)
			}
			if phase == approvals.Pending {
				decide(t, s, r.ID, approvals.Decision{Approve: true, By: "x", How: manifest.ApproverPasskey})
			}
		}
		if got, _, _ := s.Get(r.ID); got.Phase != approvals.Approved || time.Until(got.Expires) != 2*time.Minute {
			t.Errorf("afterwards it is %+v", got)
		}
	})
}

// SPEC-TOOLS 8.7: nothing is good when its time is over, also over a restart.
func TestT87RecordsExpire(t *testing.T) {
	both(t, func(t *testing.T, opened func() *approvals.Store) {
		s := opened()
		pending, approved := ask(t, s, question(`{"a":1}`)), ask(t, s, question(`{"a":2}`))
		time.Sleep(5 * time.Minute)
		decide(t, s, approved.ID, approve)
		if _, err := s.Extend(pending.ID, approvals.Decision{TTL: time.Hour, By: "root", How: manifest.ApproverOperator}); err != nil {
			t.Error(err)
		}
		time.Sleep(approvals.DefaultTTL - time.Second)
		if r := ask(t, s, question(`{"a":2}`)); r.ID != approved.ID {
			t.Error("an approval is good for less than its time")
		}
		_, changed, err := s.Ask(question(`{"a":2}`))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		<-changed
		if r, _, _ := s.Get(approved.ID); r.Phase != approvals.Expired || !strings.Contains(r.Reason, "not used") {
			t.Errorf("it is %+v", r)
		}
		if err := s.Use(approved.ID); !errors.Is(err, approvals.ErrUsed) {
			t.Errorf("used after its time: %v", err)
		}
		if _, err := s.Extend(approved.ID, approvals.Decision{TTL: time.Hour, By: "root", How: manifest.ApproverOperator}); err == nil {
			t.Error("an expired record is extended")
		}
		if r, _, _ := s.Get(pending.ID); r.Phase != approvals.Pending || r.TTL != approvals.DefaultTTL {
			t.Errorf("the extended one: %+v", r)
		}
		if r, err := s.Extend(pending.ID, approvals.Decision{By: "root", How: manifest.ApproverOperator}); err != nil || time.Until(r.Expires) != approvals.DefaultTTL {
			t.Errorf("extended for no time of its own: %+v, %v", r, err)
		}
		s.Close()
		time.Sleep(time.Hour)
		s = opened()
		if _, err := s.Decide(pending.ID, approve); err == nil {
			t.Error("a decision after its time counts")
		}
		if r := ask(t, s, question(`{"a":1}`)); r.ID == pending.ID {
			t.Error("a call is attached to a record of which the time is over")
		}
	})
}

// SPEC S2: a record whose time is over gives its place back, also if the same call comes before its timer.
func TestT87ARecordThatExpiresGivesItsPlaceBack(t *testing.T) {
	needs.Time(t, "waits for records that expire")
	both(t, func(t *testing.T, opened func() *approvals.Store) {
		s := opened()
		s.SetTTL(time.Second)
		for range 3 {
			for i := range 200 {
				ask(t, s, question(fmt.Sprintf(`{"n":%d}`, i)))
			}
			time.Sleep(time.Second) // the call comes in the same moment as the timer
		}
		synctest.Wait()
		time.Sleep(2 * time.Second)
		for _, r := range s.List() {
			if r.Phase != approvals.Expired {
				t.Fatalf("%+v is left", r)
			}
		}
		if n := s.Open(); n != 0 {
			t.Errorf("%d records have a place", n)
		}
	})
}

// SPEC-TOOLS 8.7: an approval is good again after a call that has not reached its tool, and for one call as before.
func TestT87AnApprovalIsGivenBack(t *testing.T) {
	both(t, func(t *testing.T, opened func() *approvals.Store) {
		s := opened()
		use := func(id string, want error) {
			t.Helper()
			if err := s.Use(id); !errors.Is(err, want) {
				t.Errorf("used: %v, want %v", err, want)
			}
		}
		r := ask(t, s, question(`{}`))
		s.GiveBack(r.ID)
		use(r.ID, approvals.ErrUsed)
		decide(t, s, r.ID, approve)
		use(r.ID, nil)
		s.GiveBack(r.ID)
		s.GiveBack(r.ID)
		if again := ask(t, s, question(`{}`)); again.ID != r.ID {
			t.Errorf("the next call has the record %+v", again)
		}
		s.Close()
		s = opened()
		use(r.ID, nil)
		use(r.ID, approvals.ErrUsed)
		s.Withdraw("1")                              // the same rules
		other, changed, err := s.Ask(question(`{}`)) // it has been asked about since
		if err != nil {
			t.Fatal(err)
		}
		s.GiveBack(r.ID)
		<-changed
		if got, _, _ := s.Get(other.ID); got.Phase != approvals.Expired {
			t.Errorf("the question since is %+v", got)
		}
		if got := ask(t, s, question(`{}`)); got.ID != r.ID {
			t.Errorf("the next call has the record %+v", got)
		}
		use(r.ID, nil)
		other = ask(t, s, question(`{}`))
		decide(t, s, other.ID, deny)
		s.GiveBack(r.ID)
		use(r.ID, approvals.ErrUsed)
		r = ask(t, s, question(`{"b":1}`))
		decide(t, s, r.ID, approve)
		use(r.ID, nil)
		s.Withdraw("2")
		s.Withdraw("1")
		s.GiveBack(r.ID) // under these rules again, but it was approved before the others
		use(r.ID, approvals.ErrUsed)
	})
}

// SPEC-TOOLS 8.7: an approval under other rules is good for nothing.
func TestT87RecordsOfOtherRulesEnd(t *testing.T) {
	both(t, func(t *testing.T, opened func() *approvals.Store) {
		s := opened()
		q := question(`{"b":1}`)
		q.Policy = "2"
		old, kept := ask(t, s, question(`{"a":1}`)), ask(t, s, q)
		decide(t, s, old.ID, approve)
		s.Withdraw("2")
		if err := s.Use(old.ID); !errors.Is(err, approvals.ErrUsed) {
			t.Errorf("used under other rules: %v", err)
		}
		if r, _, _ := s.Get(old.ID); r.Phase != approvals.Expired || !strings.Contains(r.Reason, "rules") {
			t.Errorf("it is %+v", r)
		}
		if r, _, _ := s.Get(kept.ID); r.Phase != approvals.Pending {
			t.Errorf("the record of these rules: %+v", r)
		}
	})
}

// SPEC N2: one caller does not keep others from asking, and nothing grows without an end.
func TestT87RecordsAreBounded(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	var err error
	n := 0
	for ; err == nil && n < 5000; n++ {
		_, _, err = s.Ask(question(fmt.Sprintf(`{"n":%d}`, n)))
	}
	if fault.CodeOf(err) != fault.RateLimited {
		t.Fatalf("after %d: %v", n, err)
	}
	q := question(`{}`)
	q.Caller = "bob"
	ask(t, s, q)
	for _, r := range s.List()[:20] {
		decide(t, s, r.ID, approve)
		if err := s.Use(r.ID); err != nil {
			t.Fatal(err)
		}
	}
	ask(t, s, question(`{"room":"again"}`))
	s.Close()
	used := s.List()[0]
	for i := range approvals.MaxEnded { // as many uses would have left
		used.ID = fmt.Sprintf("ap-%d", i)
		raw, err := json.Marshal(&used)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "0", used.ID+".json"), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s = open(t, dir)
	files, err := filepath.Glob(filepath.Join(dir, "0", "*"))
	if err != nil || len(files) > approvals.MaxEnded+n+10 || len(s.List()) != len(files)-1 {
		t.Errorf("%d files and %d records are kept: %v", len(files), len(s.List()), err)
	}
}

// SPEC N2: the writes of one caller do not keep others waiting: callers come in turn.
func TestN2WritesComeInTurn(t *testing.T) {
	s := open(t, t.TempDir())
	end := s.Writing("operator")
	asks := func(caller string, n int) {
		q := question(fmt.Sprintf(`{"n":%d}`, n))
		q.Caller = caller
		if _, _, err := s.Ask(q); err != nil {
			t.Error(err)
		}
	}
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() { asks("ann", i) })
	}
	testkit.Eventually(t, "all of ann's wait", func() bool { return s.Writers() == 100 })
	var before int
	all.Go(func() {
		asks("bob", 0)
		before = len(s.List())
	})
	testkit.Eventually(t, "bob's waits", func() bool { return s.Writers() == 101 })
	end()
	all.Wait()
	if before > 20 {
		t.Errorf("%d records were written before bob's, which came last", before)
	}
}

// SPEC-TOOLS 8.7: what the disk does not keep does not count.
func TestT87WhatIsNotKeptDoesNotCount(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Log("root may write anywhere: the folder is removed instead")
	}
	dir := t.TempDir()
	s := open(t, dir)
	r := ask(t, s, question(`{}`))
	decide(t, s, r.ID, approve)
	lost := func() {
		if err := os.RemoveAll(filepath.Join(dir, "0")); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "0"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lost()
	if err := s.Use(r.ID); fault.CodeOf(err) != fault.NotReady {
		t.Errorf("a use that is not kept: %v", err)
	}
	if _, _, err := s.Ask(question(`{"b":1}`)); fault.CodeOf(err) != fault.NotReady {
		t.Errorf("a question that is not kept: %v", err)
	}
	if got, _, _ := s.Get(r.ID); !got.Used.IsZero() {
		t.Error("it is used all the same")
	}
}

// SPEC-TOOLS 8.7: a call is shown with the last one of its caller and tool that was approved.
func TestT87TheLastApprovedCallIsShown(t *testing.T) {
	both(t, func(t *testing.T, opened func() *approvals.Store) {
		s := opened()
		other := question(`{"of":"bob"}`)
		other.Caller = "bob"
		for _, q := range []approvals.Question{question(`{"n":1}`), question(`{"n":2}`), other} {
			time.Sleep(time.Millisecond)
			decide(t, s, ask(t, s, q).ID, approve)
		}
		decide(t, s, ask(t, s, question(`{"n":3}`)).ID, deny)
		r := ask(t, s, question(`{"n":4}`))
		if _, last, err := s.Get(r.ID); err != nil || last == nil || string(last.Args) != `{"n":2}` {
			t.Errorf("the last approved one: %+v, %v", last, err)
		}
	})
}
