package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/cli/running"
	"github.com/orla-project/orla/internal/app/cli/usage"
	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/oneshot"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/manifest"
)

// newCan explains what the rules say of a call.
func newCan(flags *config.Flags, std terminal.Streams) *cobra.Command {
	var caller rules.Caller
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "can CALLER TOOL",
		Short: "Explain who may call a tool, rule by rule",
		Long: "Say whether a caller may call a tool, and what each rule says of it: governance\n" +
			"documents in the folders of tools, and callers in orla.yaml, as the files are now: a\n" +
			"running Orla decides by the orla.yaml of its last reload. Nothing is called or\n" +
			"started. The exit code is 1 when the call would be denied or needs an approval.\n\n" +
			"A caller is the name of a token, oauth: and the subject of an access token, or stdio,\n" +
			"cli or anonymous.",
		Example: "  orla can ci deploy\n  orla can ann fetch --group staff\n  orla can ci deploy --agent release-bot --json",
		Args:    usage.Words(2, "wants a caller and the name of a tool"),
		RunE: func(cmd *cobra.Command, words []string) error {
			cfg, l, err := flags.LoadTools(cmd.Flags())
			if err != nil {
				return err
			}
			caller.Name = words[0]
			said, err := oneshot.Can(cfg, l.Home, caller, words[1])
			if missing, ok := errors.AsType[*oneshot.NoToolError](err); ok {
				return running.NoTool(words[1], missing.Found, missing.Listed, nil)
			}
			if err != nil {
				return err
			}
			if !isKnown(cfg, caller.Name) {
				fmt.Fprintf(std.Err, "orla: warning: no token and no entry in callers has the name %s\n", terminal.Printable(caller.Name))
			}
			return printPermission(said, asJSON, std)
		},
	}
	cmd.Flags().StringArrayVar(&caller.Groups, "group", nil, "a `GROUP` of the caller; may be repeated")
	cmd.Flags().StringVar(&caller.Agent, "agent", "", "the `AGENT` that the caller acts for")
	cmd.Flags().StringVar(&caller.Task, "task", "", "the `TASK` that the call is a part of")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// isKnown reports whether a caller can be one that calls this Orla, as far as its configuration says.
func isKnown(cfg *config.Loaded, name string) bool {
	return slices.Contains(config.OwnCallers, name) || strings.HasPrefix(name, "oauth:") ||
		slices.ContainsFunc(cfg.Auth.Tokens, func(t config.TokenConfig) bool { return t.Name == name }) ||
		slices.ContainsFunc(cfg.Callers, func(c config.CallerConfig) bool { return c.Name == name })
}

func printPermission(said oneshot.Permission, asJSON bool, std terminal.Streams) error {
	var denied error
	if said.Verdict != manifest.Allow {
		denied = errors.New("") // printed already
	}
	if asJSON {
		return errors.Join(terminal.WriteJSON(std.Out, said), denied)
	}
	says := map[manifest.Verdict]string{
		manifest.Allow: "may call", manifest.Deny: "may not call", manifest.ApprovalRequired: "needs an approval to call",
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s %s", said.Caller, says[said.Verdict], said.Tool)
	if said.Why != "" {
		text.WriteString(": " + said.Why)
	}
	fmt.Fprintf(&text, "\n  what a call does: %s\n", strings.Join(said.Classes, ", "))
	for _, p := range said.Problems {
		fmt.Fprintf(&text, "  %v\n", p.Err)
	}
	for _, s := range said.Steps {
		verdict := string(s.Verdict)
		if !s.Applies {
			verdict = "not applied"
		}
		if s.Why != "" {
			verdict += ", " + s.Why
		}
		fmt.Fprintf(&text, "  %s: %s\n", s.Rule, verdict)
	}
	return errors.Join(terminal.WriteLines(std.Out, text.String()), denied)
}
