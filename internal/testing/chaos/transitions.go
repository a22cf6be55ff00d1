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
	"CRASHED":   {"STARTING", "STOPPED", "RELOADING"},
	"STOPPING":  {"STOPPED"},
	"STOPPED":   {"STARTING", "RELOADING"},
}

// histories follows each capsule of one life of Orla through the log. It is for
// one goroutine.
type histories struct {
	state map[string]string // of each capsule, as the log has it
}

func newHistories() *histories {
	return &histories{state: map[string]string{}}
}

// read takes one line of the log and returns what is wrong with it.
func (h *histories) read(line map[string]any) (faults []string) {
	if line["msg"] != "state" {
		return nil
	}
	tool, from, to, reason := text(line, "tool"), text(line, "from"), text(line, "to"), text(line, "reason")
	was, known := h.state[tool]
	if !known {
		was = "CREATED"
	}
	h.state[tool] = to
	// One whose manifest changed begins anew, after it was STOPPED.
	follows := from == was || was == "STOPPED" && from == "CREATED"
	if !follows {
		faults = append(faults, fmt.Sprintf("%s leaves %s for %s, but it was %s", tool, from, to, was))
	}
	if !slices.Contains(moves[from], to) {
		faults = append(faults, fmt.Sprintf("%s: %s to %s is not a transition", tool, from, to))
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

func text(line map[string]any, key string) string {
	s, _ := line[key].(string)
	return s
}
