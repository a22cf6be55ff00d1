package cli

import (
	"fmt"
	"runtime"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/app/version"
)

// newVersion says which Orla this is, and what it was built from.
func newVersion(std terminal.Streams) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version, and what it was built from",
		Example: "  orla version\n  orla version --json | jq -r .commit",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			this := build{
				Version: version.Version(), Commit: version.Commit(), Date: version.Date(),
				Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
			}
			if asJSON {
				return terminal.WriteJSON(std.Out, this)
			}
			table := tabwriter.NewWriter(std.Out, 0, 4, 1, ' ', 0)
			fmt.Fprintf(table, "orla\t%s\n", this.Version)
			for _, known := range [...]struct{ name, value string }{
				{"commit", this.Commit}, {"date", this.Date}, {"go", this.Go + " " + this.Platform},
			} {
				if known.value != "" {
					fmt.Fprintf(table, "%s\t%s\n", known.name, known.value)
				}
			}
			return table.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// build is what `orla version --json` prints.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Date     string `json:"date,omitempty"` // of the commit
	Go       string `json:"go"`
	Platform string `json:"platform"`
}
