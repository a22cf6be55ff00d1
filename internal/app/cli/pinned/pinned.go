// Package pinned has the commands about pinned definitions: orla pins list, diff and approve. They ask a running
// Orla.
package pinned

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/cli/running"
	"github.com/orla-project/orla/internal/app/cli/usage"
	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/doctor"
	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/manifest"
)

// New returns the command pins.
func New(flags *config.Flags, std terminal.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pins",
		Short: "Show and accept changed definitions of tools",
		Long: "Show and accept definitions of tools and prompts that capsules and MCP servers list.\n" +
			"Orla accepts the first list of each by itself. What differs later is reported (pin: warn)\n" +
			"or not served (pin: hold) until it is accepted here. docs/GOVERNANCE.md has more.",
	}
	cmd.AddCommand(newList(flags, std), newDiff(flags, std), newApprove(flags, std))
	return cmd
}

func newList(flags *config.Flags, std terminal.Streams) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List which definitions are accepted",
		Long:    "List the tools and prompts of each provider whose definitions are pinned, whether each is\naccepted, since when and by whom, and what to look at. That is advice: nothing is refused for it.",
		Example: "  orla pins list\n  orla pins list --json | jq '.providers[].items[] | select(.state != \"accepted\")'",
		Args:    cobra.NoArgs,
		RunE: running.Show(flags, func(cmd *cobra.Command, client *control.Client, _ []string) error {
			list, err := client.Pins(cmd.Context())
			if err != nil {
				return running.Explain(err)
			}
			if asJSON {
				return terminal.WriteJSON(std.Out, list)
			}
			return printList(std.Out, list)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, as the control API has it")
	return cmd
}

func printList(out io.Writer, list *control.PinList) error {
	var text strings.Builder
	if len(list.Providers) == 0 {
		text.WriteString("no definitions are pinned: no capsule or MCP server lists tools, or pin is off\n")
	}
	for _, p := range list.Providers {
		fmt.Fprintf(&text, "%s (pin: %s)\n", p.Name, p.Pin)
		if p.Trouble != "" {
			text.WriteString("  error: " + p.Trouble + "\n")
		}
		for _, i := range p.Items {
			fmt.Fprintf(&text, "  %-8s %s%s%s\n", i.State, i.Name, ofKind(i), since(i))
			text.WriteString(findings(i))
		}
	}
	return terminal.WriteLines(out, text.String())
}

// ofKind marks a prompt.
func ofKind(i control.PinnedItem) string {
	if i.Kind == "tool" {
		return ""
	}
	return " (" + i.Kind + ")"
}

// since says when and by whom a definition was accepted.
func since(i control.PinnedItem) string {
	if i.Accepted.IsZero() {
		return ""
	}
	by := "by " + i.By
	if i.By == "first list" {
		by = "with the first list"
	}
	return fmt.Sprintf(", accepted %s %s", i.Accepted.Local().Format("2006-01-02 15:04"), by)
}

// findings are the lines about what to look at.
func findings(i control.PinnedItem) string {
	var text strings.Builder
	for _, f := range i.Findings {
		fmt.Fprintf(&text, "    look at %s: %s\n", f.Path, f.Text)
	}
	return text.String()
}

func newDiff(flags *config.Flags, std terminal.Streams) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "diff NAME",
		Short:   "Show how definitions differ from the accepted ones",
		Long:    "Show how the definitions that a provider lists now differ from the accepted ones. NAME is a\nprovider, or one of its tools or prompts. The exit code is 1 if something differs.",
		Example: "  orla pins diff github\n  orla pins diff github--create-issue",
		Args:    oneName,
		RunE: running.Show(flags, func(cmd *cobra.Command, client *control.Client, args []string) error {
			p, err := client.Pinned(cmd.Context(), args[0])
			if err != nil {
				return running.Explain(err)
			}
			if asJSON {
				err = terminal.WriteJSON(std.Out, p)
			} else {
				err = printDiff(std.Out, args[0], p)
			}
			if err == nil && (len(p.Items) > 0 || p.Trouble != "") {
				err = errors.New("") // printed already
			}
			return err
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, as the control API has it")
	return cmd
}

// oneName requires a name.
var oneName = usage.Words(1, "wants the name of a server, or of one of its tools or prompts")

func printDiff(out io.Writer, name string, p *control.PinnedProvider) error {
	var text strings.Builder
	if p.Trouble != "" {
		text.WriteString("error: " + p.Trouble + "\n")
	}
	for _, i := range p.Items {
		text.WriteString(changed(i))
	}
	if len(p.Items) == 0 && p.Trouble == "" {
		text.WriteString("all that is listed is accepted\n")
	} else {
		fmt.Fprintf(&text, "\nto accept this: orla pins approve %s --digest %s\n", doctor.Quote(name), p.Digest)
	}
	return terminal.WriteLines(out, text.String())
}

// changed is how one definition differs.
func changed(i control.PinnedItem) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s%s: %s%s\n", i.Name, ofKind(i), i.State, since(i))
	if i.Was != "" && i.Before == nil {
		text.WriteString("  the accepted definition could not be kept, since it was too large or is not all text; all of the present one is shown\n")
	}
	for _, c := range i.Changes {
		text.WriteString("  " + c.Path + "\n")
		if c.Before != nil {
			fmt.Fprintf(&text, "    - %s\n", c.Before)
		}
		if c.After != nil {
			fmt.Fprintf(&text, "    + %s\n", c.After)
		}
		text.WriteString(whereLongTextsDiffer(c.Before, c.After))
	}
	if i.More > 0 {
		are := map[bool]string{true: "is", false: "are"}[i.More == 1]
		fmt.Fprintf(&text, "  and %s that %s not shown; --json has all of the definition\n", terminal.Count(i.More, "more difference"), are)
	}
	text.WriteString(findings(i))
	if i.Digest != "" {
		text.WriteString("  digest " + i.Digest + "\n")
	}
	return text.String()
}

// long is from how many bytes on the place is shown where two texts differ first, and excerpt how much of them.
const long, excerpt = 300, 120

// whereLongTextsDiffer is a line about the place where two long texts differ first: a change is easily overlooked in
// one. It is "" for others.
func whereLongTextsDiffer(before, after json.RawMessage) string {
	var was, is string
	if len(before) < long || len(after) < long || json.Unmarshal(before, &was) != nil || json.Unmarshal(after, &is) != nil {
		return ""
	}
	x, y := []rune(was), []rune(is)
	n := 0
	for n < len(x) && n < len(y) && x[n] == y[n] {
		n++
	}
	show := func(text []rune) string { return string(rawjson.Quote(string(text[n:min(n+excerpt, len(text))]))) }
	return fmt.Sprintf("    they differ from character %d on:\n      - %s\n      + %s\n", n+1, show(x), show(y))
}

func newApprove(flags *config.Flags, std terminal.Streams) *cobra.Command {
	var asJSON bool
	var asked control.PinApproval
	cmd := &cobra.Command{
		Use:   "approve NAME",
		Short: "Accept the definitions that are listed now",
		Long: "Accept the definitions that a provider lists now, and print what was accepted. NAME is a\n" +
			"provider, or one of its tools or prompts. With the digest that orla pins diff prints,\n" +
			"nothing is accepted if something has changed since then.",
		Example: "  orla pins approve github\n  orla pins approve github--create-issue --digest sha256:…",
		Args:    oneName,
		RunE: running.Change(flags, func(cmd *cobra.Command, client *control.Client, args []string) error {
			p, err := client.ApprovePins(cmd.Context(), args[0], asked)
			if err != nil {
				return running.Explain(err)
			}
			if asJSON {
				return terminal.WriteJSON(std.Out, p)
			}
			return printAccepted(std.Out, p)
		}),
	}
	cmd.Flags().StringVar(&asked.Digest, "digest", "", "the `DIGEST` of what you have looked at, as orla pins diff prints it")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, as the control API has it")
	return cmd
}

func printAccepted(out io.Writer, p *control.PinnedProvider) error {
	var text strings.Builder
	if len(p.Items) == 0 {
		text.WriteString("there was nothing to accept: all that is listed is accepted\n")
	}
	for _, i := range p.Items {
		fmt.Fprintf(&text, "accepted %s%s (%s), %s\n", i.Name, ofKind(i), i.State, i.Digest)
		text.WriteString(findings(i))
	}
	return terminal.WriteLines(out, text.String())
}

// Held returns why a tool that is not listed is not served, if that is because nobody has accepted its definition; nil
// otherwise.
func Held(ctx context.Context, client *control.Client, tool string) error {
	p, _ := client.Pinned(ctx, tool) // nil if it has no pins, or cannot be asked
	if p == nil || p.Pin != string(manifest.PinHold) || len(p.Items) != 1 {
		return nil
	}
	why := map[string]string{
		"changed": "its definition has changed since it was accepted",
		"new":     "it is new since the list of " + p.Name + " was accepted",
		"unknown": "what was accepted of " + p.Name + " cannot be read or stored",
	}[p.Items[0].State]
	return &exit.Error{Code: exit.Failed, Err: fmt.Errorf("%s is not served: %s", tool, why), Hint: "orla pins diff " + tool + " shows it, and orla pins approve " + tool + " accepts it"}
}
