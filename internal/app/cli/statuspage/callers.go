package statuspage

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/terminal"
)

// shownCallers is how many callers the page shows.
const shownCallers = 50

// callers writes who may call how many tools, and what they use. Those that use something come first if not all
// are shown.
func (p *page) callers(all []control.CallerStatus) {
	if len(all) == 0 {
		return
	}
	p.printf("\n%s; a use is shown with its limit:\n", terminal.Count(len(all), "caller"))
	shown := all
	if len(all) > shownCallers {
		shown = nil
		for _, busy := range []bool{true, false} {
			for _, c := range all {
				if uses(&c) == busy && len(shown) < shownCallers {
					shown = append(shown, c)
				}
			}
		}
	}
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 4, len(gap), ' ', 0)
	fmt.Fprintln(table, "NAME\tTOOLS\tCALLS\tSESSIONS\tFOLLOWS\tKEPT\tMAY")
	for i := range shown {
		fmt.Fprintln(table, p.callerRow(&shown[i]))
	}
	_ = table.Flush() // to a strings.Builder
	for line := range strings.Lines(text.String()) {
		p.printf("%s\n", terminal.Cut(strings.TrimRight(line, " \n"), p.width))
	}
	if len(all) > len(shown) {
		p.printf("and %d more; orla status --json shows all\n", len(all)-len(shown))
	}
}

// uses reports whether a caller uses something.
func uses(c *control.CallerStatus) bool {
	return c.InFlight+c.Sessions+c.Subscriptions > 0 || c.KeptBytes > 0
}

// callerRow is the line of one caller, with tabs.
func (p *page) callerRow(c *control.CallerStatus) string {
	limits := c.Limits
	tools := "-"
	if c.Tools != nil {
		tools = fmt.Sprint(*c.Tools)
	}
	name := terminal.Printable(c.Name)
	of := func(used, limit int) string {
		switch {
		case c.Group != "" && limit == 0:
			return "-"
		case c.Group != "":
			return fmt.Sprintf("-/%d", limit)
		case limit == 0:
			return fmt.Sprint(used)
		}
		return fmt.Sprintf("%d/%d", used, limit)
	}
	kept := terminal.ShortSize(c.KeptBytes)
	if limits.KeptMemory > 0 {
		kept += "/" + terminal.ShortSize(limits.KeptMemory)
	}
	if c.Group != "" {
		name = "group " + terminal.Printable(c.Group)
	}
	const others = 64 // characters of the other columns
	return strings.Join([]string{
		terminal.Cut(name, max(p.width-others, 12)), tools, of(c.InFlight, limits.CallsInFlight), of(c.Sessions, limits.Sessions), of(c.Subscriptions, limits.Subscriptions), kept, may(c),
	}, "\t")
}

// may says what the entry of a caller allows.
func may(c *control.CallerStatus) string {
	var all []string
	for _, one := range []struct {
		what  string
		names []string
	}{{"roles", c.Roles}, {"toolsets", c.Toolsets}, {"acts for", c.MaySpeakFor}} {
		if len(one.names) > 0 {
			all = append(all, one.what+" "+terminal.Printable(strings.Join(one.names, ", ")))
		}
	}
	if n := c.Limits.CallsPerMinute; n > 0 {
		all = append(all, fmt.Sprintf("%d calls a minute", n))
	}
	return strings.Join(all, "; ")
}
