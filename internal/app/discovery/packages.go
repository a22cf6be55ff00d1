package discovery

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/cluster/kubeapi"
	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/packages/lockfile"
	"github.com/orla-project/orla/internal/packages/permission"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/discover"
)

// toolsIn is a folder of tools, with the lock of what is installed in it.
type toolsIn struct {
	dir, real string // absolute; real has no links
	inside    string // the installed package that it is in; "" for none
	file      string // of the lock
	lock      *lockfile.Lock
	err       error // why the lock cannot be read
}

// packages knows what was installed into the folders of tools.
type packages struct {
	folders []toolsIn
	machine permission.Machine
	records map[string]installed // by folder; of those that were asked for
	seen    *discover.Seen       // of the search that found the tools; nil for none
	places  map[string]*place    // by the folder of a file as it is written; of those that were asked for
	doubts  []doubt
	// warnings are of what holds less than a package says.
	warnings []manifest.Problem
}

// installed is what the record in a folder says.
type installed struct {
	is     bool
	record lockfile.Record
	err    error
}

// LockFiles returns where the locks of the folders of tools are.
func LockFiles(cfg *config.Loaded, home string) (files []string) {
	for _, in := range foldersOf(cfg, home) {
		files = append(files, in.file)
	}
	return files
}

func foldersOf(cfg *config.Loaded, home string) (list []toolsIn) {
	dirs := Folders(cfg, home)
	for _, dir := range []string{dirs.ToolsDir, dirs.UserDir} {
		if dir = config.Absolute(dir); dir != "" {
			real := regularfile.Real(dir)
			list = append(list, toolsIn{dir: dir, real: real, inside: lockfile.Inside(real), file: lockfile.Path(dir, config.Absolute(cfg.File), home)})
		}
	}
	return list
}

// MachineOf returns what permissions depend on.
func MachineOf(cfg *config.Loaded, home string) permission.Machine {
	m := permission.Machine{Home: home}
	add := func(paths ...string) {
		for _, path := range paths {
			if path = config.Absolute(path); path != "" && !slices.Contains(m.Private, path) {
				m.Private = append(m.Private, path)
			}
		}
	}
	for _, in := range foldersOf(cfg, home) {
		add(in.dir, in.file)
	}
	add(cfg.SecretsDir, cfg.StateDir)
	if home != "" {
		add(filepath.Join(home, ".orla"))
	}
	add(cfg.File, cfg.LogFile, cfg.K8sKubeconfig)
	if cfg.K8sEnabled || cfg.Kubernetes || cfg.ReplicaListen != "" {
		add(kubeapi.Files(cfg.K8sKubeconfig)...)
	}
	add(cfg.SecretFiles()...)
	add(os.Getenv("CREDENTIALS_DIRECTORY"))
	if path := cfg.AuditPath(); filepath.IsAbs(path) { // and not the journal
		add(path)
	}
	if cfg.Socket != config.NoSocket {
		add(cfg.Socket)
	}
	m.Programs = programs()
	return m
}

// keeps are the variables by which programs are told where they keep what they run or read: the settings and caches of this user, and
// those of the installers of dependencies.
var keeps = []string{
	"XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "UV_CACHE_DIR", "UV_PYTHON_INSTALL_DIR", "UV_TOOL_DIR", "PIP_CACHE_DIR",
	"npm_config_cache", "NPM_CONFIG_CACHE", "PNPM_HOME", "GOPATH", "GOBIN", "GOCACHE", "GOMODCACHE", "CARGO_HOME",
}

// programs returns the folders in which this user's programs are, or keep what they run.
func programs() (folders []string) {
	add := func(path string) {
		if path = filepath.Clean(path); filepath.IsAbs(path) && path != "/" && !slices.Contains(folders, path) {
			folders = append(folders, path)
		}
	}
	for _, path := range filepath.SplitList(os.Getenv("PATH")) {
		add(path)
	}
	if path, err := os.UserCacheDir(); err == nil {
		add(path)
	}
	for _, name := range keeps {
		add(os.Getenv(name))
	}
	return folders
}

