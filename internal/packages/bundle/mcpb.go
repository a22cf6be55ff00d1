package bundle

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/orla-project/orla/internal/packages/origin"
	"github.com/orla-project/orla/internal/packages/registry"
)

const (
	manifestFile = "manifest.json"
	maxManifest  = 1 << 20
)

// bundleManifest is a manifest.json of MCPB, versions 0.1 to 0.4. Strangers wrote it, so unknown keys are ignored.
type bundleManifest struct {
	ManifestVersion string          `json:"manifest_version"`
	DXTVersion      string          `json:"dxt_version"` // its name before
	Name            string          `json:"name"`
	DisplayName     string          `json:"display_name"`
	Version         string          `json:"version"`
	Description     string          `json:"description"`
	Author          json.RawMessage `json:"author"`
	Repository      json.RawMessage `json:"repository"`
	Homepage        string          `json:"homepage"`
	License         string          `json:"license"`
	Keywords        []string        `json:"keywords"`
	Server          struct {
		Type       string    `json:"type"`
		EntryPoint string    `json:"entry_point"`
		Config     mcpConfig `json:"mcp_config"`
	} `json:"server"`
	UserConfig    map[string]userConfig `json:"user_config"`
	Compatibility struct {
		Platforms []string          `json:"platforms"`
		Runtimes  map[string]string `json:"runtimes"`
	} `json:"compatibility"`
}

// mcpConfig is a command.
type mcpConfig struct {
	Command   string                   `json:"command"`
	Args      []registry.Text          `json:"args"`
	Env       map[string]registry.Text `json:"env"`
	Platforms map[string]mcpConfig     `json:"platform_overrides"`
}

type userConfig struct {
	Type        string          `json:"type"`
	Title       string          `json:"title"`
	Description string          `json:"description"`
	Required    bool            `json:"required"`
	Multiple    bool            `json:"multiple"`
	Sensitive   bool            `json:"sensitive"`
	Default     json.RawMessage `json:"default"`
	Min         *float64        `json:"min"`
	Max         *float64        `json:"max"`
}

// Import unpacks an MCP bundle into a folder, which must be empty or missing, and writes the tool.yaml of a capsule
// beside its content. A bundle that has a tool.yaml of its own stays as it is.
//
// The error is an *UnansweredError if values are missing; Made has the questions then.
func Import(ctx context.Context, file, into string, answers map[string]string, limits origin.Limits) (*Made, error) {
	if err := origin.Unpack(ctx, file, into, limits); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(into)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	text, err := readBelow(root, manifestFile, maxManifest)
	if errors.Is(err, os.ErrNotExist) {
		return nil, errors.New("the bundle has no " + manifestFile)
	}
	if err != nil {
		return nil, err
	}
	var m bundleManifest
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, fmt.Errorf("%s is not that of an MCP bundle: %w", manifestFile, err)
	}
	if _, err := root.Lstat("tool.yaml"); err == nil {
		return &Made{Name: shortName(m.Name), Version: semantic(m.Version)}, nil
	}
	i := &importer{manifest: m, asker: asker{answers: answers}, root: root, read: map[string]Question{}}
	made, err := i.make()
	if err != nil {
		return made, err
	}
	return made, writeFiles(root, made.Files)
}

func readBelow(root *os.Root, name string, most int64) ([]byte, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s has over %d bytes", name, most)
	}
	return text, err
}

// importer makes a package of one bundle.
type importer struct {
	manifest bundleManifest
	asker    asker
	root     *os.Root
	made     *Made
	secrets  []string // variables
	pinned   string   // a requirement that stands for the project itself

	read       map[string]Question // those of user_config that were read
	references int                 // to them
}

