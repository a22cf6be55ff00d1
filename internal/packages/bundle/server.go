package bundle

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/orla-project/orla/internal/packages/origin"
	"github.com/orla-project/orla/internal/packages/registry"
)

// Options says for what machine a server is made.
type Options struct {
	Engine string // runs images: "docker" or "podman"; if empty, docker
	GOOS   string // if empty, that of this machine
	GOARCH string
}

// Server makes a package or a resource of a server of an MCP registry. Packages are preferred to remote servers, and of
// these those that Orla can isolate: npm and pypi, then bundles, then images.
//
// The error is an *UnansweredError if values are missing: Made has the questions then. Any other error is the reason
// why the server cannot be used.
func Server(entry registry.Entry, answers map[string]string, opts Options) (*Made, error) {
	s := entry.Server
	if s == nil {
		return nil, fmt.Errorf("%s is not an MCP server", entry.Name)
	}
	opts = Options{Engine: cmp.Or(opts.Engine, "docker"), GOOS: cmp.Or(opts.GOOS, runtime.GOOS), GOARCH: cmp.Or(opts.GOARCH, runtime.GOARCH)}
	m := maker{server: s, name: shortName(s.Name), opts: opts, here: origin.OnThisMachine(entry.Registry)}
	if m.name == "" {
		return nil, fmt.Errorf("%s cannot be the name of a package", s.Name)
	}
	var reasons []string
	try := func(what string, err error, made *Made) (*Made, error, bool) {
		if _, unanswered := errors.AsType[*UnansweredError](err); err == nil || unanswered {
			if s.Deprecated {
				made.Notes = append(made.Notes, strings.TrimSuffix("the registry says that the server is deprecated: "+s.Message, ": "))
			}
			return made, err, true
		}
		reasons = append(reasons, what+": "+err.Error())
		return nil, nil, false
	}
	kinds := []string{"npm", "pypi", "mcpb", "oci"}
	for _, kind := range kinds {
		for _, p := range s.Packages {
			if strings.ToLower(p.RegistryType) != kind {
				continue
			}
			made, err := m.pack(kind, p, &asker{answers: answers})
			if made, err, done := try(kind, err, made); done {
				return made, err
			}
		}
	}
	for _, p := range s.Packages {
		if !slices.Contains(kinds, strings.ToLower(p.RegistryType)) {
			reasons = append(reasons, fmt.Sprintf("Orla does not run packages of %q", line(p.RegistryType, 40)))
		}
	}
	for _, r := range s.Remotes {
		made, err := m.remote(r, &asker{answers: answers})
		if made, err, done := try("remote", err, made); done {
			return made, err
		}
	}
	if len(reasons) == 0 {
		reasons = append(reasons, "it has neither a package nor a remote server")
	}
	return nil, fmt.Errorf("%s cannot be used: %s", s.Name, strings.Join(reasons, "; "))
}

// maker makes one server.
type maker struct {
	server *registry.Server
	name   string // of the package or resource
	opts   Options
	here   bool // the registry is on this machine
}

func (m maker) pack(kind string, p registry.Package, a *asker) (*Made, error) {
	if kind != "mcpb" && p.Transport.Type != "stdio" && p.Transport.Type != "" {
		return nil, fmt.Errorf("it speaks %s on this machine, and Orla starts servers over stdio", line(p.Transport.Type, 40))
	}
	switch kind {
	case "npm", "pypi":
		return m.fromIndex(kind, p, a)
	case "mcpb":
		return m.bundle(p)
	default:
		return m.image(p, a)
	}
}

func (m maker) about() about {
	s := m.server
	return about{
		name: m.name, version: semantic(s.Version), description: cmp.Or(line(s.Description, 1000), line(s.Name, 200)),
		repository: webURL(s.Repository.URL), homepage: webURL(s.WebsiteURL), permissions: []string{"network"},
		more: "a server of an MCP registry, " + line(s.Name, 200) + ".",
	}
}

// webURL returns a URL if it is one of https.
func webURL(text string) string {
	if u, err := url.Parse(text); err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || line(text, 500) != text {
		return ""
	}
	return text
}

var (
	npmName = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(@[A-Za-z0-9~_-][A-Za-z0-9._~-]*/)?[A-Za-z0-9~_-][A-Za-z0-9._~-]*$`)
	})
	npmVersion = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)
	})
	pypiName = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?(\[[A-Za-z0-9._,-]+\])?$`)
	})
	pypiVersion = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^([0-9]+!)?[0-9]+(\.[0-9]+)*((a|b|rc)[0-9]+)?(\.post[0-9]+)?(\.dev[0-9]+)?(\+[A-Za-z0-9.]+)?$`)
	})
	moduleName = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$`)
	})
)

