package deps

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/launch"
)

// Confine returns what starts an installer that strangers chose the packages for: it has the network, sees programs and
// what its Spec exposes, and changes nothing but the folders in writes, which are absolute and without links (SPEC R6).
type Confine func(writes []string) launch.Launcher

// scratchSuffix ends the name of the folder that a confined installer has as its home.
const scratchSuffix = ".home"

// confined makes the home of a confined installer, and gives it its folders.
func (i *installer) confined() error {
	i.scratch = strings.TrimSuffix(i.part, partSuffix) + scratchSuffix
	if err := os.Mkdir(i.scratch, 0o700); err != nil {
		return err
	}
	return i.give(i.store.opts.ConfinedUser)
}

// give gives the folders of an installer to another user, if Orla may do that.
func (i *installer) give(user int) error {
	if os.Geteuid() != 0 {
		return nil // the user of a sandbox is Orla's own
	}
	for _, dir := range []string{i.part, i.scratch} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, user, user))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// confine changes a Spec to that of a confined installer, and returns what starts it.
func (i *installer) confine(spec *launch.Spec, program string) launch.Launcher {
	spec.Expose = append(slices.Clone(i.need.source.Folders), i.need.File, i.need.source.Script, i.need.source.Interpreter)
	spec.Expose = append(slices.DeleteFunc(spec.Expose, func(path string) bool { return path == "" }), shown(program)...)
	spec.Env = slices.DeleteFunc(spec.Env, func(kv string) bool {
		name, value, _ := strings.Cut(kv, "=")
		if name == "ORLA_ENV" || name == "PATH" || name == "LANG" || strings.HasPrefix(name, "PYTHON") {
			return false
		}
		if name = strings.ToUpper(name); name == "UV_CACHE_DIR" || name == "PIP_CACHE_DIR" || name == "NPM_CONFIG_CACHE" || !configures(name) {
			return true
		}
		if filepath.IsAbs(value) {
			spec.Expose = append(spec.Expose, value) // such as a folder of packages
		}
		return false
	})
	spec.Env = append(spec.Env, "HOME="+i.scratch, "npm_config_cache="+filepath.Join(i.scratch, "npm"), "UV_CACHE_DIR="+filepath.Join(i.scratch, "uv"))
	return i.store.opts.Confine([]string{i.part, i.scratch})
}

// configures reports whether a variable configures an installer, or how it reaches an index.
func configures(name string) bool {
	if slices.Contains([]string{"NO_COLOR", "CI", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"}, name) {
		return true
	}
	return slices.ContainsFunc([]string{"UV_", "PIP_", "NPM_CONFIG_"}, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// shown are the paths that a sandbox has to show for a program that is not one of the system's: the program, and what
// Node's installers have beside them.
func shown(program string) []string {
	list := []string{program}
	if real, err := filepath.EvalSymlinks(program); err == nil && real != program {
		list = append(list, real)
	}
	prefix := filepath.Dir(filepath.Dir(program))
	if exists(filepath.Join(prefix, "lib", "node_modules")) {
		list = append(list, filepath.Join(prefix, "bin"), filepath.Join(prefix, "lib"))
	}
	return list
}