func (i *importer) make() (*Made, error) {
	m := i.manifest
	version := cmp.Or(m.ManifestVersion, m.DXTVersion)
	if !slices.Contains([]string{"0.1", "0.2", "0.3", "0.4"}, version) {
		return nil, fmt.Errorf("the bundle has manifest version %q, and Orla reads 0.1 to 0.4", line(version, 20))
	}
	name := shortName(m.Name)
	if name == "" || m.Version == "" {
		return nil, errors.New("the bundle has no name or no version")
	}
	if list := m.Compatibility.Platforms; len(list) > 0 && !slices.Contains(list, runtime.GOOS) {
		return nil, fmt.Errorf("the bundle is for %s, and not for %s", line(strings.Join(list, ", "), 100), runtime.GOOS)
	}
	i.made = &Made{Name: name, Version: semantic(m.Version), Secrets: map[string]string{}, Files: map[string]string{}}
	s, file, err := i.start(merged(m.Server.Config, m.Server.Config.Platforms[runtime.GOOS]))
	if err != nil {
		return nil, err
	}
	i.made.Questions = i.asker.questions
	if err := i.asker.err(); err != nil {
		return i.made, err
	}
	about := i.about()
	switch file {
	case nodeFile:
		i.made.Files[file] = s.node()
	case pythonFile:
		i.made.Files[file] = s.python()
		if i.pinned != "" {
			if _, err := i.root.Lstat(requirementsFile); err == nil {
				return nil, errors.New("the bundle runs a PyPI package and also has its own requirements.txt")
			}
			i.made.Files[requirementsFile] = i.pinned + "\n"
		}
	default:
		i.made.Files[file] = s.shell()
		if below, ok := s.command.below(); ok {
			if err := i.executable(below); err != nil {
				return nil, err
			}
		}
	}
	i.made.Files["tool.yaml"] = about.toolYAML(file, i.secrets)
	return i.made, nil
}

// executable makes a program of the bundle executable: archives of some systems do not say that it is.
func (i *importer) executable(name string) error {
	if err := i.isFile(name); err != nil {
		return err
	}
	return i.root.Chmod(name, 0o755)
}

// isFile returns an error if the bundle has no such file.
func (i *importer) isFile(name string) error {
	if info, err := i.root.Stat(name); err != nil || !info.Mode().IsRegular() {
		return fmt.Errorf("the bundle has no file %q, which it runs", line(name, 100))
	}
	return nil
}

// merged returns a command with what is different on a platform.
func merged(c, other mcpConfig) mcpConfig {
	c.Command = cmp.Or(other.Command, c.Command)
	if other.Args != nil {
		c.Args = other.Args
	}
	env := map[string]registry.Text{}
	maps.Copy(env, c.Env)
	maps.Copy(env, other.Env)
	c.Env = env
	return c
}

// start returns what the bundle runs, and by which program of Orla's.
func (i *importer) start(c mcpConfig) (s start, by string, err error) {
	if err := i.variables(c.Env, &s); err != nil {
		return s, "", err
	}
	var args []word
	for _, arg := range c.Args {
		words, err := i.expand(string(arg), false)
		if err != nil {
			return s, "", err
		}
		args = append(args, words...)
	}
	command, err := i.expand(c.Command, false)
	if err != nil || len(command) > 1 {
		return s, "", errors.Join(err, errors.New("the bundle has no valid command"))
	}
	entry := path.Clean(strings.TrimPrefix(i.manifest.Server.EntryPoint, "${__dirname}/"))
	if len(command) == 0 { // uv bundles of version 0.4 need none
		if err := i.file(entry); err != nil {
			return s, "", err
		}
		s.file, s.args = entry, args
		return s, map[string]string{"node": nodeFile, "python": pythonFile, "uv": pythonFile}[i.manifest.Server.Type], nil
	}
	program, _ := command[0].plain()
	switch base := strings.TrimSuffix(path.Base(program), ".exe"); {
	case base == "node":
		return i.interpreted(nodeFile, s, command[0], args)
	case base == "python" || strings.HasPrefix(base, "python3"):
		return i.interpreted(pythonFile, s, command[0], args)
	case base == "uv" || base == "uvx":
		s, err := i.uv(s, base, args)
		return s, pythonFile, err
	case base == "npx" && i.file(entry) == nil:
		// The server is in the bundle. What npx would run instead is fetched at each start.
		for n, a := range args {
			if flag, ok := a.plain(); !ok || !strings.HasPrefix(flag, "-") {
				s.args = args[n+1:]
				break
			}
		}
		i.made.Notes = append(i.made.Notes, "it runs "+line(entry, 100)+" of the bundle with Node, and not npx")
		s.file = entry
		return s, nodeFile, nil
	case base == "npx" || base == "npm" || base == "pnpm" || base == "bunx" || base == "pipx" || base == "docker" || base == "sh" || base == "bash":
		return s, "", fmt.Errorf("the bundle runs %s, which may fetch other code at each start", base)
	}
	s.command, s.args = command[0], args
	return s, shellFile, nil
}

