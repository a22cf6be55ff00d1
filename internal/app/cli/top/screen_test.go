package top

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/orla-project/orla/internal/app/control"
)

// screenOf returns a screen with tools: two capsules, one of which has crashed, and others.
func screenOf(others int) *screen {
	status := &control.Status{Version: "1", Pid: 7, Started: time.Now(), Tools: []control.ToolStatus{
		{Name: "alpha", Kind: "capsule", State: "READY", Pid: 11, Calls: 3, Memory: 1 << 20},
		{Name: "beta", Kind: "capsule", State: "CRASHED", Reason: "it exited with code 3", Calls: 9},
	}}
	for i := range others {
		status.Tools = append(status.Tools, control.ToolStatus{Name: fmt.Sprintf("tool%03d", i), Kind: "simple", Calls: int64(100 + i)})
	}
	s := &screen{width: 100, height: 12}
	s.show(status)
	return s
}

// press presses keys, and returns the last command.
func (s *screen) press(keys ...string) (c command) {
	for _, k := range keys {
		c = s.key(k)
	}
	return c
}

// SPEC O5: keys select, sort and search, and a selection stays with its tool.
func TestO5Table(t *testing.T) {
	t.Parallel()
	s := screenOf(100)
	if s.selected != "alpha" {
		t.Fatalf("%q is selected at the begin", s.selected)
	}
	for _, c := range []struct{ keys, want string }{
		{"up", "alpha"},
		{"down", "beta"},
		{"j j", "tool001"},
		{"k", "tool000"},
		{"end", "tool099"},
		{"down", "tool099"},
		{"page up", "tool092"},
		{"g", "alpha"},
		{"page down", "tool005"},
		{"G", "tool099"},
	} {
		if strings.HasPrefix(c.keys, "page") {
			s.press(c.keys)
		} else {
			s.press(strings.Fields(c.keys)...)
		}
		if s.selected != c.want {
			t.Errorf("after %s, %s is selected, not %s", c.keys, s.selected, c.want)
		}
		if !strings.Contains(s.text(), "> "+c.want) {
			t.Errorf("after %s, %s is not shown: %q", c.keys, c.want, s.text())
		}
	}
	s.press("o", "o") // by calls
	if s.selected != "tool099" || s.tools[0].Name != "tool099" || s.tools[101].Name != "alpha" {
		t.Errorf("%s is selected, %s is first, %s is last", s.selected, s.tools[0].Name, s.tools[101].Name)
	}
	s.press("/", "E", "T", "A")
	if len(s.tools) != 1 || s.selected != "beta" {
		t.Errorf("the search shows %v, %s is selected", s.tools, s.selected)
	}
	s.press("x") // in a search, a character
	if len(s.tools) != 0 || !strings.Contains(s.text(), "no tool's name has ETAx") {
		t.Errorf("the search shows %q", s.text())
	}
	s.press("backspace", "enter")
	if s.mode != table || len(s.tools) != 1 || !strings.Contains(s.text(), "it exited with code 3") {
		t.Errorf("%q", s.text())
	}
	s.press("escape")
	if len(s.tools) != 102 {
		t.Errorf("%d tools are shown", len(s.tools))
	}
}

// SPEC O5: a stop is confirmed, and only capsules are operated.
func TestO5Commands(t *testing.T) {
	t.Parallel()
	s := screenOf(1)
	for _, c := range []struct {
		keys []string
		want command
	}{
		{[]string{"r"}, command{"restart", "alpha"}},
		{[]string{"s"}, command{"start", "alpha"}},
		{[]string{"x"}, command{}},
		{[]string{"n"}, command{}},
		{[]string{"y"}, command{}},
		{[]string{"x", "y"}, command{"stop", "alpha"}},
		{[]string{"l"}, command{"logs", "alpha"}},
		{[]string{"r"}, command{"restart", "alpha"}},
		{[]string{"q"}, command{do: "table"}},
		{[]string{"end", "r"}, command{}},
		{[]string{"x"}, command{}},
		{[]string{"y"}, command{}},
		{[]string{"q"}, command{do: "quit"}},
		{[]string{"interrupt"}, command{do: "quit"}},
	} {
		if got := s.press(c.keys...); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.keys, got, c.want)
		}
	}
	s.press("r")
	if !strings.Contains(s.said, "is not a capsule") {
		t.Errorf("said %q", s.said)
	}
}

