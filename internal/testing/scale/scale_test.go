//go:build !race

package main

import (
	"bytes"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/testing/needs"
)

// near reports whether a number is within a share of what it should be.
func near(got, want, within float64) bool { return math.Abs(got-want) <= within*math.Abs(want) }

// SPEC P5: a station is the queue M/D/1, whose mean wait is known (Pollaczek and Khinchine): ρ/(2(1-ρ)) times the work.
func TestP5StationIsMD1(t *testing.T) {
	needs.Time(t, "simulates many calls")
	const work, n = time.Millisecond, 400_000
	for _, load := range []float64{0.3, 0.5, 0.8} {
		random, c, s := rand.New(rand.NewPCG(1, 2)), &clock{}, newStation(1)
		var waited time.Duration
		came := 0
		var come func()
		come = func() {
			came++
			began := c.now
			c.pass([]visit{{s, work}}, func() { waited += c.now - began - work })
			if came < n {
				c.at(c.now+between(random, load/work.Seconds()), come)
			}
		}
		c.at(0, come)
		c.run()
		got, want := waited.Seconds()/n, load/(2*(1-load))*work.Seconds()
		if !near(got, want, 0.03) {
			t.Errorf("load %.1f: a call waits %.6f s, want %.6f", load, got, want)
		}
		if busy := s.busy; busy != n*work {
			t.Errorf("load %.1f: %v of work were done, want %v", load, busy, n*work)
		}
	}
}

// SPEC P5: with several servers nobody waits while one is free, and the order is kept.
func TestP5StationWithTwoServers(t *testing.T) {
	s := newStation(2)
	for i, want := range []time.Duration{10, 10, 20, 20, 30} {
		if got := s.serve(0, 10); got != want {
			t.Errorf("customer %d leaves at %d, want %d", i, got, want)
		}
	}
	if got := s.serve(100, 10); got != 110 {
		t.Errorf("one who finds it empty leaves at %d, want 110", got)
	}
}

// SPEC P5: each call that comes is answered, is passed on as often as chance says, and takes what its parts take.
func TestP5NoCallIsLost(t *testing.T) {
	for _, s := range []Size{sizes[0], sizes[1], {Replicas: 3, Cores: 1, Sessions: 3000, Capsules: 6, Rate: 0.5}} {
		o := simulateCalls(s, 40*time.Second, 7)
		if o.Came == 0 || o.Came != o.Answered || o.Answered != len(o.waits) {
			t.Errorf("%+v: %d came, %d were answered, of %d the time is known", s, o.Came, o.Answered, len(o.waits))
		}
		if want := s.calls() * 40; !near(float64(o.Came), want, 0.05) {
			t.Errorf("%+v: %d came, want %.0f", s, o.Came, want)
		}
		elsewhere := float64(s.Replicas-1) / float64(s.Replicas)
		if got := float64(o.Forwarded) / float64(o.Came); !near(got, elsewhere, 0.02) {
			t.Errorf("%+v: %.3f were forwarded, want %.3f", s, got, elsewhere)
		}
		if got, want := float64(o.Far)/float64(o.Came), elsewhere*capsuleShare; !near(got, want, 0.06) {
			t.Errorf("%+v: %.3f had their capsule elsewhere, want %.3f", s, got, want)
		}
		want := time.Duration(o.Came)*callCPU + time.Duration(o.Forwarded)*forwardCPU + time.Duration(o.Far)*(forwardCPU+callCPU)
		if got := o.replica * float64(s.Replicas*s.Cores) * 40; !near(got, want.Seconds(), 1e-9) {
			t.Errorf("%+v: the replicas worked %.6f s, want %.6f", s, got, want.Seconds())
		}
	}
}

// SPEC P5: with twice the calls that a replica can answer, half of them wait at the end.
func TestP5TooManyCallsWait(t *testing.T) {
	s := Size{Replicas: 1, Cores: 1, Sessions: 1000, Capsules: 1_000_000, Rate: 2 / callCPU.Seconds() / 1000}
	o := simulateCalls(s, 2*time.Second, 3)
	if last := o.quantile(1); !near(last.Seconds(), 2, 0.05) {
		t.Errorf("the last call took %v, want 2 s", last)
	}
	if !near(o.replica, 2, 0.05) {
		t.Errorf("they need %.2f of what the replica has, want 2", o.replica)
	}
}

