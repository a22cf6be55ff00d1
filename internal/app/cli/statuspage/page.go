// Package statuspage writes the status of a running Orla for people.
package statuspage

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/terminal"
)

// Style is how a page looks.
type Style struct {
	Width   int // in characters
	Colours bool
}

// Status returns the page of an Orla.
func Status(s *control.Status, style Style) string {
	p := &page{width: style.Width, colours: style.Colours, now: time.Now()}
	p.status(s)
	return p.text.String()
}

// Tool returns the page of one tool.
func Tool(t *control.ToolStatus, style Style) string {
	p := &page{width: style.Width, colours: style.Colours, now: time.Now()}
	p.tool(t)
	return p.text.String()
}

// page is text for people.
type page struct {
	text    strings.Builder
	width   int
	colours bool
	now     time.Time
}

func (p *page) printf(format string, args ...any) { fmt.Fprintf(&p.text, format, args...) }

// status writes the status of an Orla.
func (p *page) status(s *control.Status) {
	p.printf("Orla %s serves %s at %s\n", s.Version, terminal.Printable(s.ToolsDir), terminal.Printable(s.URL))
	facts := []string{fmt.Sprintf("pid %d, up %s, %s in flight", s.Pid, terminal.ShortAge(p.now.Sub(s.Started)), terminal.Count(s.InFlight, "call"))}
	if s.Sessions != nil {
		facts = append(facts, terminal.Count(*s.Sessions, "session"))
	}
	p.printf("%s, log to %s\n", strings.Join(facts, ", "), terminal.Printable(s.Log))
	if s.Denying {
		p.printf("%s: a governance document cannot be read or names nothing, and the problems below name it\n", p.paint(terminal.Red, "every call is denied"))
	}
	if s.Waiting > 0 {
		p.printf("%s; orla approvals list shows them\n", p.paint(terminal.Yellow, terminal.Count(s.Waiting, "approval")+" to decide about"))
	}
	for _, kept := range s.Arguments {
		p.printf("%s for %s more, asked for by %s; the console shows them\n", p.paint(terminal.Yellow, "arguments of "+terminal.Printable(kept.Tool)+" are kept"), terminal.ShortAge(kept.Until.Sub(p.now)), terminal.Printable(kept.By))
	}
	if len(s.Tools) > 0 {
		p.printf("%s\n\n", Summary(s.Tools))
		p.table(s.Tools)
	} else {
		p.printf("no tools\n")
	}
	p.callers(s.Callers)
	count := 0
	for _, problem := range s.Problems {
		count += len(problem.Messages)
	}
	if count > 0 {
		p.printf("\n%s; orla validate --tools-dir %s shows those of files too:\n", terminal.Count(count, "problem"), terminal.Printable(s.ToolsDir))
	}
	for _, problem := range s.Problems {
		for _, message := range problem.Messages {
			if !strings.HasPrefix(message, problem.Path) {
				message = problem.Path + ": " + message
			}
			p.printf("  %s: %s\n", p.paint(severityColours[problem.Severity], problem.Severity), terminal.Printable(message))
		}
	}
}

// Summary counts the tools by what they are.
func Summary(tools []control.ToolStatus) string {
	states := map[string]int{}
	for i := range tools {
		states[StateOf(&tools[i])]++
	}
	var each []string
	count := func(state string) {
		if states[state] > 0 {
			each = append(each, fmt.Sprintf("%d %s", states[state], state))
		}
		delete(states, state)
	}
	for _, state := range stateOrder {
		count(state)
	}
	for _, kind := range slices.Sorted(maps.Keys(states)) {
		count(kind)
	}
	return terminal.Count(len(tools), "tool") + ": " + strings.Join(each, ", ")
}

// stateOrder is the order in which states are counted: what is well first.
var stateOrder = [...]string{"READY", "STARTING", "RELOADING", "CREATED", "CRASHED", "STOPPING", "STOPPED", "simple"}

