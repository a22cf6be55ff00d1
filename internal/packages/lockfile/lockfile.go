// Package lockfile reads and writes the two records of installed packages: orla.lock, which says what was granted
// and which version serves, and .orla-package.json in the folder of a package, which says that it was installed
// (docs/decisions/0048).
package lockfile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/internal/packages/permission"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/keys"
)

// Name is the name of the lock.
const Name = "orla.lock"

// Lock is the content of an orla.lock. The zero Lock is that of no packages.
type Lock struct {
	// Packages are sorted by name and then by version, the highest first. At most one of each name serves.
	Packages []Package
}

// Package is what the lock says of one version of a package.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Serves says that this version serves, if several are installed.
	Serves bool   `json:"serves,omitempty"`
	Source Source `json:"source"`
	Tag    string `json:"tag,omitempty"`
	Commit string `json:"commit,omitempty"`
	Digest string `json:"digest"` // h1: of the tree
	// Image is the digest of the image that the package names by a tag, which can be moved; "" if it names none, or by a digest.
	Image string `json:"image,omitempty"`
	// Permissions are what was granted, sorted.
	Permissions []string `json:"permissions,omitempty"`
	// Unenforced are those of them that were accepted although Orla cannot hold the package to them.
	Unenforced []string `json:"unenforced,omitempty"`
	// Signer is the SSH key that signed the tag: its fingerprint and the key.
	Signer string `json:"signer,omitempty"`
	// Unsigned says that a version without a signature was accepted.
	Unsigned bool `json:"unsigned,omitempty"`
	// Dependencies are digests of the locks of packages from other package managers, by file.
	Dependencies map[string]string `json:"dependencies,omitempty"`
	// Tools are digests of the definitions in the manifest, by tool.
	Tools map[string]string `json:"tools,omitempty"`
}

// Source is where a package came from.
type Source struct {
	Kind     Kind   `json:"kind"`
	URL      string `json:"url,omitempty"`      // of a repository, or the path of a folder or file
	Registry string `json:"registry,omitempty"` // that named it
	Server   string `json:"server,omitempty"`   // its name in an MCP registry
	Made     *Made  `json:"made,omitempty"`     // with what Orla made the package; nil for others
}

// Made is what a package was made with that Orla itself writes, of an MCP bundle or a server: the same makes the same again.
type Made struct {
	Answers map[string]string `json:"answers,omitempty"` // that are not secret
	Secrets []string          `json:"secrets,omitempty"` // keys of those that are
	At      string            `json:"at,omitempty"`      // when the versions of dependencies were chosen, RFC 3339
}

// Time is At; zero if there is none.
func (m *Made) Time() time.Time {
	if m == nil {
		return time.Time{}
	}
	at, _ := time.Parse(time.RFC3339, m.At) // zero if it is not one
	return at
}

// Same reports whether two sources are one, so that a package from one of them may take the place of a package from the
// other. A server of a registry stays the same if it comes as something else.
func (s Source) Same(other Source) bool {
	if s.Server != "" || other.Server != "" {
		return s.Server == other.Server && s.URL == other.URL
	}
	return s.Kind == other.Kind && s.URL == other.URL
}

// String says where something came from.
func (s Source) String() string {
	if s.Server != "" {
		return s.Server + " of " + s.URL
	}
	return s.URL
}

// Kind is a kind of source.
type Kind string

// The kinds of sources.
const (
	Git    Kind = "git"
	Local  Kind = "local"  // a folder or an archive
	Bundle Kind = "bundle" // an MCP bundle
	Server Kind = "server" // of an MCP registry
)

// Values lists what kind may be.
func (Kind) Values() []string {
	return []string{string(Git), string(Local), string(Bundle), string(Server)}
}

// document is the file.
type document struct {
	Version  int       `json:"version"`
	Packages []Package `json:"packages,omitempty"`
}

// format is the version of the file.
const format = 1

// The bounds of a lock, which may come with a repository of others: bytes, and packages.
const (
	maxSize     = 8 << 20
	maxPackages = 10_000
)

// Read reads a lock. One that does not exist is empty. The faults of others are yamldoc.Faults.
func Read(file string) (*Lock, error) {
	real, err := followed(file)
	if err != nil {
		return nil, err
	}
	data, err := regularfile.Read(real, maxSize+1)
	if errors.Is(err, fs.ErrNotExist) {
		return &Lock{}, nil
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return Parse(file, data)
}

// followed returns the file behind a lock that is a link. It follows a link only to a file in the lock's own folder or
// below it, as a volume of Kubernetes has it: a repository of others can have a link to any file of this user, such as
// the lock of another project.
func followed(file string) (string, error) {
	if info, err := os.Lstat(file); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return file, nil //nolint:nilerr // who reads or writes it says what is wrong
	}
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		return "", fmt.Errorf("%s is a link that leads nowhere: remove it", file)
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(file)); err != nil || !regularfile.Within(dir, real) {
		return "", fmt.Errorf("%s is a link to %s, which is outside its folder: Orla does not follow it; put the file itself there", file, real)
	}
	return real, nil
}

