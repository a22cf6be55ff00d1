package cli

import (
	"fmt"
	"html"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/cli/logins"
	"github.com/orla-project/orla/internal/app/cli/running"
	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/file/wholefile"
)

// newConsole opens the web page of a running Orla.
func newConsole(flags *config.Flags, std terminal.Streams) *cobra.Command {
	var noBrowser bool
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Open the web page of a running Orla",
		Long: "Print a link that lets one browser of this machine into the web page of a running Orla,\n" +
			"and open it. The link is good once, for a minute. The page shows what tools do, their logs\n" +
			"and calls, and can start, stop, restart and call them. console: off in orla.yaml removes it.",
		Example: "  orla console\n  orla console --no-browser",
		Args:    cobra.NoArgs,
		RunE: running.Show(flags, func(cmd *cobra.Command, client *control.Client, _ []string) error {
			link, err := client.ConsoleLink(cmd.Context())
			if err != nil {
				return running.Explain(err)
			}
			if _, err := fmt.Fprintln(std.Out, link.URL); err != nil || noBrowser {
				return err
			}
			status, err := client.Status(cmd.Context())
			if err != nil || !openLink(cmd, status, link) {
				_, err = fmt.Fprintln(std.Err, "open it in a browser on this machine within a minute")
				return err
			}
			_, err = fmt.Fprintln(std.Err, "a browser was asked to open it; if it does not, open it yourself within a minute")
			return err
		}),
	}
	cmd.Flags().BoolVar(&noBrowser, "no-browser", false, "only print the link")
	return cmd
}

// openLink has the desktop open a link, and reports whether it could ask for that. Every user can see the command line of
// a browser, so the link is in a file for this user alone, which leads there. It stays, and is of no use after a minute.
func openLink(cmd *cobra.Command, status *control.Status, link *control.ConsoleLink) bool {
	base, isSocket := strings.CutSuffix(status.Socket, filepath.Ext(status.Socket))
	if !isSocket || !filepath.IsAbs(base) || !logins.HasDesktop() {
		return false
	}
	page := base + ".html"
	text := `<!doctype html><meta charset="utf-8"><title>Orla</title><meta http-equiv="refresh" content="0;url=` + html.EscapeString(link.URL) + `">`
	if err := wholefile.Write(page, []byte(text)); err != nil { // the folder is another user's
		return false
	}
	return logins.OpenBrowser(cmd.Context(), page) == nil
}