// column is one column of the table.
type column struct {
	head  string
	right bool
	cell  func(t *control.ToolStatus, now time.Time) string
}

var columns = [...]column{
	{"NAME", false, func(t *control.ToolStatus, _ time.Time) string { return terminal.Printable(t.Name) }},
	{"STATE", false, func(t *control.ToolStatus, _ time.Time) string { return StateOf(t) }},
	{"FOR", true, func(t *control.ToolStatus, now time.Time) string {
		if t.State == "" {
			return "-"
		}
		return terminal.ShortAge(now.Sub(t.Since))
	}},
	{"PID", true, func(t *control.ToolStatus, _ time.Time) string {
		if t.Pid == 0 {
			return "-"
		}
		return fmt.Sprint(t.Pid)
	}},
	{"RESTARTS", true, func(t *control.ToolStatus, _ time.Time) string {
		if t.State == "" {
			return "-"
		}
		return terminal.ShortCount(int64(t.Restarts))
	}},
	{"CALLS", true, func(t *control.ToolStatus, _ time.Time) string { return terminal.ShortCount(t.Calls) }},
	{"ERRORS", true, func(t *control.ToolStatus, _ time.Time) string { return terminal.ShortCount(t.Errors) }},
	{"P50", true, func(t *control.ToolStatus, _ time.Time) string { return terminal.ShortTook(t.P50) }},
	{"P99", true, func(t *control.ToolStatus, _ time.Time) string { return terminal.ShortTook(t.P99) }},
	{"MEM", true, func(t *control.ToolStatus, _ time.Time) string { return terminal.ShortSize(t.Memory) }},
	{"CPU", true, func(t *control.ToolStatus, _ time.Time) string {
		if t.Processes == 0 {
			return "-"
		}
		return terminal.ShortCPU(t.CPU)
	}},
}

// StateOf returns what stands below STATE: of a simple tool, what it is.
func StateOf(t *control.ToolStatus) string {
	if t.State == "" {
		return t.Kind
	}
	return t.State
}

// table writes a line for each tool. A capsule that is not READY has the reason on the next line.
func (p *page) table(tools []control.ToolStatus) {
	rows := p.rows(tools)
	widths := p.widths(rows)
	p.row(rows[0], widths)
	for i, row := range rows[1:] {
		p.row(row, widths)
		if why := Why(&tools[i], p.now); why != "" {
			p.printf("  %s\n", terminal.Cut(why, p.width-len("  ")))
		}
	}
}

// rows returns the cells of the table. The first row is its head.
func (p *page) rows(tools []control.ToolStatus) [][]string {
	rows := [][]string{make([]string, len(columns))}
	for j, c := range columns {
		rows[0][j] = c.head
	}
	for i := range tools {
		row := make([]string, len(columns))
		for j, c := range columns {
			row[j] = c.cell(&tools[i], p.now)
		}
		rows = append(rows, row)
	}
	return rows
}

// gap separates two columns.
const gap = "  "

// widths returns the widths of the columns. The names get what the other columns leave.
func (p *page) widths(rows [][]string) []int {
	const leastName = 12
	widths := make([]int, len(columns))
	room := p.width
	for j := range columns {
		for _, row := range rows {
			widths[j] = max(widths[j], utf8.RuneCountInString(row[j]))
		}
		if j > 0 {
			room -= len(gap) + widths[j]
		}
	}
	widths[0] = min(widths[0], max(room, leastName))
	return widths
}

func (p *page) row(cells []string, widths []int) {
	line := make([]string, len(cells))
	for j, c := range columns {
		cell := terminal.Cut(cells[j], widths[j])
		pad := strings.Repeat(" ", widths[j]-utf8.RuneCountInString(cell))
		if c.head == "STATE" {
			cell = p.paint(stateColours[cells[j]], cell)
		}
		if c.right {
			line[j] = pad + cell
		} else {
			line[j] = cell + pad
		}
	}
	p.printf("%s\n", strings.TrimRight(strings.Join(line, gap), " "))
}

