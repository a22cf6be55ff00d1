// Package author has the commands that make tools: new ones from templates, McpServers
// of what other clients are configured with, and WebAssembly modules with their tests.
package author

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/cli/usage"
	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/discovery"
	"github.com/orla-project/orla/internal/app/doctor"
	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/deps/versions"
	"github.com/orla-project/orla/internal/file/yamldoc"
)

// templates holds a tool of each kind and language: templates/KIND/LANGUAGE. In
// the names of files NAME stands for the tool's name, in their text {{name}};
// files that end in .go.txt and .mod.txt would be our own code for the Go tool without .txt.
//
//go:embed all:templates
var templates embed.FS

// languages are those of the templates.
var languages = []string{"python", "node", "typescript", "go", "sh"}

// New makes a tool to begin with.
func New(flags *config.Flags, std terminal.Streams) *cobra.Command {
	var t newTool
	cmd := &cobra.Command{
		Use:   "new NAME",
		Short: "Make a new tool, simple or a capsule",
		Long: "Make a tool that works right away: a file for a simple tool, which is run once per\n" +
			"call, or with --capsule a folder for one that keeps running. It is made in the tools\n" +
			"folder, unless --dir names another. Existing files are never overwritten.",
		Example: "  orla new report --lang python\n  orla new notes --lang node --capsule\n  orla new search --lang go --dir ~/.orla/tools",
		Args:    usage.One("the name of the new tool"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, _, err := flags.Load(cmd.Flags())
			if err != nil {
				return err
			}
			t.name = args[0]
			if t.dir, err = config.PathOf(t.dir); err != nil {
				return &exit.Error{Code: exit.Usage, Err: fmt.Errorf("--dir: %w", err)}
			}
			elsewhere := t.dir != "" && config.Absolute(t.dir) != config.Absolute(cfg.ToolsDir)
			t.dir = cmp.Or(t.dir, cfg.ToolsDir)
			if err := t.check(); err != nil {
				return &exit.Error{Code: exit.Usage, Err: err, Hint: cmd.CommandPath() + " --help shows how it is used"}
			}
			if t.lang == "typescript" {
				if err := stripsTypes(cmd.Context()); err != nil {
					return err
				}
			}
			for _, other := range discovery.Find(&config.Loaded{Config: config.Config{ToolsDir: t.dir}}, "").Tools {
				if other.Name == t.name {
					return fmt.Errorf("there is a tool %q already: %s", t.name, other.Path)
				}
			}
			made, err := t.make()
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintln(std.Out, strings.Join(made, "\n")); err != nil {
				return err
			}
			t.sayHowToCall(std.Err, elsewhere)
			return nil
		},
	}
	cmd.Flags().StringVar(&t.lang, "lang", "", "`LANGUAGE`: "+strings.Join(languages, ", "))
	cmd.Flags().BoolVar(&t.capsule, "capsule", false, "make a capsule: one process for many calls")
	cmd.Flags().StringVar(&t.dir, "dir", "", "`FOLDER` to make it in (default the tools folder)")
	_ = cmd.RegisterFlagCompletionFunc("lang", cobra.FixedCompletions(languages, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	_ = cmd.MarkFlagDirname("dir")                                                                                    // the flag is there
	return cmd
}

// newTool is a tool that is to be made.
type newTool struct {
	name, lang, dir string
	capsule         bool
}

// newName is stricter than MCP: the name becomes that of a file, a folder and a Go module.
var newName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*$`)

// pythonsOwn are the modules that come with json. A file beside a tool goes before them.
var pythonsOwn = []string{"collections", "copyreg", "enum", "functools", "json", "keyword", "operator", "re", "reprlib", "types"}

// checkNewName returns what is wrong with the name of a new tool, or nil.
func checkNewName(name string) error {
	switch {
	case !newName.MatchString(name) || len(name) > 48:
		return fmt.Errorf("%q is not a name for a tool: use a letter, then letters, digits, _ and -, 48 at most", name)
	case name == "node_modules" || name == "venv":
		return fmt.Errorf("a tools folder ignores names such as %q", name)
	}
	return nil
}

// checkLanguage returns what is wrong with --lang, or nil.
func checkLanguage(got string, languages []string) error {
	list := strings.Join(languages, ", ")
	switch {
	case slices.Contains(languages, got):
		return nil
	case got == "":
		return fmt.Errorf("--lang is missing: it is one of %s", list)
	}
	text := fmt.Sprintf("--lang: wants one of %s, got %q", list, got)
	if near := yamldoc.Nearest(got, languages); near != "" {
		text += fmt.Sprintf("; did you mean %q?", near)
	}
	return errors.New(text)
}

func (t *newTool) check() error {
	if err := checkNewName(t.name); err != nil {
		return err
	}
	if t.lang == "python" && !t.capsule && slices.Contains(pythonsOwn, t.name) {
		return fmt.Errorf("a file %s.py would hide Python's own module %s, which tools need", t.name, t.name)
	}
	return checkLanguage(t.lang, languages)
}

// stripsTypes returns an error if the machine's Node does not run TypeScript. It does by default since 22.18 and 23.6.
func stripsTypes(ctx context.Context) error {
	allows := func(version, wanted string) bool {
		return versions.Satisfies(version, wanted) && !versions.Satisfies(version, ">=23,<23.6")
	}
	f := doctor.Requirement(ctx, "node>=22.18", allows, []string{"a tool in TypeScript"})
	if f.Level == doctor.OK {
		return nil
	}
	return &exit.Error{Code: exit.Failed, Err: errors.New(f.Text), Hint: "install Node 22.18 or newer (https://nodejs.org), or make it with --lang node"}
}

// kind is the folder of its templates.
func (t *newTool) kind() string {
	if t.capsule {
		return "capsule"
	}
	return "simple"
}

// make makes the tool and returns its files. A running Orla sees it come whole:
// it is written under a hidden name, and then gets its own.
func (t *newTool) make() (files []string, err error) {
	draft, names, err := draftOf(path.Join("templates", t.kind(), t.lang), t.dir, t.name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(draft)) }()
	if !slices.Contains(names, "tool.yaml") { // it is one file
		file := filepath.Join(t.dir, names[0])
		if err := os.Link(filepath.Join(draft, names[0]), file); err != nil { // a link, unlike a rename, replaces nothing
			return nil, takenOr(file, err)
		}
		return []string{file}, nil
	}
	return moveFolder(draft, filepath.Join(t.dir, t.name), names)
}

// draftOf writes what stands in a folder of the templates, for a tool of that
// name, to a hidden folder in dir, and returns that and the names of its files.
func draftOf(template, dir, name string) (draft string, names []string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", nil, err
	}
	if draft, err = os.MkdirTemp(dir, "."+name+".*"); err != nil {
		return "", nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(draft))
		}
	}()
	if err := os.Chmod(draft, 0o755); err != nil {
		return "", nil, err
	}
	from, err := fs.Sub(templates, template)
	if err != nil {
		return "", nil, err
	}
	err = fs.WalkDir(from, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		made := madeName(file, name)
		if entry.IsDir() {
			return os.MkdirAll(filepath.Join(draft, made), 0o755)
		}
		text, err := fs.ReadFile(from, file)
		if err != nil {
			return err
		}
		names = append(names, made)
		mode := fs.FileMode(0o644)
		if strings.HasPrefix(string(text), "#!") {
			mode = 0o755
		}
		return os.WriteFile(filepath.Join(draft, made), []byte(strings.ReplaceAll(string(text), "{{name}}", name)), mode)
	})
	slices.Sort(names) // their names may have changed the order
	return draft, names, err
}

// madeName returns the name in a new tool for a file of a template. Of the
// files that end in .txt only those of Go lose it: requirements.txt is one's name.
func madeName(file, tool string) string {
	made := strings.ReplaceAll(file, "NAME", tool)
	if bare := strings.TrimSuffix(made, ".txt"); strings.HasSuffix(bare, ".go") || strings.HasSuffix(bare, ".mod") {
		return bare
	}
	return made
}

// moveFolder renames a draft to dir, where nothing may be yet.
func moveFolder(draft, dir string, names []string) ([]string, error) {
	if _, err := os.Lstat(dir); err == nil {
		return nil, takenOr(dir, fs.ErrExist)
	}
	if err := os.Rename(draft, dir); err != nil {
		return nil, takenOr(dir, err)
	}
	files := make([]string, 0, len(names))
	for _, name := range names {
		files = append(files, filepath.Join(dir, name))
	}
	return files, nil
}

// takenOr is err, or that path is taken if err says so.
func takenOr(path string, err error) error {
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already", path)
	}
	return err
}

// sayHowToCall tells of the next step, and of what it lacks.
func (t *newTool) sayHowToCall(w io.Writer, elsewhere bool) {
	needs := map[string]string{"python": "python3", "node": "node", "typescript": "node", "go": "go"}[t.lang]
	where, tool := "", t.name
	if elsewhere {
		where = " --tools-dir " + doctor.Quote(t.dir)
	}
	if t.capsule {
		tool += "__greet"
		if t.lang == "sh" {
			needs = "jq"
		}
	}
	if _, err := exec.LookPath(needs); needs != "" && err != nil {
		fmt.Fprintf(w, "orla: warning: there is no %s here; the tool needs it\n", needs)
	}
	fmt.Fprintf(w, "Call it: orla call%s %s --arg name=Ada\n", where, tool)
}
