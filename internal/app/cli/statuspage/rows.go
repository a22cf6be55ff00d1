package statuspage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/terminal"
)

// Rows returns the head of the table, and a line for each tool, without the reasons of those that are not
// READY. Why returns these.
func Rows(tools []control.ToolStatus, style Style) (head string, lines []string) {
	p := &page{width: style.Width, colours: style.Colours, now: time.Now()}
	rows := p.rows(tools)
	widths := p.widths(rows)
	for _, row := range rows {
		p.text.Reset()
		p.row(row, widths)
		lines = append(lines, strings.TrimSuffix(p.text.String(), "\n"))
	}
	return lines[0], lines[1:]
}

// Head returns what the Orla is, in a line.
func Head(s *control.Status) string {
	text := fmt.Sprintf("Orla %s, pid %d, up %s, %s in flight", s.Version, s.Pid, terminal.ShortAge(time.Since(s.Started)), terminal.Count(s.InFlight, "call"))
	if s.Sessions != nil {
		text += ", " + terminal.Count(*s.Sessions, "session")
	}
	return text
}

// Orders are the columns by which SortBy can sort.
func Orders() []string { return []string{"NAME", "STATE", "CALLS", "ERRORS", "P99", "MEM", "CPU"} }

// SortBy sorts tools by a column: names and states from the first on, numbers from the largest on.
func SortBy(tools []control.ToolStatus, order string) {
	by := map[string]func(a, b *control.ToolStatus) int{
		"STATE": func(a, b *control.ToolStatus) int {
			// What is not well comes first.
			return cmp.Compare(slices.Index(stateOrder[:], StateOf(b)), slices.Index(stateOrder[:], StateOf(a)))
		},
		"CALLS":  func(a, b *control.ToolStatus) int { return cmp.Compare(b.Calls, a.Calls) },
		"ERRORS": func(a, b *control.ToolStatus) int { return cmp.Compare(b.Errors, a.Errors) },
		"P99":    func(a, b *control.ToolStatus) int { return cmp.Compare(b.P99, a.P99) },
		"MEM":    func(a, b *control.ToolStatus) int { return cmp.Compare(b.Memory, a.Memory) },
		"CPU":    func(a, b *control.ToolStatus) int { return cmp.Compare(b.CPU, a.CPU) },
	}[order]
	slices.SortStableFunc(tools, func(a, b control.ToolStatus) int {
		if by == nil {
			return cmp.Compare(a.Name, b.Name)
		}
		return cmp.Or(by(&a, &b), cmp.Compare(a.Name, b.Name))
	})
}