// SPEC O5: the log is bounded, scrolls, and stays where the user looks.
func TestO5Log(t *testing.T) {
	t.Parallel()
	s := screenOf(0)
	s.press("l")
	for i := range maxLines + 50 {
		s.line("alpha", fmt.Sprintf("line %d.", i))
		s.line("beta", "of another tool")
	}
	if len(s.log.lines) != maxLines || !strings.Contains(s.text(), "line 1049.") || strings.Contains(s.text(), "another") {
		t.Errorf("%d lines: %q", len(s.log.lines), s.text())
	}
	s.press("page up")
	before := s.text()
	s.line("alpha", "new")
	if after := s.text(); strings.Contains(after, "new\x1b") || !strings.Contains(after, "line 1040.") || !strings.Contains(before, "line 1040.") {
		t.Errorf("%q, then %q", before, after)
	}
	s.press("end")
	if !strings.Contains(s.text(), "new\x1b") {
		t.Errorf("%q", s.text())
	}
	s.press("home", "up", "up")
	if s.log.back != maxLines-s.logRoom() {
		t.Errorf("%d lines back", s.log.back)
	}
}

// SPEC O5, S2: the screen has no line more than there is room for, whatever the size and the tools, and what tools
// say cannot command the terminal.
func TestO5Sizes(t *testing.T) {
	t.Parallel()
	for _, size := range [][2]int{{1, 1}, {20, 3}, {40, 5}, {80, 24}, {200, 60}} {
		for _, others := range []int{0, 1, 5, 60} {
			s := screenOf(others)
			s.status.Tools[1].Name, s.status.Tools[1].Reason = "be\x1b[2Jta", "\x1b]0;evil\x07\nsecond"
			s.width, s.height = size[0], size[1]
			s.arrange()
			for _, keys := range [][]string{nil, {"j"}, {"end"}, {"/", "a"}, {"escape"}, {"x"}, {"n"}, {"l"}} {
				s.press(keys...)
				s.line("alpha", strings.Repeat("x", 300))
				text := strings.TrimSuffix(strings.TrimPrefix(s.text(), "\x1b[H"), "\x1b[J")
				lines := strings.Split(text, "\x1b[K")
				if n := len(lines) - 1; n > size[1] {
					t.Errorf("%v, %d tools, %v: %d lines", size, others, keys, n)
				}
				if strings.ContainsAny(strings.Join(lines, ""), "\x1b\x07") {
					t.Errorf("%v, %d tools, %v: %q", size, others, keys, text)
				}
			}
		}
	}
	s := screenOf(0)
	s.status = nil
	if s.width = 5; utf8.RuneCountInString(s.cut("a long text")) != 5 {
		t.Errorf("%q", s.cut("a long text"))
	}
	if !strings.Contains(s.text(), "wait") {
		t.Errorf("%q", s.text())
	}
}

// SPEC O5: keys as terminals send them, several at once too.
func TestO5Keys(t *testing.T) {
	t.Parallel()
	for sent, want := range map[string][]string{
		"q": {"q"}, "\x1b": {keyEscape}, "\x1b[A\x1b[Bx": {keyUp, keyDown, "x"}, "\x1bOA": {keyUp}, "\r": {keyEnter},
		"\x1b[1;5Cq": {"q"}, "\x1b[99~": nil, "\x1bqj": {"j"}, "é/": {"é", "/"}, "\x03": {keyInterrupt}, "\x01\xff": nil, "\x1b[": nil,
		"\x1b[5~\x1b[6~\x1b[H\x1b[F\x7f": {keyPageUp, keyPageDown, keyHome, keyEnd, keyBackspace},
	} {
		if got := keysIn([]byte(sent)); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %q, want %q", sent, got, want)
		}
	}
}
