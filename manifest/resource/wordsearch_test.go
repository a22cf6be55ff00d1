package resource

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/orla-project/orla/internal/testing/costtest"
	"github.com/orla-project/orla/internal/testing/manifesttest"
)

// A word is found wherever the parts of its text end.
func TestWordsAreFoundInParts(t *testing.T) {
	for text, want := range map[string]bool{
		"an AgentRole here":                        true,
		"AGENTROLE":                                true,
		manifesttest.UTF16("x AgentRole"):          true,
		"\x00" + manifesttest.UTF16("x AgentRole"): true,
		`"Agent\x52o\u006c\U00000065"`:             true,
		"Agent\u200bRo\u00adle":                    true,
		"\uff21gent\uff32ole":                      true,
		"\"Agent\\\r\n \t Role\"":                  true,
		"\"Agent\\\u2028Role\"":                    true,
		`C:\AgentRole`:                             true,
		"agent role":                               false,
		"agent\\ role":                             false,
		"AgentRol\\x":                              false,
		"\"Agent\\\n\nRole\"":                      false,
		"Agent\xffRole":                            false,
		strings.Repeat("agentrol", 50_000):         false,
		strings.Repeat("x", 200_000) + "AgentRole": true,
	} {
		if got := holdsWord([]byte(text), []string{"agentrole"}); got != want {
			t.Errorf("%.50q: got %v", text, got)
		}
		if len(text) > 100 {
			continue
		}
		for size := 1; size <= len(text); size++ {
			s, got := wordSearch{words: []string{"agentrole"}}, false
			for at := 0; at < len(text); at += size {
				end := min(at+size, len(text))
				got = s.feed([]byte(text[at:end]), end == len(text)) || got
			}
			if got != want {
				t.Errorf("%q in parts of %d: got %v", text, size, got)
			}
		}
	}
}

// SPEC-TOOLS 8.3: a file is searched to its end, or is known not to be.
func TestT83AFileIsSearchedToItsEnd(t *testing.T) {
	words := []string{"agentrole"}
	text := strings.Repeat("x", 3*searched) + "AgentRole"
	for most, want := range map[int64]string{1 << 30: "true <nil>", 2 * searched: "false " + errTooLong.Error()} {
		found, err := findWord(iotest.HalfReader(strings.NewReader(text)), words, most)
		if got := fmt.Sprint(found, " ", err); got != want {
			t.Errorf("of at most %d bytes: got %s, want %s", most, got, want)
		}
	}
	zeros := strings.Repeat("\x00", 200)
	if found, err := findWord(strings.NewReader(zeros+text), words, 1<<30); found || err != nil {
		t.Errorf("after bytes that are not text: %v, %v", found, err)
	}
	if _, err := findWord(iotest.ErrReader(os.ErrDeadlineExceeded), words, 1<<30); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("of what cannot be read: %v", err)
	}
	long := filepath.Join(t.TempDir(), "a.json")
	if err := os.WriteFile(long, []byte("["+strings.Repeat(" ", 2*searched)+"]"), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(long, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	l := Loader{Stopped: func() error { return nil }}
	if rule, _, err := l.largeRule(f, 1); !rule || err != nil {
		t.Errorf("a file that is too long to be searched: %v, %v", rule, err)
	}
}

// What is JSON, and which has a governance document in it.
func TestJSONIsLookedThrough(t *testing.T) {
	for text, want := range map[string]string{
		`{"a": [1, -2.5e+3, true, false, null, "x\"\\\u00e9"], "b": {}, "c": []}`: "false <nil>",
		` "AgentRole" `:                                      "false <nil>",
		`[{"kind": "AgentRole"}]`:                            "false <nil>",
		`{"KIND": "Agent\u0052ole"}`:                         "true <nil>",
		`{"kind": ["AgentRole"]}`:                            "false <nil>",
		`{"a": 1} {"kind": "AgentRole"}`:                     "true <nil>",
		`{"kind": "AgentRole", `:                             "true EOF",
		`{"apiVersion": "orloj.dev/v1", "a`:                  "true EOF",
		`{"apiVersion": "orloj.dev/v1", "a": 1}`:             "false <nil>",
		`{"spec": {"blocked_tools": [`:                       "true EOF",
		`{"a": {"kind": "AgentRole"}}`:                       "false <nil>",
		`{"items": [{"kind": "AgentRole"}]}`:                 "false <nil>",
		`{"items": [{"kind": "AgentRole"}], "kind": "List"}`: "true <nil>",
		`{"a": 1,}`:                              "false is not JSON",
		`[1,]`:                                   "false is not JSON",
		`[1 2]`:                                  "false is not JSON",
		`{"a" 1}`:                                "false is not JSON",
		`{a: 1}`:                                 "false is not JSON",
		`[AgentRole]`:                            "false is not JSON",
		`[nan]`:                                  "false is not JSON",
		`[&a "x"]`:                               "false is not JSON",
		"[\"a\nb\"]":                             "false is not JSON",
		`[1`:                                     "false EOF",
		`["a`:                                    "false EOF",
		``:                                       "false <nil>",
		`[NaN, -Infinity, Infinity]`:             "false <nil>",
		`[INF]`:                                  "false is not JSON",
		`{"a": 1} # AgentRole`:                   "false is not JSON",
		`[1] // AgentRole`:                       "false is not JSON",
		strings.Repeat("[", 1<<20):               "false is not JSON that is nested less than 1000 deep",
		`["` + strings.Repeat("x", 1<<20) + `"]`: "false <nil>",
		`[` + strings.Repeat("1", 1<<20) + `]`:   "false is not JSON",
	} {
		j := jsonReader{ByteScanner: bufio.NewReader(strings.NewReader(text))}
		err := j.read()
		if got := fmt.Sprint(j.rule, " ", err); got != want {
			t.Errorf("%.80s: got %s, want %s", text, got, want)
		}
	}
}

// SPEC S1: a large file is searched in a time that grows as it does.
func TestS1TheCostOfASearch(t *testing.T) {
	for name, unit := range map[string]string{
		"text":    "a: an agent has a role, and a tool a permission\n",
		"escapes": `\x41\u0042\`, "wide": manifesttest.UTF16("agentrol"), "unseen": "\u200b\u00e9", "joined": "\\\n    ",
		"nested": `[{"kind":`, "strings": `["kind","` + strings.Repeat("x", 300) + `"],`,
	} {
		t.Run(name, func(t *testing.T) {
			costtest.Check(t, 20_000, func(n int) func() {
				text := strings.Repeat(unit, n)
				return func() {
					if holdsWord([]byte(text), suspicious) {
						t.Fatal("it holds a word")
					}
					j := jsonReader{ByteScanner: bufio.NewReader(strings.NewReader("[" + text))}
					if err := j.read(); err == nil {
						t.Fatal("it is JSON")
					}
				}
			})
		})
	}
}