// SPEC P5: what is used most is named first.
func TestP5FullestFirst(t *testing.T) {
	few := Size{Replicas: 1, Cores: 1, Sessions: 100, Capsules: 1, Rate: 50}
	many := Size{Replicas: 2000, Cores: 8, Sessions: 2000, Capsules: 2000, Rate: 0.1}
	for want, s := range map[string]Size{"the busiest capsule": few, "processors of the control plane": many} {
		if first := s.needs(simulateCalls(s, time.Second, 1))[0]; first.of != want || first.share < 1 {
			t.Errorf("%+v: first is %+v, want %s", s, first, want)
		}
	}
}

// SPEC P5: all that a zone had is there again, and is not counted twice.
func TestP5LossOfAZone(t *testing.T) {
	s := Size{Replicas: 30, Cores: 2, Sessions: 30_000, Capsules: 300, Tools: 10, Rate: 1}
	l := simulateLoss(s, simulateCalls(s, time.Second, 1), 1)
	if l.Replicas != 10 || l.Sessions != 10_000 || l.Capsules != 100 {
		t.Errorf("%d replicas, %d sessions, %d capsules", l.Replicas, l.Sessions, l.Capsules)
	}
	if got := len(l.moved) + len(l.rebuilt); len(l.rebuilt) != l.Pods || got > l.Capsules+l.Pods || got < l.Pods {
		t.Errorf("%d capsules moved and %d were rebuilt, of %d and %d", len(l.moved), len(l.rebuilt), l.Capsules, l.Pods)
	}
	if len(l.resumed) != l.Sessions { // each calls once a second
		t.Errorf("%d of %d sessions are there again", len(l.resumed), l.Sessions)
	}
	if l.detected < leaseLasts-leaseRenew || l.detected > leaseLasts+leaseLook {
		t.Errorf("it is known after %v", l.detected)
	}
	if first := l.moved[0]; first < leaseLasts-leaseRenew+podStart {
		t.Errorf("a capsule moved after %v", first)
	}
	if first := l.rebuilt[0]; first < nodeGone+podStart {
		t.Errorf("a capsule was rebuilt after %v: its old Pod may still run", first)
	}
}

// SPEC P5: the work of watches grows with the square of the replicas.
func TestP5WatchesGrowWithTheSquare(t *testing.T) {
	_, one, _ := Size{Replicas: 100}.apiServer()
	_, ten, _ := Size{Replicas: 1000}.apiServer()
	if !near(ten, 100*one, 1e-9) {
		t.Errorf("%f and %f", one, ten)
	}
}

// SPEC P5: a seed makes a run repeatable, and another one makes another run.
func TestP5SeedRepeats(t *testing.T) {
	needs.Time(t, "simulates twice")
	some := []Size{{Replicas: 4, Cores: 2, Sessions: 2000, Capsules: 8, Rate: 1}}
	if a, b := report(some, 1), report(some, 1); a != b {
		t.Error("two runs differ")
	}
	if a, b := report(some, 1), report(some, 2); a == b {
		t.Error("two seeds make the same run")
	}
}

// SPEC P5: sizes without a meaning are refused.
func TestP5RefusesSizes(t *testing.T) {
	for _, args := range []string{"-replicas=0", "-sessions=-1", "-rate=0", "-rate=1000", "-tools=-1", "-cores=x"} {
		if err := run([]string{args}, io.Discard); err == nil {
			t.Errorf("%s is not refused", args)
		}
	}
}

// SPEC P5: the page shows what the program prints. UPDATE=1 writes it.
func TestP5ThePage(t *testing.T) {
	needs.Time(t, "simulates the sizes of the page")
	const path, begin, end = "../../../docs/SCALING.md", "<!-- scale: made by go run ./internal/testing/scale; UPDATE=1 go test ./internal/testing/scale -->\n", "<!-- end of scale -->\n"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(page), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no %q and %q", path, begin, end)
	}
	var out bytes.Buffer
	if err := run(nil, &out); err != nil {
		t.Fatal(err)
	}
	want := before + begin + "\n" + out.String() + "\n" + end + after
	switch {
	case want == string(page):
	case os.Getenv("UPDATE") != "":
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s is not what the program prints now; UPDATE=1 writes\n%s", path, out.String())
	}
}
