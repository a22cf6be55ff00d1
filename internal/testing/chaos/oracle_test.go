package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// at is a moment of a storm.
func at(seconds float64) time.Time {
	return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(seconds * float64(time.Second)))
}

// good is a call that ended as it should, changed by change.
func good(change func(*outcome)) outcome {
	o := outcome{tool: "calm", req: request{Nonce: "n1", Pad: "xxx", Fill: 20}, began: at(10), ended: at(11), texts: 1}
	r := o.req
	r.version = "w3"
	o.text = r.answer()
	change(&o)
	return o
}

// The oracle is worth what it finds: each wrong answer is found to be one.
func TestOracleFindsWrongAnswers(t *testing.T) {
	if faults := judgeAnswer(good(func(*outcome) {})); len(faults) > 0 {
		t.Fatalf("a good answer: %v", faults)
	}
	other := good(func(o *outcome) { o.req.Nonce = "n2" })
	for name, change := range map[string]func(*outcome){
		"another call's":         func(o *outcome) { o.text = other.req.answer() },
		"one cut short":          func(o *outcome) { o.text = o.text[:len(o.text)-1] },
		"one with a tail":        func(o *outcome) { o.text += "x" },
		"other arguments'":       func(o *outcome) { o.req.Pad = "xxxx" },
		"none":                   func(o *outcome) { o.text = "" },
		"two":                    func(o *outcome) { o.texts = 2 },
		"an unknown code":        func(o *outcome) { o.code, o.retryable = "no_such", true },
		"without a code":         func(o *outcome) { o.code = "without a code" },
		"retryable, and is not":  func(o *outcome) { o.code, o.retryable = "execution_failed", true },
		"not retryable, but is":  func(o *outcome) { o.code, o.retryable = "crashed", false },
		"retryable is not there": func(o *outcome) { o.code, o.retryable = "crashed", nil },
	} {
		if faults := judgeAnswer(good(change)); len(faults) == 0 {
			t.Errorf("%s is taken for good", name)
		}
	}
	held := good(func(o *outcome) {
		o.code, o.retryable, o.text = "not_ready", false, `stopped by an operator; "orla start calm" starts it`
	})
	if faults := judgeAnswer(held); len(faults) > 0 {
		t.Errorf("what was stopped by an operator: %v", faults)
	}
}

func TestOracleFindsCallsThatMayNotFail(t *testing.T) {
	lost := func(o *outcome) { o.lost = errors.New("connection refused") }
	late := func(o *outcome) { o.lost = fmt.Errorf("%w: reset", errLateHead) }
	crashed := func(o *outcome) { o.code, o.retryable = "crashed", true }
	gone := func(o *outcome) { o.rpc = -32602 }
	odd := func(o *outcome) { o.rpc = -32603 }
	for _, test := range []struct {
		name    string
		change  func(*outcome)
		spared  bool
		windows []window
		wrong   bool
	}{
		{"a good answer", func(*outcome) {}, true, nil, false},
		{"a spared tool crashed", crashed, true, nil, true},
		{"a harmed tool crashed", crashed, false, nil, false},
		{"a connection lost for nothing", lost, false, nil, true},
		{"lost for a head that was too late", late, true, nil, false},
		{"lost, as Orla was killed", lost, true, []window{{"orla killed", at(10.5), at(10.6)}}, false},
		{"lost before Orla was killed", lost, true, []window{{"orla killed", at(11.5), at(12)}}, true},
		{"lost soon after", lost, true, []window{{"orla killed", at(8), at(9)}}, false},
		{"lost long after", lost, true, []window{{"orla killed", at(1), at(2)}}, true},
		{"lost while it goes on", lost, true, []window{{"orla killed", at(1), time.Time{}}}, false},
		{"crashed on a full disk", crashed, true, []window{{"disk full", at(9), at(12)}}, true},
		{"crashed without inotify", crashed, true, []window{{"inotify", at(9), at(12)}}, true},
		{"crashed in a suspended Orla", crashed, true, []window{{"suspended", at(9), at(12)}}, false},
		{"lost in a suspended Orla", lost, true, []window{{"suspended", at(9), at(12)}}, true},
		{"gone with its folder", gone, true, []window{{"folder gone", at(9), at(12)}}, false},
		{"gone long after its folder was", gone, true, []window{{"folder gone", at(3), at(5)}}, true},
		{"gone, and Orla stood still since", gone, true, []window{{"folder gone", at(3), at(5)}, {"suspended", at(5.5), at(9)}}, false},
		{"gone, and Orla stood still before", gone, true, []window{{"folder gone", at(3), at(5)}, {"suspended", at(1), at(5)}}, true},
		{"gone for nothing", gone, true, nil, true},
		{"a harmed tool is gone", gone, false, nil, false},
		{"a harmed tool is odd", odd, false, nil, true},
	} {
		if faults := judgeOutcome(good(test.change), test.spared, test.windows); len(faults) > 0 != test.wrong {
			t.Errorf("%s: %v", test.name, faults)
		}
	}
}

