package replicas

import (
	"strconv"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/testing/costtest"
)

// SPEC P4: all replicas name the same heir of a session, and one that came later is none.
func TestP4Heir(t *testing.T) {
	began := time.Now().Add(-time.Hour)
	gone := there("gone", began)
	gone.Spec.Holder, gone.Spec.Renewed = "", began.Add(time.Minute)
	old := []string{"b", "c", "d"}
	all := []*Replicas{newReplica(t, "x"), newReplica(t, "y")}
	heirs := map[string]int{}
	for _, r := range all {
		meet(time.Now(), r, gone, there("late", began.Add(30*time.Minute)))
		for _, name := range old {
			meet(time.Now(), r, there(name, began))
		}
	}
	for n := range 300 {
		what := strconv.Itoa(n)
		heir := all[0].Heir("gone", what)
		if other := all[1].Heir("gone", what); other != heir {
			t.Fatalf("%s and %s", heir, other)
		}
		heirs[heir]++
	}
	for _, name := range old {
		if heirs[name] < 50 {
			t.Errorf("the sessions are not spread: %v", heirs)
		}
	}
	if heirs["late"] > 0 {
		t.Errorf("a replica that came later takes sessions over: %v", heirs)
	}
	if heir := all[0].Heir("nobody knows", "1"); heir == "" {
		t.Error("a session of a replica that nobody knows has no heir")
	}
}

// SPEC P4: while an heir serves, it stays the heir, whatever replicas come: those that were there when a session's replica
// went, and those of the time when these went. An heir that a replica comes to know later is the same one.
func TestP4AnHeirStaysTheHeir(t *testing.T) {
	began := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	r := newReplica(t, "x")
	all := map[string]*record{}
	tell := func(after time.Duration, name string) *record {
		all[name] = there(name, began.Add(after))
		meet(time.Now(), r, all[name])
		return all[name]
	}
	leave := func(after time.Duration, name string) {
		all[name].Metadata.Annotations[noteLeaves] = began.Add(after).Format(time.RFC3339Nano)
		meet(time.Now(), r, all[name])
	}
	crash := func(after time.Duration, name string) {
		all[name].Spec.Holder, all[name].Spec.Renewed = "", began.Add(after)
		meet(time.Now(), r, all[name])
	}
	heirs := func() (of [100]string) {
		for i := range of {
			of[i] = r.Heir("home", strconv.Itoa(i))
		}
		return of
	}
	// stays says which sessions have moved, though their heir is there.
	stays := func(when string, before [100]string) [100]string {
		t.Helper()
		now := heirs()
		for i := range now {
			gone := all[before[i]] == nil || !all[before[i]].leaves().IsZero() || all[before[i]].Spec.Holder == ""
			if now[i] == "" || !gone && now[i] != before[i] {
				t.Fatalf("%s: session %d moves from %q to %q", when, i, before[i], now[i])
			}
		}
		return now
	}
	tell(0, "home")
	tell(0, "a")
	tell(0, "b")
	crash(time.Minute, "home")
	h := heirs()
	// What comes in place of home is ready before anybody may count home as gone.
	tell(time.Minute+2*time.Second, "home2")
	h = stays("home2 comes", h)
	leave(2*time.Minute, "a")
	h = stays("a goes", h)
	tell(2*time.Minute+time.Second, "a2")
	h = stays("a2 comes", h)
	crash(3*time.Minute, "b")
	h = stays("b goes, the last of those that were there", h)
	of := map[string]bool{}
	for _, name := range h {
		of[name] = true
	}
	if len(of) != 2 || !of["home2"] || !of["a2"] {
		t.Errorf("those that were there then are not the heirs: %v", of)
	}
	tell(3*time.Minute+time.Second, "b2")
	h = stays("b2 comes", h)
	leave(4*time.Minute, "home2")
	leave(4*time.Minute, "a2")
	leave(4*time.Minute, "b2")
	// All have gone. Of those that come then the first one goes on with all that was.
	starts := tell(5*time.Minute, "c")
	delete(starts.Metadata.Annotations, noteServes)
	tell(5*time.Minute+time.Second, "d")
	h = stays("all are new", h)
	starts.Metadata.Annotations[noteServes] = began.Add(5*time.Minute + 2*time.Second).Format(time.RFC3339Nano)
	stays("one more is ready", h)

	other := newReplica(t, "y")
	for _, l := range all {
		meet(time.Now(), other, l)
	}
	for i, name := range h {
		if got := other.Heir("home", strconv.Itoa(i)); got != name {
			t.Fatalf("a replica that has just come names %q for %q", got, name)
		}
	}
}

// capsules returns a replica that knows another one, and the Leases of some capsules, which that one holds.
func capsules(t *testing.T, other string, n int) *Replicas {
	t.Helper()
	r := newReplica(t, "x")
	all := []*record{there(other, time.Now().Add(-time.Hour))}
	for n := range n {
		l := &record{}
		l.Metadata.Name, l.Metadata.Version = "orla-capsule-"+strconv.Itoa(n), "1"
		l.Metadata.Annotations = map[string]string{noteCapsule: strconv.Itoa(n)}
		l.Spec.Holder = other
		all = append(all, l)
	}
	meet(time.Now(), r, all...)
	return r
}

// SPEC S1: what a request of a replica costs, or of a session of another one, does not depend on how many capsules have a Lease.
func TestS1CapsulesMakeNoRequestDearer(t *testing.T) {
	costtest.Check(t, 1000, func(n int) func() {
		r := capsules(t, "b", n)
		return func() {
			for range n {
				if !r.Known(t.Context(), "b") || !r.knows(t.Context(), "of b") {
					t.Error("it is not known")
				}
			}
		}
	})
}

// SPEC S1: to name the heir of a session makes nothing for the Lease of a capsule, which says no times.
func TestS1CapsulesMakeNoHeirDearer(t *testing.T) {
	gone := there("gone", time.Now().Add(-time.Hour))
	gone.Spec.Holder, gone.Spec.Renewed = "", time.Now()
	allocations := func(n int) float64 {
		r := capsules(t, "b", n)
		meet(time.Now(), r, gone)
		return testing.AllocsPerRun(10, func() {
			if r.Heir("gone", "s") != "b" {
				t.Error("it is not the heir")
			}
		})
	}
	if few, many := allocations(10), allocations(1000); many > few {
		t.Errorf("with 10 capsules %v allocations, with 1000 %v", few, many)
	}
}
