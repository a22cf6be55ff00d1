package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/cli/usage"
	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/daemon"
	"github.com/orla-project/orla/internal/app/discovery"
	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/app/terminal"
)

// newDev serves one tool to whoever writes it.
func newDev(flags *config.Flags, std terminal.Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "dev PATH",
		Short: "Serve one tool while you write it: readable logs, reloads on save",
		Long: "Serve one executable or package, and nothing else, with a log for people. The next\n" +
			"call uses what you have saved, and errors are in the log. A capsule that crashes is\n" +
			"started again when you save a change. Everything else is as with orla serve: the\n" +
			"client's session stays open.",
		Example: "  orla dev tools/notes\n  orla dev tools/hello.sh --port 9000\n  orla dev tools/notes --stdio",
		Args:    usage.One("the path of a tool"),
		RunE: func(cmd *cobra.Command, args []string) error {
			l := flags.Loader(cmd.Flags())
			path, err := packageOf(args[0])
			if err != nil {
				return &exit.Error{Code: exit.Usage, Err: err, Hint: pathOfTool(l, args[0])}
			}
			l.Only = path
			return daemon.Serve(cmd.Context(), l, std)
		},
	}
}

// packageOf returns the absolute path to serve. For a manifest it is that of its package, which is
// watched as a whole.
func packageOf(path string) (string, error) {
	path, err := config.PathOf(path)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", fmt.Errorf("dev: %w", err)
	}
	switch _, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("dev: %s does not exist", path)
	case err != nil:
		return "", fmt.Errorf("dev: %w", err)
	case filepath.Base(path) == "tool.yaml", filepath.Base(path) == "orla-tool.json":
		return filepath.Dir(path), nil
	}
	return path, nil
}

// pathOfTool returns a hint if a name of a tool was given in place of a path; "" if there is no such tool.
func pathOfTool(l *config.Loader, name string) string {
	cfg, err := l.Load()
	if err != nil {
		return ""
	}
	for _, t := range discovery.Find(cfg, l.Home).Tools {
		if t.Name == name && t.Source != "" {
			path, _ := packageOf(t.Source) // it was just found
			if strings.HasSuffix(path, ".tool.yaml") {
				path = t.Path
			}
			return "dev takes the path of a tool: orla dev " + path
		}
	}
	return ""
}
