package cli

import (
	"encoding/json"
	"fmt"
	"reflect"
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
		Long:    "Print the configuration as it is in force: flags over environment (ORLA_PORT, …)\nover file (--config, ./orla.yaml, ~/.orla/config.yaml) over defaults. Each caller, toolset\nor other entry of a list has its own line.",
		Example: "  orla config\n  ORLA_PORT=9000 orla config --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, _, err := flags.Load(cmd.Flags())
			if err != nil {
				return err
			}
			for _, err := range cfg.Missing() {
				fmt.Fprintf(std.Err, "orla: warning: %s\n", terminal.Printable(err.Error()))
			}
			if asJSON {
				return terminal.WriteJSON(std.Out, configMap(cfg))
			}
			table := tabwriter.NewWriter(std.Out, 0, 4, 2, ' ', 0)
			fmt.Fprintln(table, "KEY\tVALUE\tFROM")
			for _, key := range config.Keys() {
				for _, row := range rowsOf(key, config.Value(&cfg.Config, key)) {
					fmt.Fprintf(table, "%s\t%s\t%s\n", row.key, row.value, cfg.OriginOf(key).Text)
				}
			}
			return table.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// row is one line of the table.
type row struct{ key, value string }

// rowsOf returns the lines for a key: one for each entry of a list of entries, else one.
func rowsOf(key string, value reflect.Value) (rows []row) {
	if value.Kind() != reflect.Slice || value.Type().Elem().Kind() != reflect.Struct {
		return []row{{key, config.Text(value)}}
	}
	for i := range value.Len() {
		entry, err := json.Marshal(value.Index(i).Interface())
		if err != nil { // it was read from YAML
			panic(err)
		}
		rows = append(rows, row{fmt.Sprintf("%s[%d]", key, i), string(entry)})
	}
	if len(rows) == 0 {
		rows = []row{{key, ""}}
	}
	return rows
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