// file returns an error if a name is not that of a file in the bundle, or leads out of it.
func (i *importer) file(name string) error {
	if name == "" || name == "." || path.IsAbs(name) || strings.HasPrefix(name, "..") {
		return errors.New("the bundle names no file to run")
	}
	return i.isFile(name)
}

// interpreted returns how a command of Node or Python is run: its file or module by Orla's program for the language, or else the
// command as it is, with its options.
func (i *importer) interpreted(by string, s start, command word, args []word) (start, string, error) {
	if len(args) > 0 {
		if below, ok := args[0].below(); ok {
			s.file, s.args = path.Clean(below), args[1:]
			return s, by, i.file(s.file)
		}
		if flag, _ := args[0].plain(); by == pythonFile && flag == "-m" && len(args) > 1 {
			if module, ok := args[1].plain(); ok && moduleName().MatchString(module) {
				s.module, s.args = module, args[2:]
				return s, by, nil
			}
		}
	}
	s.command, s.args = command, args
	return s, shellFile, nil
}

// uv reads the arguments of uv run and uvx: what they run, and from which package.
func (i *importer) uv(s start, program string, args []word) (start, error) {
	var words []string
	for _, a := range args {
		text, ok := a.plain()
		if below, is := a.below(); !ok && is {
			text, ok = path.Clean(below), true
		} else if len(a) == 1 && a[0].dir {
			text, ok = ".", true
		} else if !ok && (a[0].text == "--directory=" || a[0].text == "--project=") {
			text, ok = a[0].text+".", true
		}
		if !ok {
			break // an argument of the server itself
		}
		words = append(words, text)
	}
	if program == "uv" && (len(words) == 0 || words[0] != "run" && words[0] != "tool") {
		return s, errors.New("the bundle runs uv without \"run\"")
	}
	from := ""
	n := 0
	switch {
	case program == "uv" && words[0] == "tool":
		n = 2
	case program == "uv":
		n = 1
	}
	for ; n < len(words) && strings.HasPrefix(words[n], "-"); n++ {
		switch flag, value, has := strings.Cut(words[n], "="); flag {
		case "--from", "--with", "--directory", "--project", "--python", "-p", "--index-url", "--extra":
			if !has && n+1 < len(words) {
				n++
				value = words[n]
			}
			if flag == "--from" || flag == "--with" {
				from = value
			}
		case "-m", "--module":
			if n+1 < len(words) && moduleName().MatchString(words[n+1]) {
				s.module, s.args = words[n+1], args[n+2:]
				return s, nil
			}
		}
	}
	if n >= len(words) {
		return s, errors.New("the bundle runs uv without a program")
	}
	s.args = args[n+1:]
	return i.uvTarget(s, words[n], from)
}

