package approvals_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/approvals"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/cluster/documents"
	"github.com/orla-project/orla/internal/cluster/replicas"
	"github.com/orla-project/orla/internal/testing/kubetest"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/manifest"
)

// documentsOf returns the documents of an API server, as each replica has them.
func documentsOf(t *testing.T, api *kubetest.Objects) *documents.Documents {
	t.Helper()
	return documents.New(documents.Options{
		Client: kubetest.Client(t, api), Namespace: "ops", Group: "orla", Part: "approvals", Log: slog.New(slog.DiscardHandler),
		Key: func(context.Context) (*replicas.Box, error) { return replicas.NewBox(bytes.Repeat([]byte{1}, 32)) },
	})
}

// replica opens the records of a replica.
func replica(t *testing.T, api *kubetest.Objects, told func(approvals.Event)) *approvals.Store {
	t.Helper()
	s, err := approvals.Open(approvals.Options{Common: documentsOf(t, api), Told: told, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	s.Ready()
	return s
}

// both runs a test with the records of a process alone, and with those of all replicas. open opens them again.
func both(t *testing.T, test func(t *testing.T, open func() *approvals.Store)) {
	t.Helper()
	t.Run("folder", func(t *testing.T) {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) { test(t, func() *approvals.Store { return open(t, dir) }) })
	})
	t.Run("replicas", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			api := new(kubetest.Objects)
			test(t, func() *approvals.Store { return replica(t, api, nil) })
		})
	})
}

// SPEC P4, SPEC-TOOLS 8.7: a call that is asked about at several replicas at once has one record, whoever decides about it
// tells all, and one of them uses it.
func TestP4AllReplicasHaveOneRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := new(kubetest.Objects)
		var all []*approvals.Store
		for range 3 {
			all = append(all, replica(t, api, nil))
		}
		for round := range 20 {
			q := question(fmt.Sprintf(`{"n":%d,"t":"<&>"}`, round%4))
			var ids, used sync.Map
			var waits []<-chan struct{}
			var work sync.WaitGroup
			for _, s := range all {
				work.Go(func() {
					r, _, err := s.Ask(q)
					if err != nil {
						t.Error(err)
					}
					ids.Store(r.ID, true)
				})
			}
			work.Wait()
			id := only(t, &ids)
			for _, s := range all {
				r, changed, err := s.Ask(q)
				if err != nil || r.ID != id || r.Phase != approvals.Pending {
					t.Fatalf("%v %+v", err, r)
				}
				waits = append(waits, changed)
			}
			synctest.Wait()
			var decided atomic.Int64
			for _, s := range all {
				work.Go(func() {
					if _, err := s.Decide(id, approve); err == nil {
						decided.Add(1)
					} else if _, late := errors.AsType[*approvals.DecidedError](err); !late {
						t.Error(err)
					}
				})
			}
			work.Wait()
			for _, changed := range waits {
				<-changed
			}
			for i, s := range all {
				work.Go(func() {
					if err := s.Use(id); err == nil {
						used.Store(strconv.Itoa(i), true)
					} else if !errors.Is(err, approvals.ErrUsed) {
						t.Error(err)
					}
				})
			}
			work.Wait()
			if by := only(t, &used); decided.Load() != 1 {
				t.Errorf("%d decisions counted, and %s has used it", decided.Load(), by)
			}
			synctest.Wait() // all know that
		}
	})
}

// only returns the one key that there is.
func only(t *testing.T, of *sync.Map) (key string) {
	t.Helper()
	n := 0
	of.Range(func(one, _ any) bool {
		key = one.(string) //nolint:forcetypeassert // all are
		n++
		return true
	})
	if n != 1 {
		t.Fatalf("there are %d, and there has to be one", n)
	}
	return key
}

// SPEC P4, SPEC-TOOLS 8.7: without the API server no call goes on and nobody decides. What was approved is good again
// when it is back, also if it is not known whether its use was noted.
func TestP4NothingIsLostWithoutTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := new(kubetest.Objects)
		var mu sync.Mutex
		var told []string
		tell := func(e approvals.Event) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, fmt.Sprint(string(e.Args), " ", e.What))
		}
		a, b := replica(t, api, tell), replica(t, api, tell)
		r := ask(t, a, question(`1`))
		decide(t, a, r.ID, approve)
		synctest.Wait()
		api.Away(true)
		if err := b.Use(r.ID); fault.CodeOf(err) != fault.NotReady || !strings.Contains(err.Error(), "API server") {
			t.Errorf("used without the API server: %v", err)
		}
		if _, _, err := a.Ask(question(`2`)); fault.CodeOf(err) != fault.NotReady {
			t.Errorf("asked without the API server: %v", err)
		}
		if _, err := b.Extend(r.ID, approvals.Decision{TTL: time.Hour, By: "root", How: manifest.ApproverOperator}); fault.CodeOf(err) != fault.NotReady {
			t.Errorf("extended without the API server: %v", err)
		}
		api.Away(false)
		time.Sleep(time.Minute)
		api.Lose(1)
		if err := b.Use(r.ID); err == nil {
			t.Error("used, and nobody has said so")
		}
		time.Sleep(time.Minute)
		if err := a.Use(r.ID); err != nil {
			t.Errorf("after an answer that was lost: %v", err)
		}
		a.GiveBack(r.ID)
		synctest.Wait()
		if err := b.Use(r.ID); err != nil {
			t.Errorf("given back: %v", err)
		}
		api.Away(true)
		b.GiveBack(r.ID)
		time.Sleep(time.Minute)
		api.Away(false)
		time.Sleep(time.Minute)
		if err := a.Use(r.ID); err != nil {
			t.Errorf("given back when the API server was away: %v", err)
		}
		// A decision whose answer is lost counts, and is told once.
		two := ask(t, a, question(`2`))
		synctest.Wait()
		api.Lose(1)
		if _, err := b.Decide(two.ID, approve); err == nil {
			t.Error("decided, and nobody has said so")
		}
		synctest.Wait()
		if err := a.Use(two.ID); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		ask(t, b, question(`3`))
		time.Sleep(time.Hour)
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(told)
		if want := []string{"1 decided", "2 decided", "3 timed_out"}; !slices.Equal(told, want) {
			t.Errorf("told: %q, want %q", told, want)
		}
	})
}

