package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/terminal"
)

// newConfig shows the configuration and where it came from.
func newConfig(flags *configFlags, std terminal.Streams) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "config",
		Short:   "Print the configuration and where each value came from",
		Long:    "Print the configuration as it is in force: flags over environment (ORLA_PORT, …)\nover file (--config, ./orla.yaml, ~/.orla/config.yaml) over defaults.",
		Example: "  orla config\n  ORLA_PORT=9000 orla config --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, _, err := flags.load(cmd.Flags())
			if err != nil {
				return err
			}
			if asJSON {
				return terminal.WriteJSON(std.Out, configMap(cfg))
			}
			table := tabwriter.NewWriter(std.Out, 0, 4, 2, ' ', 0)
			fmt.Fprintln(table, "KEY\tVALUE\tFROM")
			for _, key := range keys() {
				fmt.Fprintf(table, "%s\t%s\t%s\n", key, shown(value(&cfg.Config, key)), cfg.originOf(key).text)
			}
			return table.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func configMap(cfg *loaded) map[string]any {
	type entry struct {
		Value any    `json:"value"`
		From  string `json:"from"`
	}
	m := map[string]any{}
	for _, key := range keys() {
		m[key] = entry{value(&cfg.Config, key).Interface(), cfg.originOf(key).text}
	}
	return m
}
