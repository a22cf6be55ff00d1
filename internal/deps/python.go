package deps

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/orla-project/orla/internal/deps/declared"
	"github.com/orla-project/orla/internal/deps/versions"
)

// python makes a virtual environment with the packages of a Python tool.
func (i *installer) python(ctx context.Context) error {
	uv := i.find("uv")
	if uv == "" && i.need.Lock != "" {
		return fmt.Errorf("%s can only be read by uv, and there is no uv in PATH; install it (https://docs.astral.sh/uv), or remove the lock", i.need.Lock)
	}
	if uv == "" && i.need.source.NoScripts {
		return errors.New("pip may run code of the packages that it installs, which an installed tool is not granted, and there is no uv in PATH; install it (https://docs.astral.sh/uv), or set scripts: true for the tool below packages in orla.yaml")
	}
	if i.need.source.NoScripts {
		return i.carefulPython(ctx, uv)
	}
	base, err := i.basePython(ctx, uv)
	if err != nil {
		return err
	}
	if uv == "" {
		return i.pip(ctx, base)
	}
	if _, err := i.run(ctx, step{argv: []string{uv, "venv", "--no-project", "--python", base, i.part}, dir: i.need.dir()}); err != nil {
		return err
	}
	file, err := i.uvRequirements(ctx, uv)
	if err != nil {
		return err
	}
	_, err = i.run(ctx, step{argv: []string{uv, "pip", "install", "--python", filepath.Join(i.part, "bin", "python"), "-r", file}, dir: i.need.dir()})
	return err
}

// uvRequirements returns the file that "uv pip install" is to read.
func (i *installer) uvRequirements(ctx context.Context, uv string) (string, error) {
	switch {
	case i.need.Lock != "":
		argv := []string{uv, "export", "--quiet", "--locked", "--no-header"}
		if i.need.block != nil {
			argv = append(argv, "--script", i.need.File)
		} else {
			argv = append(argv, "--no-dev", "--no-emit-project", "--project", i.need.dir())
		}
		list, err := i.run(ctx, step{argv: argv, dir: i.need.dir()})
		if err != nil {
			return "", err
		}
		return i.write("requirements.txt", list)
	case i.need.block != nil: // without the blocks that are not uv's
		return i.write("script.py", []byte(declared.Script(string(i.need.block))))
	}
	return i.need.File, nil
}

// write writes a file into the environment, for an installer.
func (i *installer) write(name string, text []byte) (string, error) {
	file := filepath.Join(i.part, name)
	if err := os.Remove(file); err != nil && !isMissing(err) { // an installer may have made a link of it
		return "", err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // a sandbox has another user; the folder keeps others out
	if err != nil {
		return "", err
	}
	_, err = f.Write(text)
	return file, errors.Join(err, f.Close())
}

// readDependencies prints the dependencies of the TOML on stdin, one on each line. pip has a reader of TOML
// for a Python that has none.
const readDependencies = `import sys
try:
    import tomllib
except ImportError:
    from pip._vendor import tomli as tomllib
try:
    table = tomllib.loads(sys.stdin.buffer.read().decode())
except ValueError as err:
    sys.exit("%s: not TOML: %s" % (sys.argv[2], err))
if sys.argv[1] == "project":
    table = table.get("project", {})
print("\n".join(table.get("dependencies", [])))
`

// pip makes the environment without uv.
func (i *installer) pip(ctx context.Context, base string) error {
	dir := i.need.dir()
	if _, err := i.run(ctx, step{argv: []string{base, "-m", "venv", i.part}, dir: dir}); err != nil {
		return err
	}
	python := filepath.Join(i.part, "bin", "python")
	file, text, table := i.need.File, i.need.block, "script"
	if text == nil && filepath.Ext(file) == ".toml" {
		var err error
		if text, err = os.ReadFile(file); err != nil {
			return err
		}
		table = "project"
	}
	if text != nil {
		list, err := i.run(ctx, step{argv: []string{python, "-c", readDependencies, table, i.need.File}, dir: dir, input: text})
		if err != nil {
			return err
		}
		if file, err = i.write("requirements.txt", list); err != nil {
			return err
		}
	}
	_, err := i.run(ctx, step{argv: []string{python, "-m", "pip", "install", "-r", file}, dir: dir})
	return err
}

// basePython returns the Python that the environment is made with: the tool's interpreter, unless the tool
// requires another version. Then uv finds one.
func (i *installer) basePython(ctx context.Context, uv string) (string, error) {
	table := i.need.block
	if table == nil && filepath.Ext(i.need.File) == ".toml" {
		text, err := os.ReadFile(i.need.File)
		if err != nil {
			return "", err
		}
		table = declared.ProjectTable(text)
	}
	return i.pythonFor(ctx, uv, declared.RequiresPython(table))
}

// pythonFor returns the tool's interpreter, or the versions to look for if that is not one of those that are wanted.
func (i *installer) pythonFor(ctx context.Context, uv, wanted string) (string, error) {
	base := i.need.source.Interpreter
	if wanted == "" {
		return base, nil
	}
	out, err := i.run(ctx, step{argv: []string{base, "-c", "import sys; print('.'.join(map(str, sys.version_info[:3])))"}, dir: i.part})
	if err != nil {
		return "", err
	}
	version := strings.TrimSpace(string(out))
	switch ok, known := versions.Compare(version, wanted); {
	case ok || !known: // the installer says what is wrong with it
		return base, nil
	case uv != "":
		return wanted, nil
	}
	return "", fmt.Errorf("it requires Python %s, and %s is %s; install such a Python or uv, which finds one", wanted, base, version)
}
