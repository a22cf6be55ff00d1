package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/cli/running"
	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/discovery"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/manifest"
)

// newTools lists what would be served.
func newTools(flags *config.Flags, std terminal.Streams) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:        "tools",
		SuggestFor: []string{"ls"},
		Short:      "List the tools that are found",
		Long: "List the tools that are found. If an Orla is running that serves this folder, they are\n" +
			"those that its clients can call now, the many tools of a capsule among them; without\n" +
			"one, or with --socket none, nothing is started and a capsule is one line.",
		Example: "  orla tools\n  orla tools --json | jq '.[].name'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, l, err := flags.LoadTools(cmd.Flags())
			if err != nil {
				return err
			}
			client, err := running.Serving(cmd.Context(), cfg, l)
			switch {
			case err != nil:
				return err
			case client != nil:
				return toolsRunning(cmd.Context(), client, asJSON, std)
			}
			found := discovery.Find(cfg, l.Home)
			discovery.PrintProblems(std.Err, found.Problems)
			if asJSON {
				return terminal.WriteJSON(std.Out, listTools(found.Tools))
			}
			return printTools(std.Out, listTools(found.Tools))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// listedTool is a tool as `orla tools --json` prints it: a control.ListedTool under other keys.
type listedTool struct {
	Name         string          `json:"name"`
	Of           string          `json:"-"`
	Kind         string          `json:"kind"`
	Version      string          `json:"version,omitempty"`
	Title        string          `json:"title,omitempty"`
	Description  string          `json:"description,omitempty"`
	Path         string          `json:"path"`
	Source       string          `json:"source"`
	Interpreter  string          `json:"interpreter,omitempty"`
	Service      string          `json:"service,omitempty"`
	InputSchema  json.RawMessage `json:"inputSchema"`
	OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
	Timeout      string          `json:"timeout"`
	Isolation    string          `json:"isolation,omitempty"`
}

func listTools(tools []manifest.Tool) []listedTool {
	list := make([]listedTool, 0, len(tools))
	for _, t := range tools {
		list = append(list, listedTool{
			Name: t.Name, Kind: string(t.Kind), Version: t.Version, Title: t.Title, Description: t.Description,
			Path: t.Path, Source: t.Source, Interpreter: discovery.Interpreter(t), Service: t.Service(),
			InputSchema: t.InputSchema, OutputSchema: t.OutputSchema, Timeout: t.Run.Timeout.String(), Isolation: discovery.Isolation(t),
		})
	}
	return list
}

// toolsRunning lists what the clients of a running Orla can call.
func toolsRunning(ctx context.Context, client *control.Client, asJSON bool, std terminal.Streams) error {
	tools, err := client.Tools(ctx)
	if err != nil {
		return running.Explain(err)
	}
	status, err := client.Status(ctx)
	if err != nil {
		return running.Explain(err)
	}
	discovery.PrintReported(std.Err, status.Problems)
	list := make([]listedTool, 0, len(tools))
	for _, t := range tools {
		list = append(list, listedTool(t))
	}
	if asJSON {
		return terminal.WriteJSON(std.Out, list)
	}
	return printTools(std.Out, list)
}

func printTools(w io.Writer, tools []listedTool) error {
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tKIND\tRUNS WITH\tDESCRIPTION")
	for _, t := range tools {
		with := cmp.Or(t.Interpreter, t.Service, "itself")
		if t.Isolation != "" {
			with += ", " + t.Isolation
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", t.Name, t.Kind, terminal.Printable(with), terminal.FirstLine(t.Description))
	}
	return table.Flush()
}
