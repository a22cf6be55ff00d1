package deps

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/deps/declared"
)

// declaredFolder has what the installer of Python reads: files that Orla has written from those of the package.
const declaredFolder = "declared"

// root is the folder of the package that a need is of.
func (n Need) root() string {
	for _, folder := range slices.Backward(n.source.Folders) {
		if rel, err := filepath.Rel(folder, n.File); err == nil && filepath.IsLocal(rel) {
			return folder
		}
	}
	return n.dir()
}

// declared are the files that declare what is needed.
func (n Need) declared() declared.Files {
	return declared.Files{Root: n.root(), File: n.File, Lock: n.Lock, Block: n.block}
}

// carefulPython makes the environment for a Python tool that came from elsewhere (SPEC R6). No installer sees a file of the
// package, or runs in its folder; and nothing of the environment runs.
func (i *installer) carefulPython(ctx context.Context, uv string) error {
	i.store.parse.Lock()
	asked, err := i.need.declared().Python(i.indexes())
	i.store.parse.Unlock()
	if err != nil {
		return err
	}
	base, err := i.pythonFor(ctx, uv, asked.Version)
	if err != nil {
		return err
	}
	if _, err := i.run(ctx, step{argv: []string{uv, "venv", "--no-project", "--no-config", "--python", base, i.part}, dir: i.part}); err != nil {
		return err
	}
	dir := filepath.Join(i.part, declaredFolder)
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // a sandbox has another user; the folder above keeps others out
		return err
	}
	if i.need.Lock != "" {
		if asked, err = i.exported(ctx, uv, asked, dir); err != nil {
			return err
		}
	}
	argv := []string{uv, "pip", "install", "--python", filepath.Join(i.part, "bin", "python"), "--no-build", "--no-sources", "--no-config"}
	if i.need.Lock != "" {
		argv = append(argv, "--require-hashes")
	}
	for _, list := range []struct {
		option, name string
		lines        []string
	}{{"-r", "requirements.txt", asked.Required}, {"-c", "constraints.txt", asked.Constraints}} {
		if len(list.lines) == 0 && list.option == "-c" {
			continue
		}
		file, err := i.write(filepath.Join(declaredFolder, list.name), []byte(strings.Join(list.lines, "\n")+"\n"))
		if err != nil {
			return err
		}
		argv = append(argv, list.option, file)
	}
	_, err = i.run(ctx, step{argv: argv, dir: dir})
	return err
}

// exported returns the packages of a lock. uv reads it next to a file that has nothing but what was read of the
// package's own.
func (i *installer) exported(ctx context.Context, uv string, asked declared.Packages, dir string) (locked declared.Packages, err error) {
	lock, err := declared.ReadBelow(i.need.root(), i.need.Lock)
	if err != nil {
		return locked, err
	}
	argv := []string{uv, "export", "--quiet", "--frozen", "--no-header", "--no-annotate", "--no-build", "--no-editable", "--no-config", "--python", i.need.source.Interpreter}
	file, text := "pyproject.toml", asked.Project()
	name := "uv.lock"
	if i.need.block != nil {
		file, text = "script.py", asked.Script()
		name = file + ".lock"
		argv = append(argv, "--script", filepath.Join(dir, file))
	} else {
		if asked.Name == "" {
			return locked, fmt.Errorf("%s: the table project has no name in quotes", i.need.File)
		}
		argv = append(argv, "--no-dev", "--no-emit-project", "--project", dir)
	}
	for name, text := range map[string]string{file: text, name: string(lock)} {
		if _, err := i.write(filepath.Join(declaredFolder, name), []byte(text)); err != nil {
			return locked, err
		}
	}
	list, err := i.run(ctx, step{argv: argv, dir: dir})
	if err != nil {
		return locked, err
	}
	if locked, err = declared.Exported(i.need.Lock, string(list)); err != nil {
		return locked, err
	}
	if name := locked.Lacks(asked.Required); name != "" {
		return locked, fmt.Errorf("the lock %s does not have %s, which %s needs; uv lock writes it", i.need.Lock, name, i.need.File)
	}
	return locked, nil
}

// indexes are those that uv asks.
func (i *installer) indexes() []string {
	list := []string{"https://pypi.org/simple"}
	for _, name := range []string{"UV_DEFAULT_INDEX", "UV_INDEX_URL"} {
		if index := variable(i.store.opts.Environ, name); index != "" {
			list = []string{index}
			break
		}
	}
	for _, name := range []string{"UV_INDEX", "UV_EXTRA_INDEX_URL"} {
		for index := range strings.FieldsSeq(variable(i.store.opts.Environ, name)) {
			if name, url, ok := strings.Cut(index, "="); ok && !strings.ContainsAny(name, ":/") {
				index = url
			}
			list = append(list, index)
		}
	}
	return list
}

// carefulNames are the variables of Orla's environment that an installer has for a package from elsewhere. They are
// listed in docs/DEPENDENCIES.md.
var carefulNames = []string{
	"PATH", "HOME", "LANG", "LANGUAGE", "TMPDIR", "TZ",
	"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS",
	"UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_NO_INDEX", "UV_INDEX_STRATEGY",
	"UV_OFFLINE", "UV_CACHE_DIR", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS", "UV_HTTP_TIMEOUT",
	"NPM_CONFIG_REGISTRY", "NPM_CONFIG_OFFLINE", "NPM_CONFIG_CACHE", "NPM_CONFIG_CAFILE",
}

// carefulPNPM are variables for pnpm, by the names of its versions up to 10 and from 11 on: npm would warn of them.
var carefulPNPM = []string{
	"npm_config_manage_package_manager_versions=false", "pnpm_config_manage_package_manager_versions=false",
	"npm_config_package_import_method=copy", "pnpm_config_package_import_method=copy",
}

// careful leaves the variables of an environment that an installer may have for a package from elsewhere, and adds those
// that keep it from reading settings elsewhere and from running what it installs.
func careful(environ []string) []string {
	list := slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		upper := strings.ToUpper(name)
		if upper != name && strings.ToLower(name) != name { // another program may see another one in it
			return true
		}
		login := strings.HasPrefix(name, "UV_INDEX_") && (strings.HasSuffix(name, "_USERNAME") || strings.HasSuffix(name, "_PASSWORD"))
		return !login && !strings.HasPrefix(name, "LC_") && !slices.Contains(carefulNames, upper)
	})
	return append(list,
		"UV_NO_CONFIG=1", "UV_PYTHON_DOWNLOADS=never", "UV_COMPILE_BYTECODE=0", "UV_LINK_MODE=copy", "PYTHONDONTWRITEBYTECODE=1", "PYTHONNOUSERSITE=1",
		"npm_config_ignore_scripts=true", "COREPACK_ENABLE_PROJECT_SPEC=0")
}
