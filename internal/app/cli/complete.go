package cli

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/cli/running"
	"github.com/orla-project/orla/internal/app/cli/statuspage"
	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/discovery"
	"github.com/orla-project/orla/internal/app/terminal"
)

// completeTimeout bounds a completion.
const completeTimeout = 400 * time.Millisecond

// completion returns the words that a shell offers. It ignores errors, since the shell shows none.
type completion = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective)

// completeManifests completes up to most names of manifests, 0 for any number, for which fits reports
// true; nil for all.
func completeManifests(flags *config.Flags, most int, fits func(control.ToolStatus) bool) completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if most > 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
		defer cancel()
		cmd.SetContext(ctx)
		client, err := running.Any(flags, cmd)
		if err != nil {
			return completeFolder(flags, cmd), cobra.ShellCompDirectiveNoFileComp
		}
		status, err := client.Status(ctx)
		if err != nil {
			return completeFolder(flags, cmd), cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, t := range status.Tools {
			if (fits == nil || fits(t)) && !slices.Contains(args, t.Name) {
				names = append(names, t.Name+"\t"+statuspage.StateOf(&t))
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeTools completes the name of the tool to call.
func completeTools(flags *config.Flags) completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
		defer cancel()
		cfg, l, err := running.Load(flags, cmd)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		if client, err := running.Own(ctx, cfg, l); err == nil {
			if tools, err := client.Tools(ctx); err == nil {
				var names []string
				for _, t := range tools {
					names = append(names, t.Name+"\t"+terminal.FirstLine(t.Description))
				}
				return names, cobra.ShellCompDirectiveNoFileComp
			}
		}
		return completeFolder(flags, cmd), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFolder returns the names of the tools in the folder of tools.
func completeFolder(flags *config.Flags, cmd *cobra.Command) []string {
	cfg, l, err := running.Load(flags, cmd)
	if err != nil {
		return nil
	}
	var names []string
	for _, t := range discovery.Find(cfg, l.Home).Tools {
		names = append(names, t.Name+"\t"+terminal.FirstLine(t.Description))
	}
	return names
}
