package author

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/clientconf"
	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/discovery"
	"github.com/orla-project/orla/internal/app/doctor"
	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/manifest/discover"
)

// Import makes McpServers of what other MCP clients are configured with.
func Import(flags *config.Flags, std terminal.Streams) *cobra.Command {
	i := importer{std: std, taken: map[string]string{}, takenSecrets: map[string]string{}}
	cmd := &cobra.Command{
		Use:   "import [FILE...]",
		Short: "Convert another client's MCP servers",
		Long: "Read the MCP servers of Claude Desktop, Claude Code, Cursor or VS Code, and show the\n" +
			"McpServer for each; with --write, write the files. Existing files are never\n" +
			"overwritten. Values that look secret are not shown. They are written to separate\n" +
			"files that only you can read, in secrets_dir if it is set. Without FILE, list the\n" +
			"configuration files that exist, and read none.",
		Example: "  orla import\n  orla import .vscode/mcp.json\n  orla import ~/.cursor/mcp.json --name github --write",
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, l, err := flags.Load(cmd.Flags())
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return nameClientFiles(clientFiles(l.Home), l.Home, std)
			}
			i.out, i.secretsDir, i.home = cmp.Or(i.out, cfg.ToolsDir), cfg.SecretsDir, l.Home
			found := discovery.Find(&config.Loaded{Config: config.Config{ToolsDir: i.out}}, "")
			for _, t := range found.Tools {
				i.taken[t.Name] = cmp.Or(t.Path, t.Source)
			}
			for _, s := range found.Secrets {
				i.takenSecrets[s.Name] = s.Source
			}
			for _, file := range args {
				i.file(file)
			}
			return i.end()
		},
		ValidArgsFunction: cobra.FixedCompletions([]string{"json"}, cobra.ShellCompDirectiveFilterFileExt),
	}
	cmd.Flags().BoolVar(&i.write, "write", false, "make the files, in place of showing them")
	cmd.Flags().StringVar(&i.out, "out", "", "`FOLDER` to make them in (default the tools folder)")
	cmd.Flags().StringArrayVar(&i.names, "name", nil, "only the server of this `NAME`, disabled or not; may be repeated")
	_ = cmd.MarkFlagDirname("out") // the flag is there
	return cmd
}

// clientFiles are where clients keep their servers, for this folder and this user.
func clientFiles(home string) []string {
	files := []string{".mcp.json", filepath.Join(".cursor", "mcp.json"), filepath.Join(".vscode", "mcp.json")}
	if home != "" {
		files = append(files, filepath.Join(home, ".claude.json"), filepath.Join(home, ".cursor", "mcp.json"))
	}
	if dir, err := os.UserConfigDir(); err == nil {
		files = append(files, filepath.Join(dir, "Claude", "claude_desktop_config.json"),
			filepath.Join(dir, "Code", "User", "mcp.json"), filepath.Join(dir, "Code", "User", "settings.json"))
	}
	return files
}

// nameClientFiles prints the commands that read the files which are there.
func nameClientFiles(files []string, home string, std terminal.Streams) error {
	found := 0
	for _, file := range files {
		if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
			continue
		}
		found++
		if _, err := fmt.Fprintf(std.Out, "orla import %s\n", fromHome(file, home)); err != nil {
			return err
		}
	}
	if found == 0 {
		for k, file := range files {
			files[k] = fromHome(file, home)
		}
		return &exit.Error{Code: exit.Failed, Err: errors.New("found no configuration of an MCP client: looked for " + strings.Join(files, ", ")), Hint: "orla import FILE reads any other"}
	}
	return nil
}

// fromHome is a path as the shell takes it, with ~ for home.
func fromHome(file, home string) string {
	if below, ok := strings.CutPrefix(file, home+string(filepath.Separator)); ok && home != "" {
		return "~/" + doctor.Quote(below)
	}
	return doctor.Quote(file)
}

// importer makes files of servers.
type importer struct {
	out        string
	secretsDir string // "" for none: secrets go beside the servers
	home       string
	names      []string // those asked for; nil for all
	write      bool
	std        terminal.Streams

	taken        map[string]string // names of tools and servers, with where they are
	takenSecrets map[string]string // names of Secret resources, the same
	met          []string          // names of the servers that were asked for and are there
	files        int               // made, or to be made
	secrets      []string          // the private ones among them
	faulty       int               // files and servers that cannot be converted
	failed       int               // those that cannot be read or written
	err          error             // of stdout
}

// file imports the servers of one file.
func (i *importer) file(name string) {
	data, err := readBounded(name)
	if err != nil {
		i.fail(err)
		return
	}
	at := config.Absolute(name)
	servers, err := clientconf.Parse(name, data, clientconf.Options{Dir: clientconf.DirOf(at, i.home), Home: i.home})
	if err != nil {
		i.say("error", err)
		i.faulty++
		return
	}
	for _, s := range servers {
		if i.wants(s) {
			i.server(s)
		}
	}
}

// readBounded reads a file that may be anything.
func readBounded(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was read only
	return io.ReadAll(io.LimitReader(file, clientconf.MaxFile+1))
}