// Parse reads the text of a lock. file is its name in faults.
func Parse(file string, data []byte) (*Lock, error) {
	var d document
	doc, err := yamldoc.Decode(file, data, &d, yamldoc.Options{MaxSize: maxSize})
	if err != nil {
		return nil, err
	}
	if d.Version != format {
		doc.Faultf("version", "is %d, and this Orla reads %d", d.Version, format)
	}
	if n := len(d.Packages); n > maxPackages {
		doc.Faultf("packages", "are %d, and a lock has at most %d", n, maxPackages)
		return nil, doc.Err()
	}
	seen, serves := map[string]bool{}, map[string]bool{}
	for i, p := range d.Packages {
		p.check(func(key, format string, args ...any) {
			doc.Faultf(fmt.Sprintf("packages[%d]%s", i, key), format, args...)
		})
		id := p.Name + "@" + p.Version
		if seen[id] {
			doc.Faultf(fmt.Sprintf("packages[%d]", i), "%s is there twice", id)
		}
		seen[id] = true
		if p.Serves && serves[p.Name] {
			doc.Faultf(fmt.Sprintf("packages[%d].serves", i), "another version of %s serves already", p.Name)
		}
		serves[p.Name] = serves[p.Name] || p.Serves
	}
	if err := doc.Err(); err != nil {
		return nil, err
	}
	l := &Lock{d.Packages}
	l.sort()
	return l, nil
}

