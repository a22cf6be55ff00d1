package cli

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/terminal"
)

// newConfig shows the configuration and where it came from.
func newConfig(flags *config.Flags, std terminal.Streams) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "config",
		Short:   "Print the configuration and where each value came from",
		Long:    "Print the configuration as it is in force: flags over environment (ORLA_PORT, …)\nover file (--config, ./orla.yaml, ~/.orla/config.yaml) over defaults.",
		Example: "  orla config\n  ORLA_PORT=9000 orla config --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, _, err := flags.Load(cmd.Flags())
			if err != nil {
				return err
			}
			if asJSON {
				return terminal.WriteJSON(std.Out, configMap(cfg))
			}
			table := tabwriter.NewWriter(std.Out, 0, 4, 2, ' ', 0)
			fmt.Fprintln(table, "KEY\tVALUE\tFROM")
			for _, key := range config.Keys() {
				fmt.Fprintf(table, "%s\t%s\t%s\n", key, config.Text(config.Value(&cfg.Config, key)), cfg.OriginOf(key).Text)
			}
			return table.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func configMap(cfg *config.Loaded) map[string]any {
	type entry struct {
		Value any    `json:"value"`
		From  string `json:"from"`
	}
	m := map[string]any{}
	for _, key := range config.Keys() {
		m[key] = entry{config.Value(&cfg.Config, key).Interface(), cfg.OriginOf(key).Text}
	}
	return m
}
