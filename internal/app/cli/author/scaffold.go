package author

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/cli/usage"
	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/doctor"
	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/app/terminal"
)

// moduleBuilders are what builds the languages of templates/wasm.
var moduleBuilders = map[string]string{"go": "go", "rust": "cargo"}

// newScaffold makes a project of a tool in WebAssembly (SPEC-TOOLS 9.1).
func newScaffold(std terminal.Streams) *cobra.Command {
	var p moduleProject
	names := slices.Sorted(maps.Keys(moduleBuilders))
	cmd := &cobra.Command{
		Use:   "scaffold NAME",
		Short: "Make a project for a WebAssembly tool",
		Long: "Make a folder with a working WebAssembly tool to start from: its source, a Makefile, the\n" +
			"resource that describes it and sets its limits, and fixtures: calls with the expected\n" +
			"answers. It builds and passes its tests without downloads, and Orla serves it when it\n" +
			"is in the tools folder. Existing files are never overwritten.",
		Example: "  orla wasm scaffold greet --lang go\n  orla wasm scaffold greet --lang rust --dir ~/src",
		Args:    usage.One("the name of the new tool"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			p.name = args[0]
			if p.dir, err = config.PathOf(p.dir); err != nil {
				return &exit.Error{Code: exit.Usage, Err: fmt.Errorf("--dir: %w", err)}
			}
			if err := p.check(names); err != nil {
				return &exit.Error{Code: exit.Usage, Err: err, Hint: cmd.CommandPath() + " --help shows how it is used"}
			}
			made, err := p.make()
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintln(std.Out, strings.Join(made, "\n")); err != nil {
				return err
			}
			p.sayHowToBuild(std.Err)
			return nil
		},
	}
	cmd.Flags().StringVar(&p.lang, "lang", "", "`LANGUAGE`: "+strings.Join(names, ", "))
	cmd.Flags().StringVar(&p.dir, "dir", ".", "`FOLDER` to make the project's folder in")
	_ = cmd.RegisterFlagCompletionFunc("lang", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	_ = cmd.MarkFlagDirname("dir")                                                                                // the flag is there
	return cmd
}

// moduleProject is a project that is to be made.
type moduleProject struct{ name, lang, dir string }

func (p *moduleProject) check(languages []string) error {
	if err := checkNewName(p.name); err != nil {
		return err
	}
	return checkLanguage(p.lang, languages)
}

// folder is where the project comes to stand.
func (p *moduleProject) folder() string { return filepath.Join(p.dir, p.name) }

// make makes the project and returns its files. All of them come at once.
func (p *moduleProject) make() (files []string, err error) {
	draft, names, err := draftOf("templates/wasm/"+p.lang, p.dir, p.name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(draft)) }()
	_ = syscall.Rmdir(p.folder()) // an empty folder makes room; what else is there stays
	return moveFolder(draft, p.folder(), names)
}

// sayHowToBuild tells of the next step, and of what it lacks.
func (p *moduleProject) sayHowToBuild(w io.Writer) {
	builder := moduleBuilders[p.lang]
	if _, err := exec.LookPath(builder); err != nil {
		fmt.Fprintf(w, "orla: warning: there is no %s here; the project needs it\n", builder)
	}
	fmt.Fprintf(w, "Build and test it: make -C %s test\n", doctor.Quote(p.folder()))
}
