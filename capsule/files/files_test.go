package files

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// SPEC E3: a file that makes the capsule reload again and again is found out;
// many files are not.
func TestFlapping(t *testing.T) {
	now := time.Now()
	var f flaps
	var reloads []bool
	for i := range 12 {
		reload, suspended := f.count("data.json", now.Add(time.Duration(i)*5*time.Second))
		if suspended != (i == 10) {
			t.Errorf("change %d: suspended %v", i, suspended)
		}
		reloads = append(reloads, reload)
	}
	if slices.Contains(reloads[:10], false) || slices.Contains(reloads[10:], true) {
		t.Errorf("reloads: %v", reloads)
	}
	if reload, _ := f.count("main.py", now.Add(56*time.Second)); reload {
		t.Error("while watching is suspended another file counts")
	}
	if reload, _ := f.count("main.py", now.Add(117*time.Second)); !reload {
		t.Error("after a quiet minute nothing counts")
	}
	f = flaps{}
	for i := range 100 {
		if reload, _ := f.count(fmt.Sprint(i%10), now.Add(time.Duration(i)*time.Second)); !reload {
			t.Fatalf("change %d of ten files does not reload", i)
		}
	}
}
