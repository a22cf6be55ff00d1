package manifest

import (
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/template/parse"

	"github.com/orla-project/orla/internal/secret"
	"github.com/orla-project/orla/internal/yamldoc"
)

// cliKeys are spec.cli (SPEC-TOOLS 1.2, 3.6). This release reads them, so that
// a file can be written and checked, and serves none.
type cliKeys struct {
	Command         string       `json:"command,omitempty" jsonschema:"The program"`
	Args            argKeys      `json:"args,omitempty" jsonschema:"Its arguments: Go templates over the arguments of the call, each of which makes one"`
	Image           string       `json:"image,omitempty" jsonschema:"The image that has the program"`
	ImagePullSecret string       `json:"image_pull_secret,omitempty" jsonschema:"The secret to pull it with"`
	Network         string       `json:"network,omitempty" jsonschema:"The container's network. Default none"`
	StdinFromInput  bool         `json:"stdin_from_input,omitempty" jsonschema:"Write the call's arguments to stdin as JSON. Default false"`
	Output          CLIOutput    `json:"output,omitempty" jsonschema:"What of it is the result. Default stdout"`
	WorkingDir      string       `json:"working_dir,omitempty" jsonschema:"Where it runs"`
	Env             envKeys      `json:"env,omitempty" jsonschema:"Environment variables to set"`
	EnvFrom         []cliEnvFrom `json:"env_from,omitempty" jsonschema:"Environment variables whose values are secrets"`
	Resources       cliResources `json:"resources,omitzero" jsonschema:"What a call may take"`
	RetryExitCodes  []int        `json:"retry_exit_codes,omitempty" jsonschema:"Exit codes after which a call may be tried again"`
}

type cliEnvFrom struct {
	Name      string `json:"name" jsonschema:"Name of the variable"`
	SecretRef string `json:"secretRef" jsonschema:"The secret that it is set to"`
	Key       string `json:"key,omitempty" jsonschema:"Its key. Default value"`
}

type cliResources struct {
	Memory    yamldoc.Size `json:"memory,omitempty" jsonschema:"Memory: 128MiB or a number of bytes"`
	CPUs      float64      `json:"cpus,omitempty" jsonschema:"Processors: 0.5 is half of one"`
	PidsLimit int          `json:"pids_limit,omitempty" jsonschema:"Processes and threads at once"`
}

// wasmKeys are spec.wasm (SPEC-TOOLS 1.2, 3.7), read and not served either.
type wasmKeys struct {
	Module          string       `json:"module,omitempty" jsonschema:"The module: a path inside the file's folder, https:// or oci://, with @sha256: and its digest if it is to be checked"`
	Entrypoint      string       `json:"entrypoint,omitempty" jsonschema:"The function to call. Default run"`
	MaxMemoryBytes  yamldoc.Size `json:"max_memory_bytes,omitempty" jsonschema:"Memory of a call. Default 67108864"`
	Fuel            int64        `json:"fuel,omitempty" jsonschema:"Steps of a call. Default 1000000"`
	EnableWASI      bool         `json:"enable_wasi,omitempty" jsonschema:"Whether the module has stdin, stdout and stderr. Default false"`
	ImagePullSecret string       `json:"image_pull_secret,omitempty" jsonschema:"The secret to pull an oci:// module with"`
}

// checkCLI checks spec.cli for the isolation in which it would run.
func (d *declaration) checkCLI(k cliKeys, isolation IsolationMode) {
	const at = "spec.cli."
	if k.Command == "" {
		d.doc.Faultf(at+"command", "is required for type cli")
	}
	if k.Image == "" && isolation != IsolationNone && isolation != IsolationSandboxed {
		d.doc.Faultf(at+"image", "is required with runtime.isolation_mode: %s", isolation)
	}
	for i, arg := range k.Args {
		if err := checkTemplate(arg); err != nil {
			d.doc.Faultf(at+"args"+indexed(i), "%v", err)
		}
	}
	if k.Network == "" {
		d.doc.Faultf(at+"network", "must not be empty; none is no network")
	}
	if k.ImagePullSecret != "" {
		d.secretRef(at+"image_pull_secret", k.ImagePullSecret)
	}
	d.checkVariables(at+"env", k.Env)
	for i, from := range k.EnvFrom {
		at := at + "env_from" + indexed(i)
		d.checkVariable(at+".name", from.Name)
		if d.doc.Has(at + ".secretRef") {
			d.secretRef(at+".secretRef", from.SecretRef)
		}
		if d.doc.Has(at + ".key") {
			if err := secret.CheckWord(from.Key); err != nil {
				d.doc.Faultf(at+".key", "%v", err)
			}
		}
	}
	d.checkCLIResources(at+"resources.", k.Resources)
	for i, code := range k.RetryExitCodes {
		if code < 1 || code > 255 {
			d.doc.Faultf(at+"retry_exit_codes"+indexed(i), "must be between 1 and 255, got %d", code)
		}
	}
}