// uvTarget reads what uv runs: a file, a program of the project, or one of a package of PyPI.
func (i *importer) uvTarget(s start, target, from string) (start, error) {
	if strings.HasSuffix(target, ".py") {
		s.file = path.Clean(target)
		return s, i.file(s.file)
	}
	if target == "python" || strings.HasPrefix(target, "python3") {
		s, by, err := i.interpreted(pythonFile, s, nil, s.args)
		if err == nil && by != pythonFile {
			err = errors.New("the bundle runs Python with options that Orla does not know")
		}
		return s, err
	}
	from = cmp.Or(from, target)
	name, version, _ := strings.Cut(strings.Replace(from, "@", "==", 1), "==")
	name, _, _ = strings.Cut(name, "[")
	if !pypiName().MatchString(name) {
		return s, fmt.Errorf("the bundle runs %q, which is not a package of PyPI", line(target, 60))
	}
	s.packaged, s.program = name, target
	if _, err := i.root.Lstat("pyproject.toml"); err == nil {
		return s, nil // its dependencies, and its own programs
	}
	if version == "" && name == i.manifest.Name {
		version = i.manifest.Version
	}
	if !pypiVersion().MatchString(version) {
		return s, fmt.Errorf("the bundle runs %q of PyPI without a version, and so whatever is newest", line(from, 60))
	}
	i.pinned = from
	if !strings.Contains(from, "==") {
		i.pinned = name + "==" + version
	}
	return s, nil
}

// about returns what the manifest says of the server.
func (i *importer) about() about {
	m := i.manifest
	text := func(raw json.RawMessage, key string) string {
		var plain string
		var object map[string]any
		if json.Unmarshal(raw, &plain) == nil {
			return plain
		}
		if json.Unmarshal(raw, &object) == nil {
			plain, _ = object[key].(string)
		}
		return plain
	}
	a := about{
		name: i.made.Name, version: i.made.Version, description: cmp.Or(line(m.Description, 1000), line(m.DisplayName+" "+m.Name, 200)),
		author: line(text(m.Author, "name"), 200), license: line(m.License, 100), repository: webURL(text(m.Repository, "url")), homepage: webURL(m.Homepage),
		permissions: []string{"network"}, more: "an MCP bundle, " + line(m.Name, 200) + ".",
	}
	for _, k := range m.Keywords {
		if k = line(k, 50); k != "" && len(a.keywords) < 20 {
			a.keywords = append(a.keywords, k)
		}
	}
	for _, program := range []string{"node", "python"} {
		if wants := m.Compatibility.Runtimes[program]; runtimeForm().MatchString(wants) {
			a.dependencies = append(a.dependencies, program+strings.ReplaceAll(wants, " ", ""))
		}
	}
	for _, p := range i.asker.paths {
		a.permissions = append(a.permissions, "filesystem:read:"+path.Clean(p), "filesystem:write:"+path.Clean(p))
	}
	return a
}

var runtimeForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^>= ?[0-9]+(\.[0-9]+){0,2}$`) })

// variables adds the environment of the server.
func (i *importer) variables(env map[string]registry.Text, s *start) error {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		ignore, err := checkVariable(name)
		if err != nil {
			return err
		}
		if ignore {
			continue
		}
		words, err := i.expand(string(env[name]), true)
		if err != nil {
			return err
		}
		if len(words) == 0 {
			continue
		}
		w := words[0]
		if !slices.ContainsFunc(w, func(p part) bool { return p.env != "" }) {
			s.env = append(s.env, variable{name, w})
			continue
		}
		if i.made.Secrets[name], err = i.revealed(w); err != nil {
			return err
		}
		i.secrets = append(i.secrets, name)
	}
	return nil
}

// revealed returns the text of a word with secrets in it.
func (i *importer) revealed(w word) (string, error) {
	var text strings.Builder
	for _, p := range w {
		switch {
		case p.dir:
			return "", errors.New("the bundle has a variable with a secret and a path")
		case p.env != "":
			text.WriteString(i.asker.answers[strings.TrimPrefix(p.text, "user_config.")])
		default:
			text.WriteString(p.text)
		}
	}
	return text.String(), nil
}
