package records

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// journal keeps a log.
type journal struct{ bytes.Buffer }

// having returns the lines that have a text.
func (j *journal) having(text string) (lines []string) {
	for line := range strings.SplitSeq(j.String(), "\n") {
		if strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	return lines
}

func raws(texts ...string) (list []json.RawMessage) {
	for _, text := range texts {
		list = append(list, json.RawMessage(text))
	}
	return list
}

// SPEC J1: a stop by an operator is there at the next start, each project's own, and
// for every version of a tool.
func TestHoldsAreKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "when needed")
	here, there := listedTool("/here/tool.yaml"), listedTool("/there/tool.yaml")
	one, two := listedTool("/tools/cap/1.0.0/tool.yaml"), listedTool("/tools/cap/2.0.0/tool.yaml")
	holds := NewHolds(dir)
	holds.Save(there, false, discard) // that is not there
	holds.Save(here, true, discard)
	holds.Save(one, true, discard)
	for _, again := range []*Holds{holds, NewHolds(dir)} {
		for tool, want := range map[string]bool{here.Source: true, there.Source: false, one.Source: true, two.Source: true} {
			if held, known := again.Load(listedTool(tool)); held != want || !known {
				t.Errorf("%s: held %v, known %v", tool, held, known)
			}
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 2 {
		t.Errorf("the folder has %v, %v", files, err)
	}
	NewHolds(dir).Save(two, false, discard)
	if held, _ := NewHolds(dir).Load(one); held {
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
		holds.Save(tool, true, log)
	}
	if n := len(journal.having("cannot store")); n != 1 {
		t.Errorf("warned %d times, want once", n)
	}
	if held, _ := holds.Load(tool); !held {
		t.Error("it is not held in memory")
	}
}

// Without a folder holds are kept in memory; without Holds nobody knows.
func TestHoldsNowhere(t *testing.T) {
	tool := listedTool("/here/tool.yaml")
	var none *Holds
	none.Save(tool, true, discard)
	if held, known := none.Load(tool); held || known {
		t.Errorf("no Holds: held %v, known %v", held, known)
	}
	memory := NewHolds("")
	memory.Save(tool, true, discard)
	if held, known := memory.Load(tool); !held || !known {
		t.Errorf("in memory: held %v, known %v", held, known)
	}
}
