package keys

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/manifest"
)

// PackageSecrets is the namespace of the secrets that tools get by secret_env: that of a tool has its name.
const PackageSecrets = "packages"

// Description is what the descriptions of tools have in common, on its way to
// being a Tool. It collects faults and warnings.
type Description struct {
	Doc      *yamldoc.Doc      // the file, with its faults
	Flat     bool              // the keys of runtime have no section
	Sections map[string]string // where the file has a section, if elsewhere
	MCP      MCPKeys
	Runtime  Runtime
	Warnings []error

	folded bool // keys may stand without their section
}

// key is the path by which the file gives a key of a section.
func (d *Description) key(section, name string) string {
	if elsewhere, ok := d.Sections[section]; ok {
		return elsewhere + "." + name
	}
	if d.Flat && section == "runtime" || d.folded && d.Doc.Has(name) {
		return name
	}
	return section + "." + name
}

// given reports whether the file gives a key of a section.
func (d *Description) given(section, name string) bool {
	return d.Doc.Has(d.key(section, name))
}

// Fault adds a fault for a key of a section.
func (d *Description) Fault(section, name, format string, args ...any) {
	d.Doc.Faultf(d.key(section, name), format, args...)
}

// warn adds a warning for a key of runtime.
func (d *Description) warn(name, format string, args ...any) {
	d.Warnings = append(d.Warnings, d.Doc.At(d.key("runtime", name), format, args...))
}

// Unfold takes the keys that the file gives without their section. Both forms of one
// key are a fault.
func (d *Description) Unfold(m MCPKeys, s Simple) {
	d.folded = true
	d.unfold("mcp", reflect.ValueOf(m), reflect.ValueOf(&d.MCP).Elem())
	d.unfold("runtime", reflect.ValueOf(s), reflect.ValueOf(&d.Runtime.Simple).Elem())
}

// unfold moves the keys of flat that the file gives to where they belong, in section.
func (d *Description) unfold(section string, flat, nested reflect.Value) {
	for i := range flat.NumField() {
		name, _, _ := strings.Cut(flat.Type().Field(i).Tag.Get("json"), ",")
		if !d.Doc.Has(name) {
			continue
		}
		if full := section + "." + name; d.Doc.Has(full) {
			d.Doc.Faultf(full, "is given twice, as %s and as %s; keep one", name, full)
		}
		nested.Field(i).Set(flat.Field(i))
	}
}

// Fill checks what the file says and puts it into t.
func (d *Description) Fill(t *manifest.Tool) {
	t.Kind = d.Runtime.Mode
	t.Title = d.MCP.Title
	t.Annotations = d.annotations()
	t.InputSchema = d.InputSchema()
	t.OutputSchema = d.OutputSchema()
	d.checkRun()
	d.checkCapsule()
	t.Run = d.run()
	for _, name := range d.Runtime.SecretEnv {
		// Only those of its own: whoever wrote the tool chose the names.
		t.Run.SecretEnv = append(t.Run.SecretEnv, manifest.SecretEnv{Name: name, Secret: secret.Ref{Namespace: PackageSecrets, Name: t.Name, Key: name}})
	}
	if t.Kind == manifest.Capsule {
		t.Runtime = d.CapsuleRuntime()
	}
	isolation := d.Runtime.isolationKeys()
	isolation.Capsule = t.Kind == manifest.Capsule
	t.Isolation = d.Isolation(isolation, secret.DefaultNamespace)
	d.warnOfIdleIsolation(t)
	if d.given("runtime", "retry") {
		t.Retry = d.Retry(d.Runtime.Retry)
		d.warnOfIdleRetry(t)
	}
	d.warnOfIdleKeys()
}

func (d *Description) annotations() *mcp.ToolAnnotations {
	if !d.given("mcp", "annotations") {
		return nil
	}
	a := d.MCP.Annotations
	return &mcp.ToolAnnotations{
		Title:           a.Title,
		ReadOnlyHint:    a.ReadOnlyHint,
		DestructiveHint: a.DestructiveHint,
		IdempotentHint:  a.IdempotentHint,
		OpenWorldHint:   a.OpenWorldHint,
	}
}

func (d *Description) checkRun() {
	r := d.Runtime
	if d.given("runtime", "timeout") && r.Timeout == 0 {
		d.Fault("runtime", "timeout", "must be above 0; leave it out for the configured timeout")
	}
	if d.given("runtime", "max_output") && r.MaxOutput == 0 {
		d.Fault("runtime", "max_output", "must be above 0; leave it out for the configured max_output")
	}
	if d.given("runtime", "max_concurrency") && r.MaxConcurrency < 1 {
		d.Fault("runtime", "max_concurrency", "must be at least 1, got %d; leave it out for no limit", r.MaxConcurrency)
	}
	d.CheckArgs(d.key("runtime", "args"), r.Args)
	d.CheckVariables(d.key("runtime", "env"), r.Env)
	for i, name := range r.SecretEnv {
		key := d.key("runtime", "secret_env") + Indexed(i)
		switch _, fixed := r.Env[name]; {
		case fixed || slices.Contains(r.SecretEnv[:i], name):
			d.Doc.Faultf(key, "%q is there twice", name)
		default:
			if err := secret.CheckWord(name); err != nil {
				d.Doc.Faultf(key, "%v", err)
			}
		}
	}
}

// CheckArgs checks the arguments of a key.
func (d *Description) CheckArgs(key string, args Args) {
	for i, arg := range args {
		d.CheckNUL(key+Indexed(i), arg)
	}
}

// CheckVariables checks the environment variables of a key, in order, so that the same file
// always has the same faults.
func (d *Description) CheckVariables(key string, env Env) {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		d.CheckVariable(key+"."+name, name)
		d.CheckNUL(key+"."+name, env[name])
	}
}

// CheckVariable checks the name of an environment variable.
func (d *Description) CheckVariable(key, name string) {
	if why := badVariable(name); why != "" {
		d.Doc.Faultf(key, "%s", why)
	}
}

// CheckNUL checks a text that a process gets as an argument or a variable.
func (d *Description) CheckNUL(key, text string) {
	if strings.ContainsRune(text, 0) {
		d.Doc.Faultf(key, "must not hold a NUL byte")
	}
}

// badVariable says why no environment variable can have the name, or "".
func badVariable(name string) string {
	if name == "" || strings.ContainsAny(name, "=\x00") {
		return "is not the name of a variable: it must not be empty, and must not hold = or a NUL byte"
	}
	return ""
}

func (d *Description) run() manifest.Run {
	r := d.Runtime
	return manifest.Run{
		Args:           r.Args,
		Env:            r.Env,
		InheritEnv:     manifest.EnvPolicy(r.InheritEnv),
		Setup:          manifest.Setup(r.Setup),
		Arguments:      r.Arguments,
		Output:         r.Output,
		Timeout:        time.Duration(r.Timeout),
		MaxOutput:      int64(r.MaxOutput),
		MaxConcurrency: r.MaxConcurrency,
	}
}

// Indexed is the end of the path of a list's element.
func Indexed(i int) string { return "[" + strconv.Itoa(i) + "]" }
