package environ

import (
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/deps"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/manifest"
)

// Program is how a tool that is a file is started.
type Program struct {
	Argv   []string // with what is started first
	Env    []string
	Expose []string // folders that it has to see
}

// ProgramOf returns how a tool is started in an environment, with the packages that it needs and with flags after its
// own arguments. elsewhere says that it does not use the programs of this machine: interpreters are found by their names
// where it runs. An error is a *fault.Error.
func ProgramOf(t manifest.Tool, packages *deps.Tool, elsewhere bool, environ, flags []string) (Program, error) {
	p := Program{Env: environ}
	if t.Interpreter.Name == "" {
		p.Argv = slices.Concat([]string{t.Path}, t.Run.Args, flags)
		return p, nil
	}
	interpreter, args := t.Interpreter.Program(), t.Interpreter.Args
	if env, ok := packages.Env(); ok {
		interpreter = env.Program
		args, p.Env = inEnv(t, env, environ)
		p.Expose = []string{env.Dir}
	} else if !elsewhere {
		var err error
		if interpreter, err = Interpreter(t, environ); err != nil {
			return Program{}, fault.Wrap(fault.UnsupportedTool, err, "%s: %v", t.Name, err)
		}
	}
	p.Argv = slices.Concat([]string{interpreter}, args, []string{t.Path}, t.Run.Args, flags)
	return p, nil
}

// Secrets returns the variables of a tool that are secrets, and their values. They are resolved at each start and not
// kept, so that each process gets the current values (SPEC-TOOLS 5.3). An error is a *fault.Error with the code.
func Secrets(t manifest.Tool, resolve func(secret.Ref) (secret.Value, error), code fault.Code) (variables []string, values []secret.Value, err error) {
	for _, wanted := range t.Run.SecretEnv {
		value, err := resolve(wanted.Secret)
		if err != nil {
			return nil, nil, fault.New(code, "%s: the variable %s: %s", t.Name, wanted.Name, fault.From(err).Reason)
		}
		if strings.ContainsRune(value.Reveal(), 0) {
			return nil, nil, fault.New(code, "%s: the variable %s: secret %q has a NUL in it", t.Name, wanted.Name, wanted.Secret)
		}
		variables = append(variables, wanted.Name+"="+value.Reveal())
		values = append(values, value)
	}
	if err := secret.CheckSize(values); err != nil {
		return nil, nil, fault.Wrap(code, err, "%s: %v", t.Name, err)
	}
	return variables, values, nil
}
