package cli

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/config"
	"github.com/orla-project/orla/internal/daemon"
	"github.com/orla-project/orla/internal/exit"
	"github.com/orla-project/orla/internal/terminal"
)

// newDev serves one tool to whoever writes it.
func newDev(flags *config.Flags, std terminal.Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "dev PATH",
		Short: "Serve one tool while you write it: readable logs, reloads as you save",
		Long: "Serve one executable or package, and nothing else, with a log for people. What you\n" +
			"save is live at the next call. What is wrong with it is in the log. A capsule that\n" +
			"crashes is not started again before you save a change. Everything else is as with\n" +
			"orla serve: the client's session stays.",
		Example: "  orla dev tools/notes\n  orla dev tools/hello.sh --port 9000\n  orla dev tools/notes --stdio",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l := flags.Loader(cmd.Flags())
			path, err := packageOf(args[0])
			if err != nil {
				return &exit.Error{Code: exit.Usage, Err: err}
			}
			l.Only = path
			return daemon.Serve(cmd.Context(), l, std)
		},
	}
}

// packageOf returns what a path stands for, absolute: for a manifest it is the
// package, which is watched as a whole.
func packageOf(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("dev: %w", err)
	}
	switch filepath.Base(path) {
	case "tool.yaml", "orla-tool.json":
		return filepath.Dir(path), nil
	}
	return path, nil
}
