package podio

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// A step is a line of the log ("log X"), one of a connection ("out X", "text X"), or a time that passes ("wait 1s").
func play(t *testing.T, steps string) (got [2][]string, over bool) {
	t.Helper()
	now := time.Unix(0, 0)
	j := newJoint(now, func(s side, line []byte) { got[s] = append(got[s], string(line)) })
	for step := range strings.SplitSeq(steps, "; ") {
		what, line, _ := strings.Cut(step, " ")
		switch what {
		case "log":
			j.logged(logLine{text: []byte(line), side: sideOf([]byte(line))}, now)
		case "out":
			j.said(out, []byte(line), now)
		case "text":
			j.said(text, []byte(line), now)
		case "wait":
			d, err := time.ParseDuration(line)
			if err != nil {
				t.Fatal(err)
			}
			now = now.Add(d)
			j.tick(now)
		case "end":
			j.finish()
		}
	}
	return got, j.over()
}

const (
	m1 = `{"jsonrpc":"2.0","id":1}`
	m2 = `{"jsonrpc":"2.0","id":2}`
	m3 = `{"jsonrpc":"2.0","id":3}`
)

// SPEC P3: what the log and a connection have is put together: once, in order, and on its side.
func TestP3LogAndConnectionsAreJoined(t *testing.T) {
	for name, c := range map[string]struct {
		steps     string
		out, text string // lines, between spaces
		over      bool
	}{
		"nothing":                               {"wait 10s", "", "", true},
		"the connection lacks the begin":        {"log " + m1 + "; log " + m2 + "; out " + m2 + "; out " + m3, m1 + " " + m2 + " " + m3, "", false},
		"the log is behind":                     {"out " + m2 + "; log " + m1 + "; log " + m2 + "; out " + m3, m1 + " " + m2 + " " + m3, "", false},
		"no connection brings it":               {"log " + m1 + "; log a; wait 600ms", m1, "a", false},
		"the connection brings it late":         {"log " + m1 + "; wait 600ms; out " + m1 + "; out " + m2 + "; log " + m2, m1 + " " + m2, "", false},
		"the log never shows it":                {"out " + m1 + "; wait 1s; wait 1s", m1, "", false},
		"both sides":                            {"log a; log " + m1 + "; text a; out " + m1 + "; text b; out " + m2, m1 + " " + m2, "a b", true},
		"text on stdout stays there":            {"log " + m1 + "; out " + m1 + "; out banner; log banner; wait 600ms", m1 + " banner", "", false},
		"a message on stderr stays there":       {"log a; text a; text " + m1 + "; log " + m1 + "; wait 600ms", "", "a " + m1, false},
		"the connection begins within a line":   {"log " + m1 + `; out "id":1}; out ` + m2, m1 + " " + m2, "", false},
		"a line that is there twice":            {"log " + m1 + "; log " + m1 + "; out " + m1 + "; out " + m1, m1 + " " + m1, "", false},
		"the end":                               {"log " + m1 + "; log a; end", m1, "a", true},
		"an empty line at the end of a stream":  {"log ; log a; end", "", "a", true},
		"what comes later is not taken for old": {"log " + m1 + "; wait 600ms; log " + m2 + "; out " + m2 + "; out " + m1, m1 + " " + m2 + " " + m1, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			got, over := play(t, c.steps)
			if !slices.Equal(got[out], strings.Fields(c.out)) || !slices.Equal(got[text], strings.Fields(c.text)) || over != c.over {
				t.Errorf("stdout %q, stderr %q, over %t; want %q, %q, %t", got[out], got[text], over, c.out, c.text, c.over)
			}
		})
	}
}

// SPEC P3: a track finds its last line again, and completes one that it has in part.
func TestP3ALineIsCompleted(t *testing.T) {
	var b strings.Builder
	k := track{to: &b}
	for _, p := range []string{"one\ntw", "o\nthr"} {
		if _, err := k.Write([]byte(p)); err != nil {
			t.Fatal(err)
		}
	}
	if !k.last.is([]byte("two")) || k.last.is([]byte("one")) {
		t.Errorf("the last line is %+v", k.last)
	}
	if err := k.line([]byte("other")); err == nil {
		t.Error("it completes a line with another one")
	}
	if err := k.line([]byte("three")); err != nil || b.String() != "one\ntwo\nthree\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
}
