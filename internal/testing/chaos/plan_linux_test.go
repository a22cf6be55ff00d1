package main

import (
	"reflect"
	"slices"
	"testing"
	"time"
)

func TestAPlanFollowsFromItsSeed(t *testing.T) {
	one, again := plan(7, 3, time.Minute), plan(7, 3, time.Minute)
	if !reflect.DeepEqual(one, again) {
		t.Error("the same seed made two plans")
	}
	for name, other := range map[string]round{"another seed": plan(8, 3, time.Minute), "another round": plan(7, 4, time.Minute)} {
		if reflect.DeepEqual(one.steps, other.steps) {
			t.Errorf("%s made the same plan", name)
		}
	}
}

func TestPlansDoEveryHarmAndSpareWhomTheySay(t *testing.T) {
	const rounds = 200
	seen, spared := map[string]bool{}, map[string]bool{}
	for n := range rounds {
		r := plan(1, n, 20*time.Second)
		for _, name := range r.spared {
			spared[name] = true
		}
		var at time.Duration
		for _, s := range r.steps {
			seen[s.harm] = true
			h := harmOf(s.harm)
			switch {
			case slices.Contains(r.spared, s.tool):
				t.Fatalf("round %d: %s is done to %s, which is spared", n, s.harm, s.tool)
			case (s.tool == "") != (h.to == global):
				t.Fatalf("round %d: %s is done to %q", n, s.harm, s.tool)
			case s.tool != "" && !h.fits(kindOf(s.tool)):
				t.Fatalf("round %d: %s is done to %s", n, s.harm, s.tool)
			case s.at < at || s.at > 20*time.Second:
				t.Fatalf("round %d: a step at %s after one at %s", n, s.at, at)
			case s.long < h.least || s.long > h.most:
				t.Fatalf("round %d: %s for %s", n, s.harm, s.long)
			}
			at = s.at
		}
	}
	for _, h := range harms() {
		if !seen[h.name] {
			t.Errorf("%s is never done", h.name)
		}
	}
	for _, name := range toolNames() {
		if !spared[name] {
			t.Errorf("%s is never spared", name)
		}
	}
}
