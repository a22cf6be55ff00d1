package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// lineOf returns the line of a call as it is read.
func lineOf(t *testing.T, c *Call) (l Line, members map[string]any) {
	t.Helper()
	raw := c.appendTo([]byte(`{"seq":1,"prev":""`), time.Now(), false, &rawjson.Canonicalizer{})
	if err := json.Unmarshal(raw, &l); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	if err := json.Unmarshal(raw, &members); err != nil {
		t.Fatal(err)
	}
	return l, members
}

// SPEC-TOOLS 8.8: the line of a call says for whom it was made, what it is a part of, and that the client has answered the questions
// of the tool.
func TestT88ALineSaysForWhomACallIs(t *testing.T) {
	c := someCall()
	c.Acting = Acting{Agent: "bot", Task: "t1"}
	c.Input = []byte(`{"b": 1, "a": "x"}`)
	l, members := lineOf(t, c)
	if l.Agent != "bot" || l.Task != "t1" {
		t.Errorf("the line has the agent %q and the task %q", l.Agent, l.Task)
	}
	sum := members["input_sha256"]
	c.Input = []byte(`{"a":"\u0078","b":1}`)
	if _, same := lineOf(t, c); sum == nil || same["input_sha256"] != sum || same["input_form"] != nil {
		t.Errorf("the same input has the hashes %v and %v", sum, same["input_sha256"])
	}
	c.Input = []byte(`{"a":"\ud800"}`)
	if _, other := lineOf(t, c); other["input_form"] != "as_sent" {
		t.Errorf("what has no canonical form has the form %v", other["input_form"])
	}
	c.Acting, c.Input = Acting{}, nil
	if _, members = lineOf(t, c); members["agent"] != nil || members["task"] != nil || members["input_sha256"] != nil {
		t.Errorf("a call for nobody has the line %v", members)
	}
}

// SPEC-TOOLS 8.8: two callers are two in the log, and two arguments have two hashes.
func TestT88ALineDistinguishesWhatIsLongOrHalf(t *testing.T) {
	longest := "oauth:" + strings.Repeat("a", 256)
	for _, pair := range [][2]string{
		{longest, longest[:len(longest)-1] + "b"},
		{strings.Repeat("a", 10_000) + "x", strings.Repeat("a", 10_000) + "y"},
	} {
		a, b := someCall(), someCall()
		a.Caller, b.Caller = pair[0], pair[1]
		one, _ := lineOf(t, a)
		other, _ := lineOf(t, b)
		if one.Caller == other.Caller || len(one.Caller) > maxText+len("…")+16 {
			t.Errorf("two callers of %d bytes are %q and %q", len(pair[0]), one.Caller, other.Caller)
		}
		if !(Selection{Caller: pair[0]}).has(&one) || (Selection{Caller: pair[1]}).has(&one) {
			t.Error("the caller cannot be selected")
		}
	}
	hashes := map[string]string{}
	for _, args := range []string{`{"a":"\ud800"}`, `{"a":"\udbff"}`, `{"a":"\ufffd"}`} {
		c := someCall()
		c.Args = []byte(args)
		l, members := lineOf(t, c)
		if other, is := hashes[l.ArgsSHA256]; is {
			t.Errorf("%s has the hash of %s", args, other)
		}
		if isHalf := args != `{"a":"\ufffd"}`; (members["args_form"] == "as_sent") != isHalf {
			t.Errorf("%s has the form %v", args, members["args_form"])
		}
		hashes[l.ArgsSHA256] = args
	}
}

// SPEC-TOOLS 8.8: nothing in a line is hidden, or ends it for a program that takes more characters than \n for line ends. The arguments
// still have the hash of their canonical form.
func TestT88NothingIsHiddenInALine(t *testing.T) {
	const odd = "é\u2028\u2029\u0085\u009b\u202e\u200b\U000e0041"
	c := someCall()
	c.Tool, c.Task, c.Args = odd, odd, []byte(`{"`+odd+`":"`+odd+`"}`)
	line := c.appendTo([]byte(`{"seq":1`), time.Now(), true, &rawjson.Canonicalizer{})
	const shown = `é\u2028\u2029\u0085\u009b\u202e\u200b\udb40\udc41`
	for _, want := range []string{`"task":"` + shown + `"`, `"tool":"` + shown + `"`, `"args":{"` + shown + `":"` + shown + `"}`} {
		if !bytes.Contains(line, []byte(want)) {
			t.Errorf("the line %q has no %s", line, want)
		}
	}
	var read struct {
		Tool string
		Args map[string]string
		Sum  string `json:"args_sha256"`
	}
	if err := json.Unmarshal(line, &read); err != nil || read.Tool != odd || read.Args[odd] != odd {
		t.Errorf("read are %+v, %v", read, err)
	}
	if sum := sha256.Sum256(c.Args); read.Sum != hex.EncodeToString(sum[:]) {
		t.Errorf("the arguments have the hash %s", read.Sum)
	}
}

// SPEC N2: a call whose line cannot be made ends neither the log nor Orla.
func TestN2ALineThatPanicsIsLost(t *testing.T) {
	l := &Log{opts: Options{Log: slog.New(slog.DiscardHandler)}}
	l.makeLine(nil)
	if len(l.pending) > 0 || l.chain.seq != 0 || l.lost != 1 {
		t.Errorf("%q, %d lost", l.pending, l.lost)
	}
	l.makeLine(&waitingLine{call: Call{Caller: "a", Decision: Decision{Verdict: Allow}}})
	if !strings.Contains(string(l.pending), `"seq":1,`) || !strings.Contains(string(l.pending), `"caller":"a","verdict":"allow","duration_ms"`) || l.lost != 1 {
		t.Errorf("%q, %d lost", l.pending, l.lost)
	}
}
