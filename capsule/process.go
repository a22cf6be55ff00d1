package capsule

import (
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/cgroup"
	"github.com/orla-project/orla/internal/launch/environ"
	"github.com/orla-project/orla/internal/service/secret"
)

// spec returns how the next process is started.
func (c *Capsule) spec() (launch.Spec, error) {
	t := c.tool
	variables, secrets, err := c.withSecrets()
	if err != nil {
		return launch.Spec{}, err
	}
	spec := launch.Spec{
		Path:    t.Path,
		Argv:    slices.Concat([]string{t.Path}, t.Run.Args),
		Env:     variables,
		Secrets: secrets,
		Dir:     t.WorkDir(),
		Grace:   t.Runtime.StopGrace,
		Whole:   true,
		Cell:    t.Name,
		Limits: cgroup.Limits{
			Memory: t.Isolation.Resources.Memory, CPUs: t.Isolation.Resources.CPUs, Pids: t.Isolation.Resources.Pids,
		},
	}
	if t.Isolation.Isolated() {
		spec.Expose = t.Exposed()
	}
	if t.Isolation.Isolated() && !c.opts.Elsewhere {
		if spec.Path = environ.Find(t.Path, c.environ); spec.Path == "" {
			return launch.Spec{}, fault.New(fault.UnsupportedTool, "%s: there is no %s where it is to run", t.Name, t.Path)
		}
	}
	if t.Interpreter.Name == "" {
		return spec, nil
	}
	args := t.Interpreter.Args
	spec.Path = t.Interpreter.Program()
	if env, ok := c.opts.Packages.Env(); ok {
		spec.Path = env.Program
		args, spec.Env = environ.InEnv(t, env, spec.Env)
		spec.Expose = append(spec.Expose, env.Dir)
	} else if !c.opts.Elsewhere {
		if spec.Path, err = environ.Interpreter(t, c.environ); err != nil {
			return launch.Spec{}, fault.Wrap(fault.UnsupportedTool, err, "%s: %v", t.Name, err)
		}
	}
	spec.Argv = slices.Concat([]string{spec.Path}, args, []string{t.Path}, t.Run.Args)
	return spec, nil
}

// withSecrets returns the environment of the next process, and the variables with secrets
// apart. Secrets are resolved at each start and not kept, so that each process gets the
// current values.
func (c *Capsule) withSecrets() (variables, secrets []string, err error) {
	variables = slices.Clip(c.environ)
	if len(c.tool.Run.SecretEnv) == 0 {
		return variables, nil, nil
	}
	var values []secret.Value
	for _, wanted := range c.tool.Run.SecretEnv {
		value, err := c.opts.Secrets(wanted.Secret)
		if err != nil {
			return nil, nil, fault.New(fault.StartFailed, "%s: the variable %s: %s", c.tool.Name, wanted.Name, fault.From(err).Reason)
		}
		if strings.ContainsRune(value.Reveal(), 0) {
			return nil, nil, fault.New(fault.StartFailed, "%s: the variable %s: secret %q has a NUL in it", c.tool.Name, wanted.Name, wanted.Secret)
		}
		prefix := wanted.Name + "="
		variables = slices.DeleteFunc(slices.Clone(variables), func(kv string) bool { return strings.HasPrefix(kv, prefix) })
		secrets = append(secrets, prefix+value.Reveal())
		values = append(values, value)
	}
	if err := secret.CheckSize(values); err != nil {
		return nil, nil, fault.Wrap(fault.StartFailed, err, "%s: %v", c.tool.Name, err)
	}
	c.redactor.Store(secret.NewRedactor(values...))
	return variables, secrets, nil
}

// clean removes the secrets of the last process from a line that it wrote, so that they do
// not appear in an answer, an error or the log (SPEC-TOOLS 5.3).
func (c *Capsule) clean(line []byte) []byte { return c.redactor.Load().RedactBytes(line) }