func (i *importer) wants(s clientconf.Server) bool {
	asked := slices.IndexFunc(i.names, func(name string) bool { return name == s.Own || name == s.Name })
	if asked >= 0 {
		i.met = append(i.met, i.names[asked])
	}
	if i.names == nil && s.Disabled {
		fmt.Fprintf(i.std.Err, "orla: %s is disabled, and left out; --name %s imports it\n", terminal.Printable(s.Key), s.Name)
		return false
	}
	return i.names == nil || asked >= 0
}

// server imports one server: all of its files, or none.
func (i *importer) server(s clientconf.Server) {
	for _, note := range s.Notes {
		i.say("warning", note)
	}
	if s.Err != nil {
		i.say("error", s.Err)
		i.faulty++
		return
	}
	files := i.plan(s)
	for _, f := range files {
		if _, err := os.Lstat(f.path); err == nil {
			i.fail(takenOr(f.path, fs.ErrExist))
			return
		}
	}
	if at, taken := i.taken[s.Name]; taken {
		i.fail(fmt.Errorf("%s: there is a tool or server %q already: %s", s.Key, s.Name, at))
		return
	}
	if at, taken := i.takenSecrets[s.Name]; taken && len(s.Secrets()) > 0 {
		i.fail(fmt.Errorf("%s: there is a Secret %q already: %s", s.Key, s.Name, at))
		return
	}
	i.taken[s.Name] = files[len(files)-1].path
	if i.write {
		if err := makeFiles(files); err != nil {
			i.fail(err)
			return
		}
	}
	for _, f := range files {
		i.show(f)
	}
	if i.write { // a program that is not here, above all
		discovery.PrintProblems(i.std.Err, discover.Validate(files[len(files)-1].path).Problems)
	}
}

// imported is a file that is to be made.
type imported struct {
	path string
	clientconf.Document
}

// plan says which files a server becomes; the McpServer is the last, so that
// its Secret is there when a running Orla sees it.
func (i *importer) plan(s clientconf.Server) []imported {
	var files []imported
	if doc, ok := s.Secret(); ok && i.secretsDir == "" {
		files = append(files, imported{filepath.Join(i.out, s.Name+".secret.yaml"), doc})
	} else if ok {
		docs := s.SecretFiles()
		for _, key := range slices.Sorted(maps.Keys(docs)) {
			files = append(files, imported{filepath.Join(i.secretsDir, s.Name, key), docs[key]})
		}
	}
	return append(files, imported{filepath.Join(i.out, s.Name+".mcp.yaml"), s.McpServer()})
}

// show prints what a file has, or its name when it is made.
func (i *importer) show(f imported) {
	i.files++
	if f.Private {
		i.secrets = append(i.secrets, f.path)
	}
	text := f.path + "\n"
	if !i.write {
		mode := ""
		if f.Private {
			mode = ", which only you can read"
		}
		text = fmt.Sprintf("---\n# %s%s\n%s", terminal.Printable(f.path), mode, f.Shown)
	}
	if _, err := io.WriteString(i.std.Out, text); err != nil {
		i.err = err
	}
}

// makeFiles makes all files or none. Each gets its name when it is whole, and
// replaces nothing.
func makeFiles(files []imported) (err error) {
	var made []string
	defer func() {
		if err == nil {
			return
		}
		for _, path := range made {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	for _, f := range files {
		if err := makeFile(f); err != nil {
			return err
		}
		made = append(made, f.path)
	}
	return nil
}

func makeFile(f imported) (err error) {
	dir := filepath.Dir(f.path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	draft, err := os.CreateTemp(dir, ".import.*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(draft.Name())) }()
	_, err = draft.Write(f.Text)
	if !f.Private {
		err = errors.Join(err, draft.Chmod(0o644))
	}
	if err := errors.Join(err, draft.Close()); err != nil {
		return err
	}
	if err := os.Link(draft.Name(), f.path); err != nil {
		return takenOr(f.path, err)
	}
	return nil
}

// fail says what cannot be read or written.
func (i *importer) fail(err error) {
	i.say("error", err)
	i.failed++
}

func (i *importer) say(severity string, err error) {
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintf(i.std.Err, "orla: %s: %s\n", severity, terminal.Printable(strings.TrimRight(line, "\n")))
	}
}

// end says how it went as a whole.
func (i *importer) end() error {
	if i.err != nil {
		return i.err
	}
	for _, name := range i.names {
		if !slices.Contains(i.met, name) && i.failed+i.faulty == 0 {
			i.fail(fmt.Errorf("no server is named %q", name))
		}
	}
	switch {
	case i.files > 0 && !i.write:
		fmt.Fprintf(i.std.Err, "Nothing is made yet: --write makes %s.\n", terminal.Count(i.files, "file"))
	case len(i.secrets) > 0:
		fmt.Fprintf(i.std.Err, "Keep out of version control: %s\n", terminal.Printable(strings.Join(i.secrets, " ")))
	}
	if i.faulty+i.failed == 0 {
		return nil
	}
	code := exit.Failed
	if i.faulty > 0 {
		code = exit.Invalid
	}
	return &exit.Error{Code: code, Err: fmt.Errorf("%s not imported; see above", terminal.Count(i.faulty+i.failed, "server or file"))}
}
