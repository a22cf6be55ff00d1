package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
)

// outcome is how one call ended, as its client saw it.
type outcome struct {
	tool         string // one of ours, whatever name it was called by
	req          request
	began, ended time.Time

	texts     int    // how many answers came; more than one is a fault
	text      string // of a good answer
	code      string // tool_code of a failure; "" for none
	retryable any    // as the failure has it
	rpc       int    // the code of a JSON-RPC error; 0 for none
	lost      error  // no answer; nil if one came
}

// String names the outcome for the count of outcomes.
func (o outcome) String() string {
	switch {
	case errors.Is(o.lost, errLeak), errors.Is(o.lost, errAsked):
		return "another tenant's"
	case errors.Is(o.lost, errLateHead):
		return "head too late"
	case o.lost != nil:
		return "connection lost"
	case o.rpc != 0:
		return fmt.Sprintf("JSON-RPC %d", o.rpc)
	case o.code != "":
		return o.code
	default:
		return "ok"
	}
}

// A window is a time in which something befalls Orla itself or its machine, and
// with it every tool. What it excuses is in excuses.
type window struct {
	harm     string
	from, to time.Time // to is zero while it goes on
}

// excuses says which outcomes of tools that nothing was done to each harm to all
// of them excuses; "*" is any. A harm that is not here excuses nothing: a full
// disk, a broken configuration or a hundred SIGHUPs must not be felt by a call.
var excuses = map[string][]string{
	"orla killed": {"*"},
	"orla ended":  {"*"},
	// Neither connections nor processes can be had.
	"descriptors": {"*"},
	// There is no such tool for a while, or no file to start it by.
	"folder gone": {"JSON-RPC -32602", string(fault.NotReady), string(fault.Crashed), string(fault.StartFailed), string(fault.ExecutionFailed)},
	// Time passes for callers while Orla stands still.
	"suspended": {string(fault.Timeout), string(fault.NotReady), string(fault.Crashed), string(fault.StartFailed)},
}

// afterwards is how long what a window excuses may show after it: what was gone
// is started again, and read again. Time in which Orla stands still does not count.
const afterwards = 4 * time.Second

// possible are the outcomes of calls to tools that are harmed themselves.
var possible = []string{
	"ok", string(fault.Crashed), string(fault.NotReady), string(fault.StartFailed), string(fault.Timeout),
	string(fault.ExecutionFailed),
	"JSON-RPC -32602", // its manifest is broken, or its file is away
}

// startsIt is in the text of a failure that lasts until somebody does something:
// to try again does not help then, whatever the code says.
const startsIt = "orla start "

// judgeAnswer says what is wrong with an answer, whatever befell its tool.
func judgeAnswer(o outcome) (faults []string) {
	who := fmt.Sprintf("call %s of %s (%s)", o.req.Nonce, o.tool, o.ended.Sub(o.began).Round(time.Millisecond))
	switch {
	case errors.Is(o.lost, errLeak), errors.Is(o.lost, errAsked): // no window excuses this
		return []string{fmt.Sprintf("%s: %v", who, o.lost)}
	case o.lost != nil:
		return nil // whether it may be lost is a matter of the windows
	case o.texts > 1:
		faults = append(faults, fmt.Sprintf("%s has %d answers", who, o.texts))
	}
	switch {
	case o.rpc != 0:
	case o.code != "":
		c := fault.Code(o.code)
		told, ok := o.retryable.(bool)
		switch {
		case !slices.Contains(fault.Codes(), c):
			faults = append(faults, fmt.Sprintf("%s failed with %q, which is not a code", who, o.code))
		case !ok || told != c.Retryable() && (told || !strings.Contains(o.text, startsIt)):
			faults = append(faults, fmt.Sprintf("%s failed as %s with retryable: %v: %.200s", who, o.code, o.retryable, o.text))
		}
	default:
		nonce, rest, _ := strings.Cut(o.text, " ")
		version, rest, _ := strings.Cut(rest, " ")
		r := o.req
		r.version = version
		if nonce != r.Nonce || o.text != r.answer() {
			faults = append(faults, fmt.Sprintf("%s has an answer that is not its own: %.80q … %.80q", who, o.text, rest))
		}
	}
	return faults
}

// judgeOutcome says whether a call may end so: a spared tool's may not fail but
// in a window that excuses it, and a harmed one's only in the ways that are
// possible.
func judgeOutcome(o outcome, spared bool, windows []window) (faults []string) {
	name := o.String()
	if name == "ok" || errors.Is(o.lost, errLateHead) || excused(o, windows) {
		return nil
	}
	if spared || !slices.Contains(possible, name) {
		how := name
		if o.lost != nil {
			how = fmt.Sprintf("%s: %v", name, o.lost)
		}
		told := "harmed"
		if spared {
			told = "untouched"
		}
		faults = append(faults, fmt.Sprintf("call %s of %s, which is %s, from %s to %s (%q): %s %.300q",
			o.req.Nonce, o.tool, told, o.began.Format(clock), o.ended.Format(clock), o.req.Do, how, o.text))
	}
	return faults
}

// clock is how times are shown, as in the log.
const clock = "15:04:05.000"

func excused(o outcome, windows []window) bool {
	for _, w := range windows {
		over := !w.to.IsZero() && o.began.After(w.to.Add(afterwards+stood(windows, w.to, o.began)))
		if over || o.ended.Before(w.from) {
			continue
		}
		for _, name := range excuses[w.harm] {
			if name == "*" || name == o.String() {
				return true
			}
		}
	}
	return false
}

// stood is for how long Orla stood still from one moment to another.
func stood(windows []window, from, to time.Time) (still time.Duration) {
	for _, w := range windows {
		if w.harm != "suspended" {
			continue
		}
		end := to
		if !w.to.IsZero() && w.to.Before(to) {
			end = w.to
		}
		begin := w.from
		if begin.Before(from) {
			begin = from
		}
		still += max(0, end.Sub(begin))
	}
	return still
}

// judgeJournal reads what tools have noted: which calls reached them, and what
// should not be. A call whose tool does not say that it may be repeated reaches
// it once at most.
func judgeJournal(text string) (faults []string) {
	seen := map[string]string{} // by nonce: the process that the call reached
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 || len(words) < 4 && strings.HasPrefix("ran", words[0]) {
			continue // what a full disk has left of a note
		}
		if len(words) != 4 {
			faults = append(faults, fmt.Sprintf("a line that says nothing: %.100q", line))
			continue
		}
		what, tool, nonce, pid := words[0], words[1], words[2], words[3]
		switch {
		case what == "overlap":
			faults = append(faults, fmt.Sprintf("process %s of %s began while a process of the last tree lived: %s", pid, tool, nonce))
		case what != "ran":
			faults = append(faults, fmt.Sprintf("%s of %s: %s %s", pid, tool, what, nonce))
		case seen[nonce] != "" && !sortOf(tool).again:
			faults = append(faults, fmt.Sprintf("call %s reached %s twice: processes %s and %s", nonce, tool, seen[nonce], pid))
		default:
			seen[nonce] = pid
		}
	}
	return faults
}
