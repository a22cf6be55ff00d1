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
	"github.com/orla-project/orla/internal/file/yamldoc"
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
				fmt.Fprintf(std.Err, "orla: warning: no token and no entry in callers has the name %s%s\n", terminal.Printable(caller.Name), meant(cfg, caller.Name))
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

// callersOf returns the names of those who may call this Orla, as far as its configuration says.
func callersOf(cfg *config.Loaded) []string {
	names := slices.Clone(config.OwnCallers)
	for _, t := range cfg.Auth.Tokens {
		names = append(names, t.Name)
	}
	for _, c := range cfg.Callers {
		names = append(names, c.Name)
	}
	return names
}

// isKnown reports whether a caller can be one that calls this Orla.
func isKnown(cfg *config.Loaded, name string) bool {
	return strings.HasPrefix(name, "oauth:") || slices.Contains(callersOf(cfg), name)
}

// meant says for the end of a message which caller a wrong name may be meant for, or "".
func meant(cfg *config.Loaded, name string) string {
	if near := yamldoc.Nearest(name, callersOf(cfg)); near != "" {
		return "; did you mean " + terminal.Printable(near) + "?"
	}
	return ""
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
		fmt.Fprintf(&text, "  %s\n", strings.ReplaceAll(p.Err.Error(), "\n", "\n  "))
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
