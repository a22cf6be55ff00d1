package capsule

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/fault"
)

// SPEC J1: a stop by an operator is there at the next start, each project's own, and
// for every version of a tool.
func TestHoldsAreKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "when needed")
	here, there := listedTool("/here/tool.yaml"), listedTool("/there/tool.yaml")
	one, two := listedTool("/tools/cap/1.0.0/tool.yaml"), listedTool("/tools/cap/2.0.0/tool.yaml")
	holds := NewHolds(dir)
	holds.save(there, false, discard) // that is not there
	holds.save(here, true, discard)
	holds.save(one, true, discard)
	for _, again := range []*Holds{holds, NewHolds(dir)} {
		for tool, want := range map[string]bool{here.Source: true, there.Source: false, one.Source: true, two.Source: true} {
			if held, known := again.load(listedTool(tool)); held != want || !known {
				t.Errorf("%s: held %v, known %v", tool, held, known)
			}
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 2 {
		t.Errorf("the folder has %v, %v", files, err)
	}
	NewHolds(dir).save(two, false, discard)
	if held, _ := NewHolds(dir).load(one); held {
		t.Error("what was started by an operator is held at the next start")
	}
}

// What cannot be kept is told once, and holds for as long as Orla runs.
func TestHoldsThatCannotBeKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "held")
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // in the way, also of root
		t.Fatal(err)
	}
	journal := &journal{}
	log := slog.New(slog.NewTextHandler(journal, nil))
	holds := NewHolds(dir)
	tool := listedTool("/here/tool.yaml")
	for range 3 {
		holds.save(tool, true, log)
	}
	if n := len(journal.having("cannot be kept")); n != 1 {
		t.Errorf("warned %d times, want once", n)
	}
	if held, _ := holds.load(tool); !held {
		t.Error("it is not held in memory")
	}
}

// Without a folder holds are kept in memory; without Holds nobody knows.
func TestHoldsNowhere(t *testing.T) {
	tool := listedTool("/here/tool.yaml")
	var none *Holds
	none.save(tool, true, discard)
	if held, known := none.load(tool); held || known {
		t.Errorf("no Holds: held %v, known %v", held, known)
	}
	memory := NewHolds("")
	memory.save(tool, true, discard)
	if held, known := memory.load(tool); !held || !known {
		t.Errorf("in memory: held %v, known %v", held, known)
	}
}

// SPEC J1, D7a: the capsule of a changed manifest, or of another Orla, stays
// stopped by an operator. It makes nobody wait, and its tools are listed.
func TestHeldSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &fakeWorld{t: t, plan: well, most: 1}
		dir := t.TempDir()
		life := func(holds *Holds, test func(c *Capsule)) {
			c := walker(t, w, unchanged)
			c.opts.Holds = holds
			stop := served(t, c)
			synctest.Wait() // it is served
			test(c)
			stop()
		}
		holds := NewHolds(dir)
		life(holds, func(c *Capsule) { ok(t, c.Stop) })
		for _, holds := range []*Holds{holds, NewHolds(dir)} {
			life(holds, func(c *Capsule) {
				down(t, c, w)
				if offers := c.Offers(); !offers.Known || len(offers.Tools) != 1 {
					t.Errorf("it offers %+v", offers)
				}
				faulty(t, ask(t.Context(), c), fault.NotReady, "by an operator")
				time.Sleep(time.Hour)
				down(t, c, w)
			})
		}
		life(NewHolds(dir), func(c *Capsule) { ok(t, c.Start) })
		life(NewHolds(dir), func(c *Capsule) {
			if life := c.Life(); life.State != "READY" || life.Held {
				t.Errorf("it is %+v", life)
			}
		})
	})
}

// A stop by an operator that comes while its successor waits for its turn holds that.
func TestHeldWhileTheSuccessorWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &fakeWorld{t: t, plan: well, most: 1}
		holds := NewHolds("")
		old, next := walker(t, w, unchanged), walker(t, w, unchanged)
		old.opts.Holds, next.opts.Holds = holds, holds
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() {
			defer close(over)
			_ = old.Serve(ctx)
		}()
		synctest.Wait()
		ok(t, old.Stop)
		cancel()
		<-over
		ctx, cancel = context.WithCancel(t.Context())
		over = make(chan struct{})
		go func() {
			defer close(over)
			_ = next.Serve(ctx)
		}()
		synctest.Wait()
		down(t, next, w)
		cancel()
		<-over
	})
}