func (d *declaration) checkCLIResources(at string, k cliResources) {
	if d.doc.Has(at+"memory") && k.Memory < leastMemory {
		d.doc.Faultf(at+"memory", "must be at least 1MiB, got %s", k.Memory)
	}
	if d.doc.Has(at+"cpus") && !(k.CPUs >= leastCPUs && k.CPUs <= mostCPUs) {
		d.doc.Faultf(at+"cpus", "must be between %v and %d, got %v", leastCPUs, mostCPUs, k.CPUs)
	}
	if d.doc.Has(at+"pids_limit") && (k.PidsLimit < 1 || k.PidsLimit > mostPids) {
		d.doc.Faultf(at+"pids_limit", "must be between 1 and %d, got %d", mostPids, k.PidsLimit)
	}
}

// templateFunctions are those that text/template has by itself.
var templateFunctions = map[string]any{
	"and": true, "call": true, "html": true, "index": true, "slice": true, "js": true, "len": true, "not": true, "or": true, "print": true,
	"printf": true, "println": true, "urlquery": true, "eq": true, "ge": true, "gt": true, "le": true, "lt": true, "ne": true,
}

// checkTemplate checks an argument's template. It is parsed alone: what the
// template does with a call's arguments shows when there are some.
func checkTemplate(text string) error {
	if strings.ContainsRune(text, 0) {
		return errors.New("must not hold a NUL byte")
	}
	if _, err := parse.Parse("arg", text, "", "", templateFunctions); err != nil {
		_, reason, _ := strings.Cut(err.Error(), "template: arg:")
		return errors.New("is no Go template: line " + reason)
	}
	return nil
}

var digest = regexp.MustCompile(`@sha256:[0-9a-f]{64}$`)

// checkWASM checks spec.wasm.
func (d *declaration) checkWASM(k wasmKeys) {
	const at = "spec.wasm."
	if k.Module == "" {
		d.doc.Faultf(at+"module", "is required for type wasm")
	} else if err := d.checkModule(k.Module); err != nil {
		d.doc.Faultf(at+"module", "%v", err)
	}
	if k.Entrypoint == "" {
		d.doc.Faultf(at+"entrypoint", "must not be empty; leave it out for run")
	}
	if k.MaxMemoryBytes < 64<<10 || k.MaxMemoryBytes > 4<<30 {
		d.doc.Faultf(at+"max_memory_bytes", "must be between 64KiB, which is one page, and 4GiB, got %s", k.MaxMemoryBytes)
	}
	if k.Fuel < 1 {
		d.doc.Faultf(at+"fuel", "must be above 0, got %d", k.Fuel)
	}
	if k.ImagePullSecret == "" {
		return
	}
	if !strings.HasPrefix(k.Module, "oci://") {
		d.doc.Faultf(at+"image_pull_secret", "is for a module that begins with oci://")
	}
	d.secretRef(at+"image_pull_secret", k.ImagePullSecret)
}

func (d *declaration) checkModule(module string) error {
	place := digest.ReplaceAllString(module, "")
	if strings.Contains(place, "@sha256:") {
		return errors.New("a digest is @sha256: and 64 hexadecimal digits in lower case, at the end")
	}
	scheme, _, remote := strings.Cut(place, "://")
	if !remote {
		return d.checkLocalModule(place)
	}
	switch u, err := url.Parse(place); {
	case scheme != "https" && scheme != "oci":
		return errors.New("must be a path inside the file's folder, https:// or oci://, got " + scheme + "://")
	case err != nil, u.Hostname() == "", u.User != nil, strings.Trim(u.Path, "/") == "":
		return errors.New("is no " + scheme + ":// address with a host and a path, and without user and password")
	}
	return nil
}

func (d *declaration) checkLocalModule(place string) error {
	if !filepath.IsLocal(filepath.FromSlash(place)) {
		return errors.New("must be a relative path inside the file's folder")
	}
	file, err := filepath.EvalSymlinks(filepath.Join(d.file.dir, filepath.FromSlash(place)))
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("does not exist in the file's folder")
	} else if err != nil {
		return readError(err)
	}
	if !within(d.file.dir, file) {
		return errors.New("is a link that leaves the file's folder")
	}
	if info, err := os.Stat(file); err != nil {
		return readError(err)
	} else if !info.Mode().IsRegular() {
		return errors.New("is no regular file but " + kindOf(info.Mode()))
	}
	return nil
}
