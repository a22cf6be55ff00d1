package environ

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/deps"
	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/manifest"
)

// Dependencies returns where a tool says which packages it needs. clean is an environment as Clean returns it.
// It reports false for a tool whose packages are not Orla's to install: its language has none, it names its
// interpreter by a path, it sees other programs than those of this machine, or it asks for none.
func Dependencies(tool manifest.Tool, clean []string) (deps.Source, bool) {
	i := tool.Interpreter
	switch {
	case tool.Run.Setup.None, tool.Kind != manifest.Simple && tool.Kind != manifest.Capsule, tool.Path == "", i.Path != "",
		tool.Isolation.Isolated() && tool.Isolation.Terms.Backend != manifest.BackendNative:
		return deps.Source{}, false
	}
	source := deps.Source{Script: tool.Path, Command: tool.Run.Setup.Command, NoScripts: tool.Run.Setup.NoScripts, Package: tool.Run.Setup.Package}
	source.Confined = source.NoScripts && tool.Isolation.Isolated() // strangers chose the packages
	if folder := filepath.Dir(tool.Path); tool.Version == "" || folder == tool.Dir {
		source.Folders = []string{folder}
	} else {
		source.Folders = []string{folder, tool.Dir}
	}
	switch {
	case strings.HasPrefix(i.Name, "python"):
		source.Language = deps.Python
	case i.Name == "node":
		source.Language = deps.Node
	case runsScript(i):
		source.Language, source.Folders = deps.Python, nil // its block alone counts, as for uv
		tool.Interpreter = manifest.Interpreter{Name: "python3"}
	default:
		return deps.Source{}, false
	}
	if source.NoScripts { // it is run outside of the sandbox, so the package has no say in it
		source.Interpreter = usualInterpreter(tool)
		return source, source.Interpreter != ""
	}
	var err error
	source.Interpreter, err = Interpreter(tool, Of(tool, clean))
	return source, err == nil
}

// usualInterpreter finds the interpreter of a package from elsewhere: in the usual PATH alone, and in no folder that
// the package has or may change; "" if there is none.
func usualInterpreter(tool manifest.Tool) string {
	name := tool.Interpreter.Name
	if version, ok := strings.CutPrefix(name, "python"); name != "node" && (!ok || strings.Trim(version, "0123456789.") != "") {
		return ""
	}
	found := Find(name, nil)
	real, err := filepath.EvalSymlinks(found)
	if found == "" || err != nil {
		return ""
	}
	for _, folder := range append([]string{tool.Dir, filepath.Dir(tool.Path)}, tool.Isolation.Grants.Writes...) {
		if at, err := filepath.EvalSymlinks(folder); err == nil {
			folder = at
		}
		if folder != "" && (regularfile.Within(folder, found) || regularfile.Within(folder, real)) {
			return ""
		}
	}
	return found
}

// runsScript reports whether an interpreter is "uv run --script", in place of which Orla makes the environment
// and runs its Python.
func runsScript(i manifest.Interpreter) bool {
	if i.Name != "uv" || len(i.Args) < 2 || i.Args[0] != "run" || !slices.Contains(i.Args, "--script") {
		return false
	}
	return !slices.ContainsFunc(i.Args[1:], func(arg string) bool { return arg != "--script" && arg != "-q" && arg != "--quiet" })
}

// inEnv returns the arguments of the environment's interpreter before the tool's file, and the environment variables
// of the process.
func inEnv(tool manifest.Tool, env deps.Env, environ []string) (args, variables []string) {
	args = slices.Clone(env.Args)
	if !runsScript(tool.Interpreter) {
		args = append(args, tool.Interpreter.Args...)
	}
	if len(env.Vars) == 0 {
		return args, environ
	}
	return args, lastOfEach(slices.Concat(environ, env.Vars))
}
