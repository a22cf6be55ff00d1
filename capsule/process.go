package capsule

import (
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/cgroup"
	"github.com/orla-project/orla/internal/launch/environ"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/manifest"
)

// spec returns how the next process is started.
func (c *Capsule) spec() (launch.Spec, error) {
	t := c.tool
	program, err := environ.ProgramOf(t, c.opts.Packages, c.opts.Elsewhere, c.environ, nil)
	if err != nil {
		return launch.Spec{}, err
	}
	secrets, values, err := environ.Secrets(t, c.opts.Secrets, fault.StartFailed)
	if err != nil {
		return launch.Spec{}, err
	}
	if len(values) > 0 {
		c.redactor.Store(secret.NewRedactor(values...))
	}
	spec := launch.Spec{
		Path: program.Argv[0],
		Argv: program.Argv,
		Env: slices.DeleteFunc(slices.Clone(program.Env), func(kv string) bool {
			name, _, _ := strings.Cut(kv, "=")
			return slices.ContainsFunc(t.Run.SecretEnv, func(s manifest.SecretEnv) bool { return s.Name == name })
		}),
		Secrets: secrets,
		Dir:     t.WorkDir(),
		Grace:   t.Runtime.StopGrace,
		Whole:   true,
		Cell:    t.Name,
		Limits:  cgroup.Limits(t.Isolation.Resources),
		Expose:  program.Expose,
	}
	if t.Isolation.Isolated() {
		spec.Expose = append(t.Exposed(), program.Expose...)
	}
	if t.Isolation.Isolated() && !c.opts.Elsewhere {
		found := environ.Find(t.Path, c.environ)
		if found == "" {
			return launch.Spec{}, fault.New(fault.UnsupportedTool, "%s: there is no %s where it is to run", t.Name, t.Path)
		}
		if t.Interpreter.Name == "" {
			spec.Path = found
		}
	}
	return spec, nil
}

// clean removes the secrets of the last process from a line that it wrote, so that they do
// not appear in an answer, an error or the log (SPEC-TOOLS 5.3).
func (c *Capsule) clean(line []byte) []byte { return c.redactor.Load().RedactBytes(line) }
