// Package bundle makes packages and resources of what others publish in their own forms: MCP bundles
// (.mcpb), and the servers of MCP registries (SPEC M3). It also packs a package.
//
// What it makes runs without npx, uvx and the like: a package has a small program that Orla starts, which
// runs the server in the same process, from the environment that internal/deps installs. Its invariant: what it
// makes names exact versions, or there is a reason why it makes nothing. No value of a secret is in a package.
package bundle

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/orla-project/orla/internal/observe/brief"
	"github.com/orla-project/orla/manifest"
)

// Made is a package or a resource, and what has to be known of it.
type Made struct {
	Name, Version string
	// Files is a package: the content of its files by their paths. The entrypoint is executable.
	Files map[string]string
	// Resource is the McpServer of a server that is not a package.
	Resource []byte
	// Image is the image that Resource runs. It may be named by a tag, which its owner can move: Measure or Pin pins it.
	Image string
	// Bundle is an MCP bundle, which has to be fetched and then imported.
	Bundle *Download
	// Questions are all that can be answered.
	Questions []Question
	// Secrets are values that belong in the Secret of the package, by their keys.
	Secrets map[string]string
	// Notes say what somebody should know before it is installed.
	Notes []string

	index string // has the packages; "" for the usual one
}

// Download is a file elsewhere.
type Download struct {
	URL, SHA256 string
}

// Write writes the files of a package into a folder, which exists.
func (m *Made) Write(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return writeFiles(root, m.Files)
}

// programs are the files that are executable.
var programs = []string{nodeFile, pythonFile, shellFile}

func writeFiles(root *os.Root, files map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		mode := os.FileMode(0o644)
		if slices.Contains(programs, name) {
			mode = 0o755
		}
		f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, os.ErrExist) {
			return fmt.Errorf("the package has a file %s already", name)
		}
		if err != nil {
			return err
		}
		_, err = f.WriteString(files[name])
		if err := errors.Join(err, f.Chmod(mode), f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// scalar returns a text as a scalar of YAML: one of JSON is one.
func scalar(text string) string {
	out, _ := json.Marshal(text) // a string can always be encoded
	return string(out)
}

func list(texts []string) string {
	var all []string
	for _, t := range texts {
		all = append(all, scalar(t))
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// about is what tool.yaml says of a package, besides how it runs.
type about struct {
	name, version, description                  string
	author, license, repository, homepage, more string
	keywords, dependencies, permissions         []string
}

// toolYAML returns a tool.yaml for a capsule that speaks MCP.
func (a about) toolYAML(entrypoint string, secretEnv []string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "# Written by Orla: %s\n", a.more)
	for _, line := range [][2]string{
		{"name", a.name},
		{"version", a.version},
		{"description", a.description},
		{"entrypoint", entrypoint},
		{"author", a.author},
		{"license", a.license},
		{"repository", a.repository},
		{"homepage", a.homepage},
	} {
		if line[1] != "" {
			fmt.Fprintf(&out, "%s: %s\n", line[0], scalar(line[1]))
		}
	}
	for _, line := range []struct {
		key  string
		list []string
	}{{"keywords", a.keywords}, {"dependencies", a.dependencies}, {"permissions", a.permissions}} {
		if len(line.list) > 0 {
			fmt.Fprintf(&out, "%s: %s\n", line.key, list(line.list))
		}
	}
	out.WriteString("runtime:\n  mode: capsule\n  handshake: mcp\n  startup_timeout_ms: 30000\n")
	if len(secretEnv) > 0 {
		fmt.Fprintf(&out, "  secret_env: %s\n", list(secretEnv))
	}
	return out.String()
}

var (
	severalMarks = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[._-]{2,}`) }) // which no name of a package has
	notInVersion = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[^0-9A-Za-z.-]+`) })
	threeNumbers = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^v?([0-9]+)(?:\.([0-9]+))?(?:\.([0-9]+))?(.*)$`) })
)

// semantic returns a version as a semantic version: as it is, or one that is near to it.
func semantic(text string) string {
	text = strings.TrimPrefix(text, "v")
	if manifest.ValidVersion(text) {
		return text
	}
	m := threeNumbers().FindStringSubmatch(text)
	if m == nil {
		return "0.0.0"
	}
	number := func(s string) string { return cmp.Or(strings.TrimLeft(s, "0"), "0") }
	version := number(m[1]) + "." + number(m[2]) + "." + number(m[3])
	if rest := strings.Trim(notInVersion().ReplaceAllString(m[4], "-"), "-."); rest != "" {
		if with := version + "+" + rest; manifest.ValidVersion(with) {
			return with
		}
	}
	return version
}

// common are the last parts of names that say nothing.
var common = []string{"mcp", "server", "mcp-server", "mcp_server", "api", "main"}

// shortName returns the name of a package for the name of a server, such as io.github.owner/server.
func shortName(full string) string {
	space, own, ok := strings.Cut(full, "/")
	if !ok {
		own = full
	} else if slices.Contains(common, strings.ToLower(own)) {
		own = space[strings.LastIndex(space, ".")+1:] + "-" + own
	}
	name := strings.Trim(severalMarks().ReplaceAllString(manifest.AllowedName(own), "-"), "._-")
	return strings.Trim(name[:min(len(name), 40)], "._-") // the names of its tools come after it
}

// line returns a text of others as one line, without what a terminal would obey or not show.
func line(text string, most int) string {
	text = brief.Plain(text)
	return strings.TrimSpace(strings.ToValidUTF8(text[:min(len(text), most)], ""))
}
