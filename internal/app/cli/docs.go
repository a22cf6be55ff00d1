package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/version"
)

// docsCommand is the hidden command that writes the files of a package other than the program.
const docsCommand = "__docs"

// newDocs writes the files that are generated from the help and from config.Config, so that those of a
// package match its program.
func newDocs() *cobra.Command {
	return &cobra.Command{
		Use:    docsCommand + " DIR",
		Short:  "Write the man page, the completions and a commented orla.yaml to a folder",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return writeDocs(cmd.Root(), args[0])
		},
	}
}

// writeDocs writes the files. Their content does not depend on the machine or the time.
func writeDocs(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, file := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{"orla.1", func(w io.Writer) error { return writeMan(w, root, docsDate()) }},
		{"orla.bash", func(w io.Writer) error { return root.GenBashCompletionV2(w, true) }},
		{"orla.zsh", root.GenZshCompletion},
		{"orla.fish", func(w io.Writer) error { return root.GenFishCompletion(w, true) }},
		{"orla.yaml", config.WriteSample},
	} {
		var text strings.Builder
		if err := file.write(&text); err != nil {
			return fmt.Errorf("%s: %w", file.name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, file.name), []byte(text.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// docsDate returns the date of the man page: SOURCE_DATE_EPOCH, which makes builds reproducible, or that
// of the commit.
func docsDate() string {
	if epoch, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64); err == nil {
		return time.Unix(epoch, 0).UTC().Format(time.DateOnly)
	}
	date, _, _ := strings.Cut(version.Date(), "T")
	return date
}
