package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/cli/running"
	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/discovery"
	"github.com/orla-project/orla/internal/app/terminal"
)

// newReload makes a running Orla reload.
func newReload(flags *config.Flags, std terminal.Streams) *cobra.Command {
	var asJSON bool
	var asked control.ReloadRequest
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Have a running Orla read its configuration and folders again",
		Long: "Have a running Orla read its configuration and folders again, and print what that\n" +
			"changed; what did not change keeps its process and its calls. A configuration with\n" +
			"faults changes nothing, and the exit code is 4. SIGHUP does the same.",
		Example: "  orla reload\n  orla reload --json",
		Args:    cobra.NoArgs,
		RunE: running.Change(flags, func(cmd *cobra.Command, client *control.Client, _ []string) error {
			diff, err := client.Reload(cmd.Context(), asked)
			if err != nil {
				return running.Explain(err)
			}
			if asJSON {
				return terminal.WriteJSON(std.Out, diff)
			}
			discovery.PrintReported(std.Err, diff.Problems)
			return printReload(std.Out, diff)
		}),
	}
	cmd.Flags().BoolVar(&asked.AcceptNoRules, "accept-no-rules", false, "accept that rules were removed: calls are not denied any more for that")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printReload(out io.Writer, diff *control.Reload) error {
	var text strings.Builder
	for _, list := range []struct {
		what  string
		names []string
	}{{"added", diff.Added}, {"removed", diff.Removed}, {"changed", diff.Changed}} {
		if len(list.names) > 0 {
			fmt.Fprintf(&text, "%-8s %s\n", list.what, terminal.Printable(strings.Join(list.names, ", ")))
		}
	}
	fmt.Fprintf(&text, "%-8s %d\n", "kept", diff.Kept)
	if n := len(diff.Failed); n > 0 {
		fmt.Fprintf(&text, "%-8s %d\n", "failed", n)
	}
	_, err := io.WriteString(out, text.String())
	return err
}