func readPackages(cfg *config.Loaded, home string) *packages {
	p := &packages{folders: foldersOf(cfg, home), machine: MachineOf(cfg, home), records: map[string]installed{}, places: map[string]*place{}}
	for i := range p.folders {
		in := &p.folders[i]
		in.lock, in.err = lockfile.Read(in.file)
	}
	return p
}

// order puts first the version that the lock chose, and last those that were installed and are not in the lock
// (docs/decisions/0048).
func (p *packages) order(dir string, versions []string) {
	i := slices.IndexFunc(p.folders, func(in toolsIn) bool { return in.real == filepath.Dir(dir) })
	if i < 0 || p.folders[i].err != nil {
		return
	}
	lock, name := p.folders[i].lock, filepath.Base(dir)
	rank := func(version string) int {
		entry := lock.Find(name, version)
		switch {
		case entry != nil && entry.Serves:
			return 0
		case entry == nil && p.installedAt(filepath.Join(dir, version)).is:
			return 2
		}
		return 1
	}
	slices.SortStableFunc(versions, func(a, b string) int { return rank(a) - rank(b) })
}

// installedAt reads the record of a folder, once.
func (p *packages) installedAt(dir string) installed {
	if p.seen.HidesNothing(dir) {
		return installed{} // as lockfile.ReadRecord says of each of these, for one system call
	}
	known, ok := p.records[dir]
	if ok {
		return known
	}
	record, err := lockfile.ReadRecord(dir)
	if !lockfile.IsMissing(err) {
		known = installed{is: true, record: record, err: err}
	}
	p.records[dir] = known
	return known
}

// restrict gives installed tools the isolation and what was granted, and removes those that nothing is granted to
// because no lock knows them.
func (p *packages) restrict(found *manifest.Result, cfg *config.Loaded) {
	keep(found, func(t *manifest.Tool) error { return p.limit(t, cfg) })
	found.Problems = append(found.Problems, p.warnings...)
	for i := range p.folders {
		found.Problems = append(found.Problems, p.missing(&p.folders[i])...)
	}
}

// keep changes tools in place, and removes those that may not be served.
func keep(found *manifest.Result, change func(*manifest.Tool) error) {
	kept := 0
	for i := range found.Tools {
		t := &found.Tools[i]
		if err := change(t); err != nil {
			found.Problems = append(found.Problems, manifest.Problem{Path: t.Source, Tool: t.Name, Severity: manifest.Fault, Err: err})
			continue
		}
		if kept < i { // they are large
			found.Tools[kept] = *t
		}
		kept++
	}
	clear(found.Tools[kept:])
	found.Tools = found.Tools[:kept]
}

// missing are warnings about versions that are to serve and are not there.
func (p *packages) missing(in *toolsIn) (list []manifest.Problem) {
	if in.inside != "" {
		return nil // its tools say what is wrong
	}
	if in.err != nil {
		return []manifest.Problem{{Path: in.file, Severity: manifest.Warning, Err: fmt.Errorf("cannot be read, and so installed packages are not started: %w", in.err)}}
	}
	for _, name := range in.lock.Names() {
		entry := in.lock.Serving(name)
		if _, err := os.Lstat(filepath.Join(in.dir, name, entry.Version)); err != nil {
			p.doubts = append(p.doubts, doubt{in, name, entry.Version})
			list = append(list, manifest.Problem{Path: in.file, Tool: name, Severity: manifest.Warning, Err: fmt.Errorf("names %s %s, which is not installed in %s; orla install installs it", name, entry.Version, in.dir)})
		}
	}
	return list
}