func TestOracleFindsCallsThatReachedAToolTwice(t *testing.T) {
	for text, wrong := range map[string]bool{
		"ran calm n1 7\nran calm n2 7\n":       false,
		"ran calm n1 7\nran calm n1 8\n":       true,
		"ran retried n1 7\nran retried n1 8\n": false, // its manifest says that it may be
		"ran calm n1 7\noverlap calm - 8\n":    true,
		"broken calm {] 7\n":                   true,
		"ra\nran calm n1 7\n":                  false, // the disk was full
		"done calm\n":                          true,
	} {
		if faults := judgeJournal(text); len(faults) > 0 != wrong {
			t.Errorf("%q: %v", text, faults)
		}
	}
}

func TestHistoriesFindMovesThatCannotBe(t *testing.T) {
	line := func(from, to string) map[string]any {
		return map[string]any{"msg": "state", "tool": "calm", "from": from, "to": to, "reason": "r", "pid": 7., "lasted_ms": 1.}
	}
	path := func(states string) (lines []map[string]any) {
		words := strings.Fields(states)
		for i := range words[1:] {
			lines = append(lines, line(words[i], words[i+1]))
		}
		return lines
	}
	without := func(key string) map[string]any {
		l := line("CREATED", "STARTING")
		delete(l, key)
		return l
	}
	read := func(h *histories, lines []map[string]any) (faults []string) {
		for _, l := range lines {
			faults = append(faults, h.read(l)...)
		}
		return faults
	}
	for name, lines := range map[string][]map[string]any{
		"a whole life":     path("CREATED STARTING READY RELOADING STARTING CRASHED STARTING READY STOPPING STOPPED"),
		"a new manifest":   append(path("CREATED STARTING STOPPING STOPPED"), path("CREATED STARTING READY")...),
		"stopped at birth": path("CREATED STOPPED STARTING"),
	} {
		if faults := read(newHistories(), lines); len(faults) > 0 {
			t.Errorf("%s: %v", name, faults)
		}
	}
	for name, lines := range map[string][]map[string]any{
		"from nowhere":        path("READY CRASHED"),
		"a line is missing":   append(path("CREATED STARTING"), path("CRASHED STARTING")...),
		"begun anew too soon": append(path("CREATED STARTING READY STOPPING"), path("CREATED STARTING")...),
		"READY out of a pit":  path("CREATED STARTING CRASHED READY"),
		"back to CREATED":     path("CREATED STARTING READY CREATED"),
		"without a reason":    {without("reason")},
		"without a pid":       {without("pid")},
		"without a time":      {without("lasted_ms")},
	} {
		if faults := read(newHistories(), lines); len(faults) == 0 {
			t.Errorf("%s is taken for good", name)
		}
	}
}