// Why returns the reason why a capsule is not READY, for an operator; "" if it is, and for other tools.
func Why(t *control.ToolStatus, now time.Time) string {
	switch {
	case t.State == "READY" && t.NeedLogin:
		return "its login: " + terminal.Printable(t.Login)
	case t.State == "", t.State == "READY":
		return ""
	}
	why := terminal.Printable(t.Reason)
	if t.Held {
		why = "stopped by an operator; orla start " + terminal.Printable(t.Name) + " starts it"
	}
	if !t.Next.IsZero() {
		if t.Failures > 1 {
			why += fmt.Sprintf("; failure %d in a row", t.Failures)
		}
		why += "; starts again in " + terminal.ShortAge(t.Next.Sub(now).Round(time.Second))
	}
	return why
}

// tool writes the status of one tool.
func (p *page) tool(t *control.ToolStatus) {
	head := terminal.Printable(t.Name)
	if t.Version != "" {
		head += " " + terminal.Printable(t.Version)
	}
	p.printf("%s: %s\n", head, p.paint(stateColours[t.State], StateOf(t)))
	fact := func(name, value string) {
		if value != "" && value != "-" {
			p.printf("  %-12s %s\n", name, value)
		}
	}
	fact("source", terminal.Printable(t.Source))
	if t.State != "" {
		fact("since", terminal.Moment(t.Since, p.now))
		fact("reason", terminal.Printable(t.Reason))
		if t.Held {
			fact("", "stopped by an operator, until orla start or orla restart")
		}
		fact("next start", p.ahead(t.Next))
		if t.Pid != 0 {
			fact("pid", fmt.Sprint(t.Pid))
		}
		fact("place", terminal.Printable(t.Place))
		if t.Pid != 0 || t.Place != "" {
			fact("started", terminal.Moment(t.Started, p.now))
		}
		fact("last exit", terminal.Printable(t.LastExit))
		fact("restarts", fmt.Sprint(t.Restarts))
		if t.Failures > 0 {
			fact("failures", fmt.Sprintf("%d in a row", t.Failures))
		}
	}
	calls := fmt.Sprintf("%d, %d failed", t.Calls, t.Errors)
	if t.InFlight+t.Waiting > 0 {
		calls += fmt.Sprintf(", %d in flight, %d waiting", t.InFlight, t.Waiting)
	}
	fact("calls", calls)
	if t.P50 > 0 {
		fact("latency", fmt.Sprintf("p50 %s, p99 %s", terminal.ShortTook(t.P50), terminal.ShortTook(t.P99)))
	}
	if t.Processes > 0 {
		fact("memory", fmt.Sprintf("%s, processes: %d", terminal.ShortSize(t.Memory), t.Processes))
		fact("cpu", terminal.ShortCPU(t.CPU))
	}
	fact("login", terminal.Printable(t.Login))
	fact("isolation", t.Isolation)
	fact("limits", terminal.Printable(t.Limits))
	for _, problem := range t.Problems {
		fact("problem", terminal.Printable(problem))
	}
	if len(t.Stderr) > 0 {
		p.printf("  its last lines on stderr:\n")
	}
	for _, line := range t.Stderr {
		p.printf("    %s\n", terminal.Printable(line))
	}
}

func (p *page) ahead(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.Local().Format(time.DateTime) + ", in " + terminal.ShortAge(at.Sub(p.now).Round(time.Second))
}

var (
	stateColours = map[string]string{
		"READY": terminal.Green, "CRASHED": terminal.Red, "STARTING": terminal.Yellow, "RELOADING": terminal.Yellow, "STOPPING": terminal.Yellow, "STOPPED": terminal.Yellow, "CREATED": terminal.Faint,
	}
	severityColours = map[string]string{"error": terminal.Red, "warning": terminal.Yellow}
)

// paint returns a text in a colour, if colours are used.
func (p *page) paint(colour, text string) string { return terminal.Paint(p.colours, colour, text) }
