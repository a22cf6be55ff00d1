package manifest

import (
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/file/yamldoc"
)

// Interpreter is the interpreter of a shebang line (SPEC A5). The zero value means that the file is executed
// directly.
type Interpreter struct {
	// Name is the program's base name: "bash", "python3".
	Name string
	// Path is the path that the shebang gave, or "" when env looks the name up in
	// PATH. It is absolute in a Tool.
	Path string
	// Local says that Path belongs to the tool, such as that of a .venv: it is never looked up in PATH.
	Local bool
	// Args stand between the interpreter and the file.
	Args []string
	// Env holds NAME=value pairs that "env -S" sets.
	Env []string
}

// ResolveInterpreter returns the path of what runs the tool's file: as Interpreter.Resolve
// does, in the PATH that the tool has itself, if it has one (runtime.env.PATH).
func (t *Tool) ResolveInterpreter() (string, error) {
	i := t.Interpreter
	own, has := t.Run.Env["PATH"]
	if !has || i.Name == "" || i.Path != "" {
		return i.Resolve()
	}
	for _, folder := range filepath.SplitList(own) {
		if !filepath.IsAbs(folder) {
			folder = filepath.Join(t.WorkDir(), folder)
		}
		if at := filepath.Join(folder, i.Name); regularfile.IsProgram(at) {
			return at, nil
		}
	}
	return "", &NoInterpreterError{i}
}

// Resolve returns the path of the interpreter's program: Path if that can be
// run, else what PATH has under Name. It is "" for the zero Interpreter. The
// error is a *NoInterpreterError.
func (i Interpreter) Resolve() (string, error) {
	if i.Name == "" {
		return "", nil
	}
	if i.Path != "" && regularfile.IsProgram(i.Path) {
		return i.Path, nil
	}
	if i.Local {
		return "", &NoInterpreterError{i}
	}
	found, err := exec.LookPath(i.Name)
	if err != nil {
		return "", &NoInterpreterError{i}
	}
	return found, nil
}

// Program returns the interpreter for a place that does not have this machine's programs: the path of the
// shebang, or the name to look up there. It is "" for the zero Interpreter.
func (i Interpreter) Program() string {
	if i.Path != "" {
		return i.Path
	}
	return i.Name
}

// interpreters are the names that are suggested for a similar unknown one.
var interpreters = []string{"python3", "node", "bash", "sh", "ruby", "perl", "php", "lua", "deno", "bun", "Rscript", "pwsh"}

// NoInterpreterError says that the interpreter of a file is not there.
type NoInterpreterError struct{ Interpreter Interpreter }

// Error names the interpreter, and says what to do.
func (e *NoInterpreterError) Error() string {
	i := e.Interpreter
	if i.Local {
		return fmt.Sprintf("interpreter %q is not there: there is no program %s; make it, for Python with python3 -m venv, or change the file's first line", i.Name, i.Path)
	}
	fix := "install it, or change the file's first line"
	if near := yamldoc.Nearest(i.Name, interpreters); near != "" && near != i.Name && near[0] == i.Name[0] {
		fix = "did you mean " + near + "? If not, " + fix
	}
	if i.Path != "" {
		return fmt.Sprintf("interpreter %q is not there: neither %s nor a %s in PATH; %s", i.Name, i.Path, i.Name, fix)
	}
	return fmt.Sprintf("interpreter %q is not there: no %s in PATH; %s", i.Name, i.Name, fix)
}
