package cli

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/cli/running"
	"github.com/orla-project/orla/internal/app/cli/statuspage"
	"github.com/orla-project/orla/internal/app/cli/usage"
	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/discovery"
	"github.com/orla-project/orla/internal/app/terminal"
)

// completeManifests completes up to most names of manifests, 0 for any number, for which fits reports
// true; nil for all.
func completeManifests(flags *config.Flags, most int, fits func(control.ToolStatus) bool) cobra.CompletionFunc {
	return usage.Complete(most, func(cmd *cobra.Command, args []string) (names []string) {
		client, err := running.Any(flags, cmd)
		if err != nil {
			return completeFolder(flags, cmd)
		}
		status, err := client.Status(cmd.Context())
		if err != nil {
			return completeFolder(flags, cmd)
		}
		for _, t := range status.Tools {
			if (fits == nil || fits(t)) && !slices.Contains(args, t.Name) {
				names = append(names, t.Name+"\t"+statuspage.StateOf(&t))
			}
		}
		return names
	})
}

// completeTools completes the name of the tool to call.
func completeTools(flags *config.Flags) cobra.CompletionFunc {
	return usage.Complete(1, func(cmd *cobra.Command, _ []string) (names []string) {
		cfg, l, err := running.Load(flags, cmd)
		if err != nil {
			return nil
		}
		client, err := running.Own(cmd.Context(), cfg, l)
		if err != nil {
			return completeFolder(flags, cmd)
		}
		tools, err := client.Tools(cmd.Context())
		if err != nil {
			return completeFolder(flags, cmd)
		}
		for _, t := range tools {
			names = append(names, t.Name+"\t"+terminal.FirstLine(t.Description))
		}
		return names
	})
}

// completeFolder returns the names of the tools in the folder of tools.
func completeFolder(flags *config.Flags, cmd *cobra.Command) (names []string) {
	cfg, l, err := running.Load(flags, cmd)
	if err != nil {
		return nil
	}
	for _, t := range discovery.Find(cfg, l.Home).Tools {
		names = append(names, t.Name+"\t"+terminal.FirstLine(t.Description))
	}
	return names
}
