package main

import (
	"fmt"
	"slices"
)

// moves are those of SPEC D1's table. It is written down once more on purpose:
// a fault in the program's own table must not hide itself.
var moves = map[string][]string{
	"CREATED":   {"STARTING", "STOPPED"},
	"STARTING":  {"READY", "CRASHED", "STOPPING"},
	"READY":     {"RELOADING", "CRASHED", "STOPPING"},
	"RELOADING": {"STARTING", "STOPPING"},
	"CRASHED":   {"STARTING", "STOPPED"},
	"STOPPING":  {"STOPPED"},
	"STOPPED":   {"STARTING"},
}

// histories follows each capsule of one life of Orla through the log. It is for
// one goroutine.
type histories struct {
	state map[string]string // of each capsule, as the log has it
	seen  map[string]int    // how often each move was made
	gap   bool              // lines may be missing before the next one of each capsule
	after map[string]bool   // with gap: the capsules that were heard of since
}

func newHistories() *histories {
	return &histories{state: map[string]string{}, seen: map[string]int{}, after: map[string]bool{}}
}

// missed says that lines of the log may have been lost: what a capsule did
// meanwhile is unknown, and what it does from then on is not.
func (h *histories) missed() {
	h.gap = true
	clear(h.after)
}

// read takes one line of the log and returns what is wrong with it.
func (h *histories) read(line map[string]any) (faults []string) {
	if line["msg"] != "state" {
		return nil
	}
	word := func(key string) string {
		text, _ := line[key].(string)
		return text
	}
	tool, from, to, reason := word("tool"), word("from"), word("to"), word("reason")
	was, known := h.state[tool]
	if !known {
		was = "CREATED"
	}
	h.state[tool] = to
	h.seen[from+" to "+to]++
	// One whose manifest changed begins anew, after it was STOPPED.
	follows := from == was || was == "STOPPED" && from == "CREATED"
	if !follows && (!h.gap || h.after[tool]) {
		faults = append(faults, fmt.Sprintf("%s leaves %s for %s, but it was %s", tool, from, to, was))
	}
	h.after[tool] = true
	if !slices.Contains(moves[from], to) {
		faults = append(faults, fmt.Sprintf("%s: %s to %s is no move", tool, from, to))
	}
	if reason == "" {
		faults = append(faults, fmt.Sprintf("%s: %s to %s for no reason", tool, from, to))
	}
	_, hasPID := line["pid"].(float64)
	lasted, hasLasted := line["lasted_ms"].(float64)
	if !hasPID || !hasLasted || lasted < 0 {
		faults = append(faults, fmt.Sprintf("%s: %s to %s with pid %v after %v ms", tool, from, to, line["pid"], line["lasted_ms"]))
	}
	if pid, _ := line["pid"].(float64); to == "READY" && pid <= 0 {
		faults = append(faults, fmt.Sprintf("%s is READY without a process", tool))
	}
	return faults
}
