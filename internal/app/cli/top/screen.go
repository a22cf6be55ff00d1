package top

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/orla-project/orla/internal/app/cli/statuspage"
	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/terminal"
)

// mode is what the screen shows, and what keys mean.
type mode int

const (
	table mode = iota
	search
	confirm
	logs
)

// screen is what is shown. One goroutine owns it.
type screen struct {
	width, height int
	colours       bool

	mode     mode
	status   *control.Status
	tools    []control.ToolStatus // those that are shown, sorted
	selected string               // the name of the selected tool
	first    int                  // the first row that is shown
	order    int                  // in statuspage.Orders
	filter   string               // part of the names that are shown
	said     string               // the answer to the last command, or an error

	log logView
}

// logView shows the log of a tool.
type logView struct {
	of    string
	lines []string // the last ones, the newest last
	back  int      // how many lines the view is behind the newest
}

// maxLines bounds the lines of a tool that are kept to be looked at.
const maxLines = 1000

// command is what a key asks the program to do.
type command struct {
	do   string // "", "quit", "logs", "table", or a control.Action
	tool string
}

// show takes a new status.
func (s *screen) show(status *control.Status) {
	s.status = status
	s.arrange()
}

// arrange sorts and filters the tools, and keeps the selection.
func (s *screen) arrange() {
	if s.status == nil {
		return
	}
	at := max(s.at(), 0)
	s.tools = nil
	for _, t := range s.status.Tools {
		if strings.Contains(strings.ToLower(t.Name), strings.ToLower(s.filter)) {
			s.tools = append(s.tools, t)
		}
	}
	statuspage.SortBy(s.tools, statuspage.Orders()[s.order])
	if s.at() < 0 && len(s.tools) > 0 {
		s.selected = s.tools[min(at, len(s.tools)-1)].Name
	}
}

// at is the place of the selected tool; -1 if it is not shown.
func (s *screen) at() int {
	return slices.IndexFunc(s.tools, func(t control.ToolStatus) bool { return t.Name == s.selected })
}

// key handles a key.
func (s *screen) key(k string) command {
	switch {
	case k == keyInterrupt:
		return command{do: "quit"}
	case s.mode == search:
		s.searchKey(k)
		return command{}
	case s.mode == confirm:
		s.mode, s.said = table, ""
		if k == "y" {
			return command{do: string(control.Stop), tool: s.selected}
		}
		return command{}
	case s.mode == logs:
		return s.logsKey(k)
	}
	return s.tableKey(k)
}

func (s *screen) searchKey(k string) {
	switch k {
	case keyEnter:
		s.mode = table
	case keyEscape:
		s.mode, s.filter = table, ""
	case keyBackspace:
		_, size := utf8.DecodeLastRuneInString(s.filter)
		s.filter = s.filter[:len(s.filter)-size]
	default:
		if utf8.RuneCountInString(k) == 1 && k >= " " {
			s.filter += k
		}
	}
	s.arrange()
}

func (s *screen) tableKey(k string) command {
	s.said = ""
	switch k {
	case "q":
		return command{do: "quit"}
	case keyUp, "k":
		s.move(-1)
	case keyDown, "j":
		s.move(1)
	case keyPageUp:
		s.move(-s.room())
	case keyPageDown:
		s.move(s.room())
	case keyHome, "g":
		s.move(-len(s.tools))
	case keyEnd, "G":
		s.move(len(s.tools))
	case "o":
		s.order = (s.order + 1) % len(statuspage.Orders())
		s.arrange()
	case "/":
		s.mode = search
	case keyEscape:
		s.filter = ""
		s.arrange()
	case "l", keyEnter:
		if s.at() >= 0 {
			s.mode, s.log = logs, logView{of: s.selected}
			return command{do: "logs", tool: s.selected}
		}
	case "r", "s", "x":
		return s.operate(k)
	}
	return command{}
}

// operate begins a command about the selected tool.
func (s *screen) operate(k string) command {
	at := s.at()
	switch {
	case at < 0:
		return command{}
	case s.tools[at].State == "":
		s.said = terminal.Printable(s.selected) + " is not a capsule: it has no process to start, stop or restart"
		return command{}
	case k == "x":
		s.mode = confirm
		s.said = "stop " + terminal.Printable(s.selected) + " until it is started again? y stops it, any other key does not"
		return command{}
	case k == "r":
		return command{do: string(control.Restart), tool: s.selected}
	}
	return command{do: string(control.Start), tool: s.selected}
}

func (s *screen) move(by int) {
	if len(s.tools) > 0 {
		s.selected = s.tools[min(max(s.at()+by, 0), len(s.tools)-1)].Name
	}
}

func (s *screen) logsKey(k string) command {
	most := max(len(s.log.lines)-s.logRoom(), 0)
	switch k {
	case "q", keyEscape, "l":
		s.mode = table
		return command{do: "table"}
	case keyUp, "k":
		s.log.back = min(s.log.back+1, most)
	case keyDown, "j":
		s.log.back = max(s.log.back-1, 0)
	case keyPageUp:
		s.log.back = min(s.log.back+s.logRoom(), most)
	case keyPageDown:
		s.log.back = max(s.log.back-s.logRoom(), 0)
	case keyHome, "g":
		s.log.back = most
	case keyEnd, "G":
		s.log.back = 0
	case "r":
		return command{do: string(control.Restart), tool: s.log.of}
	}
	return command{}
}

