package manifest

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/secret"
	"github.com/orla-project/orla/internal/yamldoc"
)

// description is what tool.yaml, a block and a sidecar have in common, on its
// way to being a Tool. It collects faults in doc and warnings.
type description struct {
	doc      *yamldoc.Doc
	folded   bool              // keys may stand without their section
	flat     bool              // the keys of runtime have no section
	sections map[string]string // where the file has a section, if elsewhere
	mcp      mcpKeys
	runtime  runtimeKeys
	warnings []error
}

// key is the path by which the file gives a key of a section.
func (d *description) key(section, name string) string {
	if elsewhere, ok := d.sections[section]; ok {
		return elsewhere + "." + name
	}
	if d.flat && section == "runtime" || d.folded && d.doc.Has(name) {
		return name
	}
	return section + "." + name
}

// given reports whether the file gives a key of a section.
func (d *description) given(section, name string) bool {
	return d.doc.Has(d.key(section, name))
}

func (d *description) fault(section, name, format string, args ...any) {
	d.doc.Faultf(d.key(section, name), format, args...)
}

// warn adds a warning for a key of runtime.
func (d *description) warn(name, format string, args ...any) {
	d.warnings = append(d.warnings, d.doc.At(d.key("runtime", name), format, args...))
}

// unfold moves the keys of flat that the file gives to where they belong, in
// section. Both forms of one key are a fault.
func (d *description) unfold(section string, flat, nested reflect.Value) {
	for i := range flat.NumField() {
		name, _, _ := strings.Cut(flat.Type().Field(i).Tag.Get("json"), ",")
		if !d.doc.Has(name) {
			continue
		}
		if full := section + "." + name; d.doc.Has(full) {
			d.doc.Faultf(full, "is given twice, as %s and as %s; keep one", name, full)
		}
		nested.Field(i).Set(flat.Field(i))
	}
}

// fill checks what the file says and puts it into t.
func (d *description) fill(t *Tool) {
	t.Kind = d.runtime.Mode
	t.Title = d.mcp.Title
	t.Annotations = d.annotations()
	t.InputSchema = d.inputSchema()
	t.OutputSchema = d.outputSchema()
	d.checkRun()
	d.checkCapsule()
	t.Run = d.run()
	if t.Kind == Capsule {
		t.Runtime = d.capsule()
	}
	t.Isolation = d.isolation(d.runtime.isolation(), secret.DefaultNamespace)
	d.warnOfIdleIsolation(t)
	if d.given("runtime", "retry") {
		t.Retry = d.retry(d.runtime.Retry)
		d.warnOfIdleRetry(t)
	}
	d.warnOfIdleKeys()
}

func (d *description) annotations() *mcp.ToolAnnotations {
	if !d.given("mcp", "annotations") {
		return nil
	}
	a := d.mcp.Annotations
	return &mcp.ToolAnnotations{
		Title:           a.Title,
		ReadOnlyHint:    a.ReadOnlyHint,
		DestructiveHint: a.DestructiveHint,
		IdempotentHint:  a.IdempotentHint,
		OpenWorldHint:   a.OpenWorldHint,
	}
}

func (d *description) checkRun() {
	r := d.runtime
	if d.given("runtime", "timeout") && r.Timeout == 0 {
		d.fault("runtime", "timeout", "must be above 0; leave it out for the configured timeout")
	}
	if d.given("runtime", "max_output") && r.MaxOutput == 0 {
		d.fault("runtime", "max_output", "must be above 0; leave it out for the configured max_output")
	}
	if d.given("runtime", "max_concurrency") && r.MaxConcurrency < 1 {
		d.fault("runtime", "max_concurrency", "must be at least 1, got %d; leave it out for no limit", r.MaxConcurrency)
	}
	for i, arg := range r.Args {
		if strings.ContainsRune(arg, 0) {
			d.doc.Faultf(d.key("runtime", "args")+indexed(i), "must not hold a NUL byte")
		}
	}
	// In order, so that the same file always has the same faults.
	for _, name := range slices.Sorted(maps.Keys(r.Env)) {
		value := r.Env[name]
		at := d.key("runtime", "env") + "." + name
		if why := badVariable(name); why != "" {
			d.doc.Faultf(at, "%s", why)
		}
		if strings.ContainsRune(value, 0) {
			d.doc.Faultf(at, "must not hold a NUL byte")
		}
	}
}

// badVariable says why no environment variable can have the name, or "".
func badVariable(name string) string {
	if name == "" || strings.ContainsAny(name, "=\x00") {
		return "is no name of a variable: it must not be empty, and must not hold = or a NUL byte"
	}
	return ""
}

func (d *description) run() Run {
	r := d.runtime
	return Run{
		Args:           r.Args,
		Env:            r.Env,
		InheritEnv:     EnvPolicy(r.InheritEnv),
		Arguments:      r.Arguments,
		Output:         r.Output,
		Timeout:        time.Duration(r.Timeout),
		MaxOutput:      int64(r.MaxOutput),
		MaxConcurrency: r.MaxConcurrency,
	}
}

func indexed(i int) string { return "[" + strconv.Itoa(i) + "]" }