// fromIndex makes a package that pins one of npm or of PyPI.
func (m maker) fromIndex(kind string, p registry.Package, a *asker) (*Made, error) {
	version := strings.TrimPrefix(p.Version, "v")
	if kind == "npm" && (!npmName().MatchString(p.Identifier) || !npmVersion().MatchString(version)) ||
		kind == "pypi" && (!pypiName().MatchString(p.Identifier) || !pypiVersion().MatchString(version)) {
		return nil, fmt.Errorf("%q in version %q is not one exact version of a package", line(p.Identifier, 100), line(p.Version, 50))
	}
	s := start{packaged: p.Identifier}
	extra, err := runtimeArguments(kind, p, &s)
	if err != nil {
		return nil, err
	}
	made := m.made()
	secrets, err := m.configure(p, a, &s, made)
	if err != nil {
		return nil, err
	}
	about := m.about()
	for _, file := range a.paths {
		about.permissions = append(about.permissions, "filesystem:read:"+path.Clean(file))
	}
	made.Questions = a.questions
	made.Notes = append(made.Notes, fmt.Sprintf("it installs %s %s of %s", p.Identifier, version, kind))
	if made.index, err = indexOf(p, m.here); err != nil {
		return nil, err
	}
	made.Files = map[string]string{}
	if kind == "npm" {
		made.Files[packageFile] = fmt.Sprintf("{\n  \"name\": %s,\n  \"version\": %s,\n  \"private\": true,\n  \"dependencies\": {\n    %s: %s\n  }\n}\n",
			scalar("orla-"+strings.ToLower(m.name)), scalar(about.version), scalar(p.Identifier), scalar(version))
		if made.index != "" {
			made.Files[".npmrc"] = "registry=" + made.index + "\n"
		}
		made.Files[nodeFile] = s.node()
		made.Files["tool.yaml"] = about.toolYAML(nodeFile, secrets)
		return made, a.err()
	}
	requirements := p.Identifier + "==" + version + "\n"
	for _, r := range extra {
		requirements += r + "\n"
	}
	if made.index != "" {
		requirements = indexLine(made.index) + requirements
	}
	s.packaged, _, _ = strings.Cut(p.Identifier, "[")
	made.Files[requirementsFile] = requirements
	made.Files[pythonFile] = s.python()
	made.Files["tool.yaml"] = about.toolYAML(pythonFile, secrets)
	return made, a.err()
}

// plainURL is an address in which no installer finds anything to expand: in its own files, npm and uv put variables of their
// environment in the place of their names.
var plainURL = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^https://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~/-]*)?$`) })

// indexOf returns the index that a package is of; "" for the usual one.
func indexOf(p registry.Package, here bool) (string, error) {
	base := strings.TrimRight(p.RegistryBaseURL, "/")
	switch {
	case slices.Contains([]string{"", "https://registry.npmjs.org", "https://pypi.org", "https://pypi.org/simple"}, base):
		return "", nil
	case webURL(base) == "" || !plainURL().MatchString(base):
		return "", fmt.Errorf("its index %q is not an https URL of plain characters", line(base, 100))
	case !here && origin.MayBeThisMachine(base):
		return "", fmt.Errorf("its index %q may be this machine, which a registry elsewhere cannot name", line(base, 100))
	}
	return base, nil
}

// runtimeArguments reads what would be arguments of npx or uvx. extra are further packages.
func runtimeArguments(kind string, p registry.Package, s *start) (extra []string, err error) {
	words := literal(p.RuntimeArguments)
	for i := 0; i < len(words); i++ {
		flag, value, has := strings.Cut(words[i], "=")
		next := func() string {
			if !has && i+1 < len(words) {
				i++
				return words[i]
			}
			return value
		}
		switch {
		case kind == "npm" && (flag == "-y" || flag == "--yes"), kind == "pypi" && (flag == "--quiet" || flag == "-q"):
		case words[i] == p.Identifier || words[i] == p.Identifier+"@"+p.Version || words[i] == p.Identifier+"=="+p.Version:
		case kind == "npm" && (flag == "-p" || flag == "--package") || kind == "pypi" && flag == "--from":
			if !sameName(next(), p.Identifier) {
				return nil, errors.New("its arguments install another package than the one that it names")
			}
		case kind == "pypi" && flag == "--with":
			with := next()
			if name, version, ok := strings.Cut(with, "=="); !ok || !pypiName().MatchString(name) || !pypiVersion().MatchString(version) {
				return nil, fmt.Errorf("its argument --with %q does not name one exact version", line(with, 60))
			}
			extra = append(extra, with)
		case kind == "pypi" && (flag == "--python" || flag == "-p"):
			next() // Orla finds a Python that the packages allow
		case kind == "pypi" && words[i] == "-m" && i+1 < len(words) && moduleName().MatchString(words[i+1]):
			s.module, s.packaged = words[i+1], ""
			i++
		case !strings.HasPrefix(words[i], "-") && i == len(words)-1:
			s.program = words[i] // which program of the package
		default:
			return nil, fmt.Errorf("its argument %q is for %s, which Orla does not use", line(words[i], 60), line(p.RuntimeHint, 30))
		}
	}
	return extra, nil
}