var (
	digest  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^h1:[A-Za-z0-9+/]{43}=$`) })
	commit  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`) })
	content = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^sha256:[0-9a-f]{64}$`) })
)

// reserved are names of files and folders that mean something else in a folder of tools, also beside a tool that is one file:
// what declares its dependencies (SPEC R1). So does each name that ends with ".lock".
var reserved = []string{
	Name, "orla.yaml", "tool.yaml", "tool.yml", "orla-tool.json", "node_modules", "__pycache__", "venv",
	"requirements.txt", "pyproject.toml", "package.json", "package-lock.json", "npm-shrinkwrap.json", "pnpm-lock.yaml", "pnpm-workspace.yaml", "secret.yaml",
}

// ValidName reports whether a package may have a name: it is that of a folder in a folder of tools. It has no two of "_", "." and
// "-" in a row, which stand between the name of a capsule or a server and that of its tool, and none at its end (SPEC M7).
func ValidName(name string) bool {
	return manifest.ValidName(name) && !strings.HasPrefix(name, ".") && !slices.Contains(reserved, strings.ToLower(name)) && !strings.HasSuffix(strings.ToLower(name), ".lock") &&
		!strings.Contains(manifest.Dashed(name)+"-", "--")
}

// PinImage makes the tool of an installed package run in the image that it was installed with: the tag that the package names may
// be moved. A lock that was written before it had digests of images leaves the tag as it is.
func (p *Package) PinImage(t *manifest.Tool) {
	if t.Isolation.Image != "" && p.Image != "" {
		t.Isolation.Image = keys.PinnedImage(t.Isolation.Image, p.Image)
	}
}

// check calls wrong for each fault of a package.
func (p *Package) check(wrong func(key, format string, args ...any)) {
	if !ValidName(p.Name) {
		wrong(".name", "%q is not the name of a package", p.Name)
	}
	if !manifest.ValidVersion(p.Version) {
		wrong(".version", "%q is not a SemVer 2.0 version", p.Version)
	}
	if !digest().MatchString(p.Digest) {
		wrong(".digest", "%q is not a digest, which is h1: and 44 characters", p.Digest)
	}
	if p.Image != "" && !content().MatchString(p.Image) {
		wrong(".image", "%q is not the digest of an image, which is sha256: and 64 characters", p.Image)
	}
	if p.Commit != "" && !commit().MatchString(p.Commit) {
		wrong(".commit", "%q is not a whole commit id", p.Commit)
	}
	if p.Unsigned && p.Signer != "" {
		wrong(".unsigned", "does not go with signer")
	}
	for _, list := range []struct {
		key   string
		texts []string
	}{{"permissions", p.Permissions}, {"unenforced", p.Unenforced}} {
		if n := len(list.texts); n > permission.Most {
			wrong("."+list.key, "are %d, and a package has at most %d", n, permission.Most)
			continue
		}
		for i, text := range list.texts {
			if _, err := permission.Parse(text); err != nil {
				wrong(fmt.Sprintf(".%s[%d]", list.key, i), "%v", err)
			}
			if !slices.Contains(p.Permissions, text) {
				wrong(fmt.Sprintf(".%s[%d]", list.key, i), "%s is not one of the permissions", text)
			}
		}
	}
	for key, of := range map[string]map[string]string{".dependencies": p.Dependencies, ".tools": p.Tools} {
		for _, name := range slices.Sorted(maps.Keys(of)) {
			if !content().MatchString(of[name]) {
				wrong(key, "%q of %q is not a digest, which is sha256: and 64 characters", of[name], name)
			}
		}
	}
	if made := p.Source.Made; made != nil && made.At != "" && made.Time().IsZero() {
		wrong(".source.made.at", "%q is not a time such as 2026-01-31T12:00:00Z", made.At)
	}
	for key, text := range map[string]string{".source.url": p.Source.URL, ".source.registry": p.Source.Registry, ".source.server": p.Source.Server, ".tag": p.Tag, ".signer": p.Signer} {
		if strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f || c == '\uFFFD' }) {
			wrong(key, "has a control character")
		}
	}
}

func (l *Lock) sort() {
	slices.SortFunc(l.Packages, func(a, b Package) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), manifest.CompareVersions(b.Version, a.Version), strings.Compare(a.Version, b.Version))
	})
}

// Find returns the entry of a version; nil if there is none.
func (l *Lock) Find(name, version string) *Package {
	for _, p := range l.Versions(name) {
		if p.Version == version {
			return p
		}
	}
	return nil
}

// Versions returns the entries of a name, the highest version first.
func (l *Lock) Versions(name string) (list []*Package) {
	first, _ := slices.BinarySearchFunc(l.Packages, name, func(p Package, name string) int { return strings.Compare(p.Name, name) })
	for i := first; i < len(l.Packages) && l.Packages[i].Name == name; i++ {
		list = append(list, &l.Packages[i])
	}
	return list
}

// Serving returns the entry that is to serve: the one that says so, otherwise the highest; nil if there is none.
func (l *Lock) Serving(name string) *Package {
	all := l.Versions(name)
	if len(all) == 0 {
		return nil
	}
	return all[max(slices.IndexFunc(all, func(p *Package) bool { return p.Serves }), 0)]
}

// Names lists the packages.
func (l *Lock) Names() (names []string) {
	for _, p := range l.Packages {
		if len(names) == 0 || names[len(names)-1] != p.Name { // they are sorted
			names = append(names, p.Name)
		}
	}
	return names
}

// Clone returns a copy that shares nothing that Put, Remove and Use change.
func (l *Lock) Clone() *Lock { return &Lock{slices.Clone(l.Packages)} }

// Put adds an entry, or replaces that of the same version. If it serves, no other version does.
func (l *Lock) Put(p Package) {
	l.Remove(p.Name, p.Version)
	l.Packages = append(l.Packages, p)
	l.sort()
	if p.Serves {
		l.Use(p.Name, p.Version)
	}
}

// Remove removes the entry of a version.
func (l *Lock) Remove(name, version string) {
	l.Packages = slices.DeleteFunc(l.Packages, func(p Package) bool { return p.Name == name && p.Version == version })
}

// Use makes a version the one that serves.
func (l *Lock) Use(name, version string) {
	for i := range l.Packages {
		if p := &l.Packages[i]; p.Name == name {
			p.Serves = p.Version == version
		}
	}
}

// Path returns where the lock of a folder of tools is: configFile is the orla.yaml that was read, or "", and home
// the user's home, or "".
func Path(toolsDir, configFile, home string) string {
	if home != "" && filepath.Clean(toolsDir) == filepath.Join(home, ".orla", "tools") {
		return filepath.Join(home, ".orla", Name)
	}
	if configFile != "" && (home == "" || filepath.Clean(configFile) != filepath.Join(home, ".orla", "config.yaml")) {
		return filepath.Join(filepath.Dir(configFile), Name)
	}
	if found := Nearest(toolsDir); found != "" {
		return filepath.Join(filepath.Dir(found), Name)
	}
	return filepath.Join(toolsDir, Name)
}

// Nearest returns the orla.yaml of a folder, or of the nearest folder above it that has one; "" if there is none. That of an
// installed package does not count: strangers wrote it.
func Nearest(dir string) string {
	found := nearest(dir, func(dir string) bool {
		_, err := os.Lstat(filepath.Join(dir, "orla.yaml"))
		return err == nil && Inside(regularfile.Real(dir)) == ""
	})
	if found == "" {
		return ""
	}
	return filepath.Join(found, "orla.yaml")
}

// nearest returns a folder, or the nearest one above it, for which is reports true; "" if there is none.
func nearest(dir string, is func(dir string) bool) string {
	for ; !is(dir); dir = filepath.Dir(dir) {
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
	return dir
}
