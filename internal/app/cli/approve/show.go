package approve

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/orla-project/orla/internal/app/cli/running"
	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/call/approvals"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/manifest/resource"
)

// print prints a list in a format; "" for people.
func (c *commands) print(ctx context.Context, client *control.Client, q control.ApprovalQuery, format string) error {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	list, err := client.Approvals(bounded, q)
	if err != nil {
		return running.Explain(err)
	}
	switch format {
	case "json":
		return terminal.WriteJSON(c.std.Out, list)
	case "yaml":
		for i, a := range list {
			full, err := c.read(ctx, client, a.ID)
			if err != nil {
				return err
			}
			text, err := toolApproval(full)
			if err != nil {
				return err
			}
			if i > 0 {
				text = "---\n" + text
			}
			if _, err := fmt.Fprint(c.std.Out, text); err != nil {
				return err
			}
		}
		return nil
	}
	if len(list) == 0 {
		none := "no call waits for an approval"
		if q.Phase == "" {
			none = "no call has needed an approval"
		}
		_, err := fmt.Fprintln(c.std.Out, none)
		return err
	}
	table := tabwriter.NewWriter(c.std.Out, 0, 4, 2, ' ', 0)
	row := func(cells ...string) {
		if q.Phase != "" { // nobody has decided about these
			cells = cells[:len(cells)-1]
		}
		fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	row("ID", "PHASE", "LEFT", "TOOL", "CALLER", "CLASS", "DECIDED BY")
	for _, a := range list {
		row(terminal.Printable(a.ID), phaseOf(&a), until(&a, time.Now()), terminal.Printable(a.Tool), terminal.Printable(callerOf(&a)),
			cmp.Or(terminal.Printable(a.Class), "-"), cmp.Or(terminal.Printable(a.By), "-"))
	}
	return table.Flush()
}

// watch prints records as they change, a line each.
func (c *commands) watch(ctx context.Context, client *control.Client, q control.ApprovalQuery, asJSON bool) error {
	for line, err := range client.FollowApprovals(ctx, q) {
		if err != nil {
			return running.Explain(err)
		}
		if asJSON {
			if terminal.IsTerminal(c.std.Out) {
				line = terminal.EscapedJSON(line)
			}
			if _, err := c.std.Out.Write(append(line, '\n')); err != nil {
				return err
			}
			continue
		}
		var a control.Approval
		if err := json.Unmarshal(line, &a); err != nil {
			return fmt.Errorf("talk to Orla: %w", err)
		}
		p := &page{now: time.Now()}
		if _, err := fmt.Fprintf(c.std.Out, "%s  %s  %s\n", p.now.Format(time.TimeOnly), terminal.Printable(a.ID), p.sentence(&a)); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// page is text for people.
type page struct {
	text    strings.Builder
	colours bool
	now     time.Time
}

func (p *page) printf(format string, args ...any) { fmt.Fprintf(&p.text, format, args...) }

func (p *page) paint(colour, text string) string { return terminal.Paint(p.colours, colour, text) }

// phaseOf is the phase of a record for people, to whom a call that ran is not one that may run.
func phaseOf(a *control.Approval) string {
	if !a.Used.IsZero() {
		return "Used"
	}
	return terminal.Printable(a.Phase)
}

// until is how much of the time of a record is left; - if that does not matter any more.
func until(a *control.Approval, now time.Time) string {
	if !a.Used.IsZero() || a.Phase == string(approvals.Expired) || a.Expires.Before(now) {
		return "-"
	}
	return terminal.ShortAge(a.Expires.Sub(now).Round(time.Second))
}

func callerOf(a *control.Approval) string {
	if a.Agent == "" {
		return a.Caller
	}
	return a.Caller + " for " + a.Agent
}

// sentence says how far a record is.
func (p *page) sentence(a *control.Approval) string {
	what := terminal.Printable(a.Tool + " by " + callerOf(a))
	if a.Class != "" {
		what += " (" + terminal.Printable(a.Class) + ")"
	}
	reason := ""
	if a.Reason != "" {
		reason = ": " + terminal.Printable(a.Reason)
	}
	by, left := terminal.Printable(a.By), terminal.ShortAge(a.Expires.Sub(p.now).Round(time.Second))
	switch {
	case !a.Used.IsZero():
		return what + " went on, as " + by + " had approved"
	case a.Phase == string(approvals.Pending):
		return what + " waits for " + left
	case a.Phase == string(approvals.Approved):
		return what + " is approved by " + by + " for " + left
	case a.Phase == string(approvals.Denied):
		return what + " is denied by " + by + reason
	}
	return what + " has expired" + reason
}

// approval writes a record with all that somebody needs to decide.
func (p *page) approval(a *control.Approval) {
	p.printf("%s: %s\n", terminal.Printable(a.ID), p.sentence(a))
	fact := func(name, value string) {
		if value != "" {
			p.printf("  %-13s %s\n", name, value)
		}
	}
	fact("tool", terminal.Printable(a.Tool))
	if len(a.Runs) > 1 {
		fact("known as", terminal.Printable(strings.Join(a.Runs, ", ")))
	}
	fact("caller", terminal.Printable(a.Caller))
	fact("acts for", terminal.Printable(a.Agent))
	fact("task", terminal.Printable(a.Task))
	fact("what it does", terminal.Printable(a.Class))
	fact("rule", terminal.Printable(a.Rule))
	fact("why", terminal.Printable(a.Why))
	fact("may decide", terminal.Printable(strings.Join(a.Approvers, ", ")))
	fact("asked", terminal.Moment(a.Created, p.now))
	if u := until(a, p.now); u != "-" {
		fact("until", a.Expires.Local().Format(time.DateTime)+", in "+u)
	}
	if a.By != "" {
		fact("decided", terminal.Moment(a.Decided, p.now)+", by "+terminal.Printable(a.By))
	}
	fact("reason", terminal.Printable(a.Reason))
	fact("went on", terminal.Moment(a.Used, p.now))
	p.printf("  arguments, %s:\n%s", terminal.Count(a.Size, "byte"), indentedJSON(a.Arguments, "    "))
	if a.Input != nil {
		p.printf("  input that the client adds:\n%s", indentedJSON(a.Input, "    "))
	}
	if a.Last.ID == "" {
		p.printf("  no call of this tool by this caller was approved before\n")
		return
	}
	p.printf("  against the last approved call, %s, by %s, %s:\n", terminal.Printable(a.Last.ID), terminal.Printable(a.Last.By), terminal.Moment(a.Last.Decided, p.now))
	if a.Last.Defined != a.Defined {
		p.printf("    %s\n", p.paint(terminal.Yellow, "the tool has another description, other schemas or other hints than then"))
	}
	if len(a.Last.Changes) == 0 {
		p.printf("    the arguments are the same\n")
	}
	for _, c := range a.Last.Changes {
		path := terminal.Printable(cmp.Or(c.Path, "all arguments"))
		switch {
		case c.Was == nil:
			p.printf("    %s\n", p.paint(terminal.Green, "+ "+path+": "+terminal.Printable(string(c.Is))))
		case c.Is == nil:
			p.printf("    %s\n", p.paint(terminal.Red, "- "+path+": "+terminal.Printable(string(c.Was))))
		default:
			p.printf("    %s\n", p.paint(terminal.Yellow, "~ "+path+": "+terminal.Printable(string(c.Was))+" -> "+terminal.Printable(string(c.Is))))
		}
	}
	if a.Last.More > 0 {
		p.printf("    and %s more\n", terminal.Count(a.Last.More, "difference"))
	}
}

// indentedJSON returns a value in lines that begin with indent. Nothing in it can move the cursor or hide text.
func indentedJSON(raw json.RawMessage, indent string) string {
	var out bytes.Buffer
	if err := json.Indent(&out, raw, indent, "  "); err != nil { // it is in an answer, and so valid
		return indent + terminal.Printable(string(raw)) + "\n"
	}
	return indent + terminal.PrintableLines(out.String()) + "\n"
}

// pairOf is a key of a resource and its value.
type pairOf struct {
	key   string
	value any
}

// yaml returns the line of a key. JSON is YAML.
func (k pairOf) yaml() (string, error) {
	switch v := k.value.(type) {
	case string:
		if v == "" {
			return "", nil
		}
	case time.Time:
		if v.IsZero() {
			return "", nil
		}
	}
	line, err := rawjson.Line(k.value)
	return "  " + k.key + ": " + string(terminal.EscapedJSON(line)), err
}

// toolApproval writes a record as a resource (SPEC-TOOLS 8.2).
func toolApproval(a *control.Approval) (string, error) {
	decision := map[string]string{string(approvals.Approved): "approve", string(approvals.Denied): "deny"}[a.Phase]
	var text strings.Builder
	name, err := pairOf{"name", a.ID}.yaml()
	if err != nil {
		return "", err
	}
	text.WriteString("apiVersion: " + resource.APIVersion + "\nkind: ToolApproval\nmetadata:\n" + name)
	for _, section := range []struct {
		name string
		keys []pairOf
	}{
		{"spec", []pairOf{
			{"task_ref", a.Task},
			{"tool", a.Tool},
			{"operation_class", a.Class},
			{"agent", cmp.Or(a.Agent, a.Caller)},
			{"input", a.Arguments},
			{"reason", a.Why},
			{"ttl", a.TTL},
		}},
		{"status", []pairOf{
			{"phase", a.Phase},
			{"decision", decision},
			{"decided_by", a.By},
			{"decided_at", a.Decided},
			{"expires_at", a.Expires},
		}},
	} {
		text.WriteString(section.name + ":\n")
		for _, k := range section.keys {
			line, err := k.yaml()
			if err != nil {
				return "", err
			}
			text.WriteString(line)
		}
	}
	return text.String(), nil
}