// sameName reports whether a requirement is about a package.
func sameName(requirement, name string) bool {
	scope := ""
	if strings.HasPrefix(requirement, "@") {
		scope, requirement = "@", requirement[1:]
	}
	if end := strings.IndexAny(requirement, "[=@<>~! "); end >= 0 {
		requirement = requirement[:end]
	}
	name, _, _ = strings.Cut(name, "[")
	return scope+requirement == name
}

// literal returns arguments that have fixed values.
func literal(list []registry.Argument) (words []string) {
	for _, a := range list {
		if a.Type == "named" && a.Name != "" {
			words = append(words, a.Name)
		}
		if value := string(a.Value); value != "" {
			words = append(words, value)
		} else if a.Type != "named" && a.Default != "" {
			words = append(words, string(a.Default))
		}
	}
	return words
}

// configure adds the arguments and variables of a package to a start, and returns which variables are secrets.
func (m maker) configure(p registry.Package, a *asker, s *start, made *Made) (secrets []string, err error) {
	args, err := a.arguments(p.PackageArguments)
	if err != nil {
		return nil, err
	}
	for i, v := range args {
		if !v.secret {
			s.args = append(s.args, text(v.text))
			continue
		}
		name := fmt.Sprintf("ORLA_ARGUMENT_%d", i)
		made.Secrets[name] = v.text
		secrets = append(secrets, name)
		s.args = append(s.args, word{{env: name}})
		made.Notes = append(made.Notes, "it takes a secret as an argument")
	}
	seen := map[string]bool{}
	for _, v := range p.EnvironmentVariables {
		ignore, err := checkVariable(v.Name)
		switch {
		case err != nil:
			return nil, err
		case seen[v.Name]:
			return nil, fmt.Errorf("it sets the variable %s twice", v.Name)
		case ignore:
			continue
		}
		seen[v.Name] = true
		value, err := a.input(v.Name, v.Input)
		switch {
		case err != nil:
			return nil, err
		case !value.there:
		case value.secret:
			made.Secrets[v.Name] = value.text
			secrets = append(secrets, v.Name)
		default:
			s.env = append(s.env, variable{v.Name, text(value.text)})
		}
	}
	return secrets, nil
}

var sha256Form = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{64}$`) })

// platforms are the words for platforms in the names of files.
var platforms = map[string][]string{
	"linux": {"linux"}, "darwin": {"darwin", "macos", "osx"}, "windows": {"windows", "win32", "win-"},
	"amd64": {"amd64", "x64", "x86_64"}, "arm64": {"arm64", "aarch64"},
}

// bundle returns where an MCP bundle is.
func (m maker) bundle(p registry.Package) (*Made, error) {
	u, err := url.Parse(p.Identifier)
	switch sum := strings.ToLower(p.FileSHA256); {
	case err != nil || webURL(p.Identifier) == "":
		return nil, errors.New("its bundle is not at an https URL")
	case !m.here && origin.MayBeThisMachine(p.Identifier):
		return nil, errors.New("its bundle may be on this machine, which a registry elsewhere cannot name")
	case !sha256Form().MatchString(sum):
		return nil, errors.New("the registry has no digest of its bundle")
	case !forPlatform(path.Base(u.Path), m.opts.GOOS, m.opts.GOARCH):
		return nil, fmt.Errorf("its bundle %s is for another platform", line(path.Base(u.Path), 100))
	default:
		made := m.made()
		made.Bundle = &Download{URL: p.Identifier, SHA256: sum}
		return made, nil
	}
}

// forPlatform reports whether the name of a file names the platform, or none.
func forPlatform(name, goos, goarch string) bool {
	name = strings.ToLower(name)
	for _, group := range [][]string{{"linux", "darwin", "windows"}, {"amd64", "arm64"}} {
		named, ours := false, false
		for _, platform := range group {
			if slices.ContainsFunc(platforms[platform], func(word string) bool { return strings.Contains(name, word) }) {
				named = true
				ours = ours || platform == goos || platform == goarch
			}
		}
		if named && !ours {
			return false
		}
	}
	return true
}