// SPEC P4, SPEC-TOOLS 8.7: an approval that was given back is used once, also if the answer to that was lost, whichever replica
// uses it before it is given back again.
func TestP4AUseThatIsGivenBackLateTakesNoOtherBack(t *testing.T) {
	for _, c := range []struct {
		name  string
		lost  int
		other bool
	}{{"no answer is lost", 0, true}, {"another replica", 1, true}, {"the same replica", 1, false}, {"two answers", 2, true}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := new(kubetest.Objects)
				a, b := replica(t, api, nil), replica(t, api, nil)
				r := ask(t, a, question(`1`))
				decide(t, a, r.ID, approve)
				synctest.Wait()
				if err := a.Use(r.ID); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				api.Lose(c.lost)
				a.GiveBack(r.ID)
				synctest.Wait()
				next := a
				if c.other {
					next = b
				}
				uses := 0
				for _, s := range []*approvals.Store{next, a, b} {
					if s.Use(r.ID) == nil {
						uses++
					}
					synctest.Wait()
					time.Sleep(time.Minute) // what is to be done is tried again
				}
				if uses != 1 {
					t.Errorf("one approval was used %d times", uses)
				}
			})
		})
	}
}

// SPEC P4, SPEC-TOOLS 8.7: who may write the objects, and is not a replica, cannot approve a call, nor bring back an approval.
func TestP4WhatNoReplicaHasWrittenDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := new(kubetest.Objects)
		a := replica(t, api, nil)
		r := ask(t, a, question(`"secret argument"`))
		decide(t, a, r.ID, approve)
		good := api.All()
		if len(good) != 1 || strings.Contains(fmt.Sprint(good), "secret argument") {
			t.Errorf("the objects: %v", good)
		}
		if err := a.Use(r.ID); err != nil {
			t.Fatal(err)
		}
		for name, one := range good {
			api.Set(name, one["spec"])
		}
		synctest.Wait()
		if err := a.Use(r.ID); err == nil {
			t.Error("an approval was brought back")
		}
		b := replica(t, api, nil)
		if _, _, err := b.Get(r.ID); err == nil {
			t.Error("a new replica has the approval that was brought back")
		}
		for name := range good {
			api.Delete(name)
		}
		synctest.Wait()
		if again := ask(t, b, question(`"secret argument"`)); again.Phase != approvals.Pending || again.ID == r.ID {
			t.Errorf("after the record was removed: %+v", again)
		}
		two := ask(t, a, question(`2`))
		decide(t, a, two.ID, approve)
		for name := range api.All() {
			api.Delete(name)
		}
		synctest.Wait()
		if err := a.Use(two.ID); !errors.Is(err, approvals.ErrUsed) {
			t.Errorf("the use of what was removed: %v", err)
		}
	})
}

// SPEC N2, P4: the bounds are those of all replicas together, and what has ended is removed for all.
func TestP4TheBoundsAreThoseOfAllReplicas(t *testing.T) {
	needs.Time(t, "keeps many records")
	synctest.Test(t, func(t *testing.T) {
		api := new(kubetest.Objects)
		a, b := replica(t, api, nil), replica(t, api, nil)
		var err error
		n := 0
		for ; err == nil && n < 5000; n++ {
			_, _, err = []*approvals.Store{a, b}[n%2].Ask(question(fmt.Sprint(n)))
			synctest.Wait()
		}
		if fault.CodeOf(err) != fault.RateLimited || n > 258 {
			t.Errorf("after %d: %v", n, err)
		}
		for round := range 4 {
			time.Sleep(time.Hour)
			for i := range 220 {
				ask(t, b, question(fmt.Sprintf("[%d,%d]", round, i)))
			}
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if left := len(api.All()); left > approvals.MaxEnded || len(a.List()) != len(b.List()) || a.Open() != 0 {
			t.Errorf("%d objects, %d and %d records; %d have a place", left, len(a.List()), len(b.List()), a.Open())
		}
	})
}