// limit restricts t if it was installed. The error says why it is not served.
func (p *packages) limit(t *manifest.Tool, cfg *config.Loaded) error {
	in, dir, was := p.find(t)
	if dir == "" {
		return nil
	}
	name, version := filepath.Base(filepath.Dir(dir)), filepath.Base(dir)
	stale := func(format string, args ...any) error {
		return beyond(t, "%s; orla install installs it again, orla uninstall %s removes it", fmt.Sprintf(format, args...), name)
	}
	switch {
	case in == nil && was.err != nil:
		return beyond(t, "its folder %s was installed, is not in a folder of tools any more, and the record of that cannot be read: %v", dir, was.err)
	case in == nil:
		return beyond(t, "its folder %s was installed as %s %s, and is not in a folder of tools any more; what is installed runs only where orla install has put it", dir, was.record.Name, was.record.Version)
	case was.err != nil:
		return stale("its folder was installed, and the record of that cannot be read: %v", was.err)
	case in.err != nil:
		return fmt.Errorf("%s: it was installed, and what it was granted cannot be read: %w", t.Source, in.err)
	}
	entry := in.lock.Find(name, version)
	if !was.is || !was.record.Matches(entry) {
		p.doubts = append(p.doubts, doubt{in, name, version})
	}
	switch {
	case !was.is:
		return stale("%s has %s %s, and the folder has no record of an installation (%s)", in.file, name, version, lockfile.RecordName)
	case entry == nil:
		return stale("it was installed, and %s does not have %s %s", in.file, was.record.Name, was.record.Version)
	case !was.record.Matches(entry):
		return stale("it was installed as %s %s with another digest than %s has", was.record.Name, was.record.Version, in.file)
	}
	word := cfg.PackageOf(name, entry.Source)
	if low := Lower(t, word, cfg); low != nil {
		p.warnings = append(p.warnings, manifest.Problem{Path: t.Source, Tool: t.Name, Severity: manifest.Warning, Err: low})
	}
	return p.grant(t, entry, word)
}

// place is the folder of an installed package, and the folder of tools that this is in.
type place struct {
	in  *toolsIn
	dir string
	was installed
}

// find returns the folder of the package that t is in, and the folder of tools that this is in; dir is "" if t was
// not installed.
func (p *packages) find(t *manifest.Tool) (in *toolsIn, dir string, was installed) {
	for _, file := range [...]string{t.Source, t.Path} {
		end := strings.LastIndexByte(file, '/')
		if end < 0 {
			continue
		}
		at, known := p.places[file[:end]]
		if !known {
			at = p.above(filepath.Dir(config.Absolute(file)))
			p.places[file[:end]] = at
		}
		if at != nil {
			return at.in, at.dir, at.was
		}
	}
	return nil, "", installed{}
}

// above finds the installed package that a folder is in, or is; nil for none.
func (p *packages) above(folder string) *place {
	for ; ; folder = filepath.Dir(folder) {
		above := slices.IndexFunc(p.folders, func(in toolsIn) bool {
			return in.dir == filepath.Dir(filepath.Dir(folder)) || in.real == filepath.Dir(filepath.Dir(folder))
		})
		if was := p.installedAt(folder); was.is {
			if above < 0 {
				return &place{nil, folder, was}
			}
			return &place{&p.folders[above], folder, was}
		}
		if above >= 0 && p.folders[above].lock != nil && p.folders[above].lock.Find(filepath.Base(filepath.Dir(folder)), filepath.Base(folder)) != nil {
			return &place{&p.folders[above], folder, installed{}}
		}
		at := slices.IndexFunc(p.folders, func(in toolsIn) bool { return in.dir == folder || in.real == folder })
		if at >= 0 && p.folders[at].inside != "" {
			return &place{nil, p.folders[at].inside, p.installedAt(p.folders[at].inside)}
		}
		if at >= 0 || folder == filepath.Dir(folder) {
			return nil
		}
	}
}

// Grant makes the tool of a package, which an entry of a lock is about, what it is once it is installed.
func Grant(t *manifest.Tool, entry *lockfile.Package, cfg *config.Loaded, home string) error {
	p := &packages{machine: MachineOf(cfg, home)}
	word := cfg.PackageOf(entry.Name, entry.Source)
	_ = Lower(t, word, cfg) // who is to agree is told of it
	if err := p.grant(t, entry, word); err != nil {
		return err
	}
	withLimits(t, cfg)
	return ApplyTerms(t, cfg)
}