// line takes a line of a tool's log. Who looks at older lines goes on seeing them.
func (s *screen) line(of, text string) {
	if s.mode != logs || s.log.of != of {
		return
	}
	s.log.lines = append(s.log.lines, text)
	if s.log.back > 0 {
		s.log.back++
	}
	if over := len(s.log.lines) - maxLines; over > 0 {
		s.log.lines = slices.Delete(s.log.lines, 0, over)
		s.log.back = min(s.log.back, max(maxLines-s.logRoom(), 0))
	}
}

// aroundTable is how many lines there are besides those of tools: two above, the head, and two below.
const aroundTable = 5

// room is how many tools there is room for.
func (s *screen) room() int { return max(s.height-aroundTable, 1) }

// logRoom is how many lines of a log there is room for, besides a line above and two below.
func (s *screen) logRoom() int { return max(s.height-3, 1) }

// text returns the whole screen: as many lines as it is high, none wider than it.
func (s *screen) text() string {
	var lines []string
	if s.mode == logs {
		lines = s.logLines()
	} else {
		lines = s.tableLines()
	}
	const restOfLine, restOfScreen = "\x1b[K", "\x1b[J" // removes what was there before
	return "\x1b[H" + strings.Join(lines[:min(len(lines), s.height)], restOfLine+"\r\n") + restOfLine + restOfScreen
}

func (s *screen) tableLines() []string {
	if s.status == nil {
		return []string{s.cut("waiting for Orla"), "", s.cut(s.said)}
	}
	lines := []string{s.cut(terminal.Printable(statuspage.Head(s.status)))}
	second := statuspage.Summary(s.status.Tools)
	if s.status.Waiting > 0 {
		second += "; " + terminal.Count(s.status.Waiting, "approval") + " to decide about"
	}
	if len(s.status.Problems) > 0 {
		second += "; " + terminal.Count(len(s.status.Problems), "problem") + ", see orla status"
	}
	lines = append(lines, s.cut(second))
	head, rows := statuspage.Rows(s.tools, statuspage.Style{Width: s.width - len(mark), Colours: s.colours})
	lines = append(lines, s.paint(terminal.Faint, "  "+head))
	at := s.at()
	s.first = min(max(s.first, at-s.room()+1), max(at, 0), max(len(rows)-1, 0))
	for i := s.first; i < min(s.first+s.room(), len(rows)); i++ {
		before := "  "
		if i == at {
			before = mark
		}
		lines = append(lines, before+rows[i])
	}
	if len(rows) == 0 {
		lines = append(lines, s.cut("  no tool's name has "+terminal.Printable(s.filter)))
	}
	return s.filled(lines, s.note(at), s.keys())
}

// filled adds the lines at the bottom: a note, and the keys.
func (s *screen) filled(lines []string, note, keys string) []string {
	for len(lines) < s.height-2 {
		lines = append(lines, "")
	}
	return append(lines, s.cut(note), s.paint(terminal.Faint, s.cut(keys)))
}

// mark stands before the selected tool.
const mark = "> "

// note is the line above the keys: what was said last, or why the selected tool is not READY.
func (s *screen) note(at int) string {
	switch {
	case s.mode == search:
		return "/" + terminal.Printable(s.filter)
	case s.said != "":
		return s.said
	case at >= 0:
		return statuspage.Why(&s.tools[at], time.Now())
	}
	return ""
}

func (s *screen) keys() string {
	if s.mode == search {
		return "type a part of a name; enter keeps it, esc shows all"
	}
	keys := "q quit  up, down select  l logs  r restart  x stop  s start  / search  o order: " + strings.ToLower(statuspage.Orders()[s.order])
	if s.filter != "" {
		keys = "names with " + terminal.Printable(s.filter) + " (esc shows all)  " + keys
	}
	return keys
}

func (s *screen) logLines() []string {
	lines := []string{s.cut("log of " + terminal.Printable(s.log.of))}
	end := len(s.log.lines) - s.log.back
	for _, l := range s.log.lines[max(end-s.logRoom(), 0):end] {
		lines = append(lines, s.cut(l))
	}
	if len(s.log.lines) == 0 {
		lines = append(lines, s.cut("it has said nothing yet"))
	}
	note := s.said
	if s.log.back > 0 {
		note = fmt.Sprintf("%s behind the newest; end shows it", terminal.Count(s.log.back, "line"))
	}
	return s.filled(lines, note, "q back  up, down scroll  end newest  r restart")
}

// cut returns as much of a text without colours as the screen is wide.
func (s *screen) cut(text string) string { return terminal.Cut(text, s.width) }

func (s *screen) paint(colour, text string) string { return terminal.Paint(s.colours, colour, text) }