// grant sets what an installed tool may do (SPEC M7, N4, R6).
func (p *packages) grant(t *manifest.Tool, entry *lockfile.Package, operator config.PackageConfig) error {
	texts := entry.Permissions
	if operator.Permissions != nil {
		texts = operator.Permissions
	}
	granted, err := permission.ParseAll(texts)
	if err != nil {
		return beyond(t, "what it was granted: %v", err)
	}
	terms, err := p.machine.Of(granted)
	if err != nil {
		return beyond(t, "what it was granted cannot be given: %v", err)
	}
	if operator.Permissions == nil {
		those, reasons := p.machine.Unenforced(granted)
		for i, one := range those {
			if !slices.Contains(entry.Unenforced, one.String()) {
				return beyond(t, "%s was granted, but not that it cannot be enforced: %s; orla install --accept-unenforced accepts that", one, reasons[i])
			}
		}
	}
	if t.Kind == manifest.Capsule {
		t.Runtime.Pin = cmp.Or(manifest.Pin(operator.Pin), manifest.PinHold)
	}
	t.Run.Setup.Package = entry.Name + " " + entry.Digest
	if t.Run.Setup.NoScripts = !operator.Scripts; t.Run.Setup.NoScripts && t.Run.Setup.Command != nil {
		return beyond(t, "runtime.setup: an installed package may not run a command of its own; the operator allows it with scripts: true in packages")
	}
	if err := ownPrefix(t); err != nil {
		return err
	}
	if t.Isolation.PullSecret != (manifest.Isolation{}).PullSecret {
		return beyond(t, "runtime.image_pull_secret: an installed package may not use secrets of this Orla")
	}
	if err := ownSecrets(t, entry, granted); err != nil {
		return err
	}
	if remote := t.Runtime.Remote; remote != nil { // no process of this machine
		if host, err := permission.RemoteOf(remote.Endpoint); err != nil || len(permission.More([]permission.Permission{host}, granted)) > 0 {
			return beyond(t, "its server is %s, and it was not granted to send calls there; uninstall it and install it again", remote.Endpoint)
		}
		return nil
	}
	if entry.Source.Kind == lockfile.Server && t.Runtime.Generated {
		// Orla wrote this resource, which runs an image by an engine with flags that isolate it.
		if !terms.Network {
			return beyond(t, "its image has a network, which was not granted")
		}
		return nil
	}
	entry.PinImage(t)
	switch mode := manifest.IsolationMode(operator.Isolation); {
	case mode == manifest.IsolationNone:
		t.Isolation = manifest.Isolation{Resources: t.Isolation.Resources}
		return nil
	case mode != "":
		t.Isolation.Mode = mode
	case !t.Isolation.Isolated():
		t.Isolation.Mode = manifest.IsolationSandboxed
	}
	if !terms.Network || t.Isolation.Mode == manifest.IsolationSandboxed {
		t.Isolation.Network = ""
	}
	t.Isolation.Grants = manifest.Grants{Reads: terms.Reads, Writes: terms.Writes, Network: terms.Network, Env: terms.Env, Home: terms.Home}
	if !t.Isolation.Grants.Empty() {
		t.Isolation.Grants.Hides = p.machine.Private
	}
	return nil
}

// ownSecrets lets an installed tool have the secrets that were granted, of the Secret of its package (SPEC M7): one that the user
// has made for a tool or for a package from elsewhere may have the same name.
func ownSecrets(t *manifest.Tool, entry *lockfile.Package, granted []permission.Permission) error {
	asked, err := lockfile.SecretsOf(*t)
	if err != nil {
		return beyond(t, "%v", err)
	}
	if more := permission.More(asked, granted); len(more) > 0 {
		return beyond(t, "it asks for %s, which was not granted; install it again from where it came, or name it in permissions below packages in orla.yaml", strings.Join(permission.Texts(more), ", "))
	}
	entry.BindSecrets(t)
	return nil
}

// ownPrefix gives the tools of an installed capsule names that begin with its own, also if it has only one: another name could
// be that of a tool of another capsule (SPEC M7, D7). A manifest that declares the tool, and an McpServer, have no other names.
func ownPrefix(t *manifest.Tool) error {
	own := t.Name + "__"
	if p := t.Runtime.ToolPrefix; p != nil && *p != own {
		return beyond(t, "runtime.tool_prefix: an installed package may not choose %q, since its tools could pass for those of others", *p)
	}
	if t.Kind == manifest.Capsule && !t.Runtime.Declared && !t.Runtime.Generated {
		t.Runtime.ToolPrefix = &own
	}
	return nil
}
