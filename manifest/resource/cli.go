package resource

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/keys"
)

// cliKeys are spec.cli (SPEC-TOOLS 1.2, 3.6).
type cliKeys struct {
	Command         string             `json:"command,omitempty" jsonschema:"The program, by its name or its absolute path where it runs; with isolation_mode none or sandboxed also by a path with a slash that counts from the file's folder"`
	Args            keys.Args          `json:"args,omitempty" jsonschema:"Its arguments: Go templates over the arguments of the call, each of which makes one, or none if it comes out empty"`
	Image           string             `json:"image,omitempty" jsonschema:"The image that has the program. Required with isolation_mode container, the default, and kubernetes"`
	ImagePullSecret string             `json:"image_pull_secret,omitempty" jsonschema:"The secret to pull it with: [namespace/]name[:key]"`
	Network         string             `json:"network,omitempty" jsonschema:"The container's network. Default none"`
	StdinFromInput  bool               `json:"stdin_from_input,omitempty" jsonschema:"Write the call's arguments to stdin as JSON. Default false"`
	Output          manifest.CLIOutput `json:"output,omitempty" jsonschema:"What of it is the result: stdout, stderr or both. Default stdout"`
	WorkingDir      string             `json:"working_dir,omitempty" jsonschema:"Where it runs: a folder of the image; with isolation_mode none or sandboxed one of this machine, which counts from the file's folder"`
	Env             keys.Env           `json:"env,omitempty" jsonschema:"Environment variables to set"`
	EnvFrom         []cliEnvFrom       `json:"env_from,omitempty" jsonschema:"Environment variables whose values are secrets"`
	Resources       cliResources       `json:"resources,omitzero" jsonschema:"What a call may take, where it is isolated"`
	RetryExitCodes  []int              `json:"retry_exit_codes,omitempty" jsonschema:"Exit codes after which a call may be tried again"`
}

type cliEnvFrom struct {
	Name      string `json:"name" jsonschema:"Name of the variable"`
	SecretRef string `json:"secretRef" jsonschema:"The secret that it is set to: [namespace/]name[:key]"`
	Key       string `json:"key,omitempty" jsonschema:"Its key. Default value"`
}

type cliResources struct {
	Memory    yamldoc.Size `json:"memory,omitempty" jsonschema:"Memory: 128MiB or a number of bytes"`
	CPUs      float64      `json:"cpus,omitempty" jsonschema:"Processors: 0.5 is half of one"`
	PidsLimit int          `json:"pids_limit,omitempty" jsonschema:"Processes and threads at once"`
}

// readCLI checks spec.cli for the isolation in which it runs, and fills it in.
func (d *Declaration) readCLI(k cliKeys) {
	const at = "spec.cli."
	t := &d.Tool
	t.Dir = d.File.Dir
	cli := &manifest.CLI{Args: k.Args, Stdin: k.StdinFromInput, Output: k.Output, RetryExitCodes: k.RetryExitCodes}
	t.Resource.CLI = cli
	if command, err := d.cliCommand(k.Command); err != nil {
		d.Doc.Faultf(at+"command", "%v", err)
	} else if cli.Command = command; command != k.Command {
		t.Path = command
	}
	for i, arg := range k.Args {
		if _, err := manifest.ParseTemplate(arg); err != nil {
			d.Doc.Faultf(at+"args"+keys.Indexed(i), "%v", err)
		} else if arg == "" {
			d.Warnings = append(d.Warnings, d.Doc.At(at+"args"+keys.Indexed(i), "is always empty, and so makes no argument"))
		}
	}
	if k.WorkingDir != "" {
		dir, err := d.cliFolder(k.WorkingDir)
		d.faultIf(at+"working_dir", err)
		if err == nil && d.Tool.Isolation.Isolated() && regularfile.Resolve(d.File.Dir, dir) == d.File.Dir {
			d.Doc.Faultf(at+"working_dir", "is the folder of this file, which an isolated command must not see as a whole, since it may contain secrets; name a folder inside it")
		}
		cli.WorkingDir = dir
	}
	for i, code := range k.RetryExitCodes {
		if code < 1 || code > 255 {
			d.Doc.Faultf(at+"retry_exit_codes"+keys.Indexed(i), "must be between 1 and 255, got %d", code)
		}
	}
	d.cliEnv(k)
	d.cliIsolation(k)
}

// local reports whether a tool of type cli may run what is in the file's folder.
func (d *Declaration) local() bool {
	mode := d.Tool.Isolation.Mode
	return mode == manifest.IsolationNone || mode == manifest.IsolationSandboxed
}

// cliCommand checks a command, and returns it as it is looked up where it runs: as
// it is written, or as the path of a file of the folder.
func (d *Declaration) cliCommand(command string) (string, error) {
	switch {
	case command == "":
		return "", errors.New("is required for type cli")
	case strings.ContainsFunc(command, isControl):
		return "", errors.New("must not hold control characters")
	case strings.HasPrefix(command, "-"):
		return "", errors.New("must not begin with -, which options do")
	case !strings.Contains(command, "/") && strings.Contains(command, " "):
		return "", errors.New("is not the name of a program; its arguments belong in args")
	case strings.Contains(command, "/") && !filepath.IsAbs(command):
		return d.localProgram(command)
	}
	if _, err := exec.LookPath(command); err != nil && d.Tool.Isolation.Mode == manifest.IsolationNone {
		d.Warnings = append(d.Warnings, d.Doc.At("spec.cli.command", "%q is not here, or not executable; calls fail until it is", command))
	}
	return command, nil
}

// localProgram finds a program in the file's folder.
func (d *Declaration) localProgram(command string) (string, error) {
	if !d.local() {
		return "", fmt.Errorf("with runtime.isolation_mode: %s must be a name or an absolute path, which the image has", d.Tool.Isolation.Mode)
	}
	file, info, err := d.inFolder(command)
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("is not a regular file but %s", regularfile.KindOf(info.Mode()))
	case info.Mode()&0o111 == 0:
		return "", fmt.Errorf("is not executable: chmod +x %s", file)
	}
	return file, nil
}

// cliFolder checks a working folder, and returns it as an absolute path where the
// command runs.
func (d *Declaration) cliFolder(dir string) (string, error) {
	switch {
	case strings.ContainsFunc(dir, isControl):
		return dir, errors.New("must not hold control characters")
	case !d.local() && !path.IsAbs(dir):
		return dir, fmt.Errorf("with runtime.isolation_mode: %s must be an absolute path, which the image has", d.Tool.Isolation.Mode)
	case path.IsAbs(dir) && d.Tool.Isolation.Mode != manifest.IsolationNone:
		return path.Clean(dir), nil
	}
	file, info, err := d.inFolder(dir)
	if path.IsAbs(dir) {
		file = dir
		if info, err = os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			err = errors.New("does not exist")
		}
	}
	switch {
	case err != nil:
		return dir, err
	case !info.IsDir():
		return dir, errors.New("is not a folder")
	}
	return file, nil
}

// inFolder finds the file or folder of a relative path, which must stay in the file's folder. It returns its path
// without links.
func (d *Declaration) inFolder(name string) (string, fs.FileInfo, error) {
	if !filepath.IsLocal(filepath.FromSlash(name)) {
		return "", nil, errors.New("must stay in the file's folder; write an absolute path for a file elsewhere")
	}
	file, err := filepath.EvalSymlinks(filepath.Join(d.File.Dir, filepath.FromSlash(name)))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil, errors.New("does not exist in the file's folder")
	} else if err != nil {
		return "", nil, regularfile.ReadError(err)
	}
	if !regularfile.Within(d.File.Dir, file) {
		return "", nil, errors.New("is a link that leaves the file's folder")
	}
	info, err := os.Stat(file)
	if err != nil {
		return "", nil, regularfile.ReadError(err)
	}
	return file, info, nil
}

// cliEnv checks the variables, of which each may be set once.
func (d *Declaration) cliEnv(k cliKeys) {
	const at = "spec.cli."
	d.CheckVariables(at+"env", k.Env)
	d.Tool.Run.Env = k.Env
	names := map[string]bool{}
	for name := range k.Env {
		names[name] = true
	}
	for i, from := range k.EnvFrom {
		at := at + "env_from" + keys.Indexed(i)
		if d.Doc.Has(at + ".name") {
			d.CheckVariable(at+".name", from.Name)
			if names[from.Name] {
				d.Doc.Faultf(at+".name", "%q is there twice", from.Name)
			}
			names[from.Name] = true
		}
		var ref secret.Ref
		if d.Doc.Has(at + ".secretRef") {
			ref = d.secretRef(at+".secretRef", from.SecretRef)
		}
		if d.Doc.Has(at + ".key") {
			if err := secret.CheckWord(from.Key); err != nil {
				d.Doc.Faultf(at+".key", "%v", err)
			} else if strings.Contains(from.SecretRef, ":") {
				d.Doc.Faultf(at+".key", "is given twice, as key and in secretRef; keep one")
			}
			ref.Key = from.Key
		}
		d.Tool.Run.SecretEnv = append(d.Tool.Run.SecretEnv, manifest.SecretEnv{Name: from.Name, Secret: ref})
	}
}

// cliIsolation checks what the keys say of the place that the command runs in.
func (d *Declaration) cliIsolation(k cliKeys) {
	const at = "spec.cli."
	given := func(key string) bool { return d.Doc.Has(at + key) }
	i := &d.Tool.Isolation
	i.Image = k.Image
	switch {
	case k.Image != "":
		if err := keys.CheckImage(k.Image); err != nil {
			d.Doc.Faultf(at+"image", "%v", err)
		} else if !i.Isolated() {
			d.Warnings = append(d.Warnings, d.Doc.At(at+"image", "has no effect with runtime.isolation_mode: none"))
		}
	case i.Mode == manifest.IsolationContainer || i.Mode == manifest.IsolationKubernetes:
		d.Doc.Faultf(at+"image", "is required with runtime.isolation_mode: %s%s", i.Mode, d.unlessElse())
	}
	if given("image_pull_secret") {
		i.PullSecret = d.secretRef(at+"image_pull_secret", k.ImagePullSecret)
		if k.Image == "" {
			d.Doc.Faultf(at+"image_pull_secret", "is for image, which is not given")
		}
	}
	if given("network") {
		d.faultIf(at+"network", keys.SetNetwork(i, k.Network))
	}
	d.cliResources(k.Resources)
	if i.Mode == manifest.IsolationKubernetes {
		d.checkJob(k)
	}
}

// checkJob refuses what a Job of Kubernetes cannot do.
func (d *Declaration) checkJob(k cliKeys) {
	const at, with = "spec.cli.", "does not go with runtime.isolation_mode: kubernetes: "
	if k.StdinFromInput {
		d.Doc.Faultf(at+"stdin_from_input", with+"a Job has no stdin")
	}
	if k.Output != "" && k.Output != manifest.CLIStdout {
		d.Doc.Faultf(at+"output", with+"a Job has one log of both streams; stdout, the default, is all of it")
	}
	if k.Resources.PidsLimit != 0 {
		d.Doc.Faultf(at+"resources.pids_limit", with+"a Job cannot have one; the kubelet of its node does (podPidsLimit)")
	}
}

// unlessElse names the alternative to a container, if the file did not ask for one.
func (d *Declaration) unlessElse() string {
	if d.Doc.Has("spec.runtime.isolation_mode") {
		return ""
	}
	return ", the default of type cli; runtime.isolation_mode: sandboxed needs none"
}

func (d *Declaration) cliResources(k cliResources) {
	const at = "spec.cli.resources."
	d.CheckBounds(keys.Resources{Memory: k.Memory, CPUs: k.CPUs, Pids: k.PidsLimit}, func(key string) string {
		if key == "pids" {
			key = "pids_limit"
		}
		return at + key
	})
	d.Tool.Isolation.Resources = manifest.Resources{Memory: int64(k.Memory), CPUs: k.CPUs, Pids: k.PidsLimit}
	if d.Doc.Has("spec.cli.resources") && !d.Tool.Isolation.Isolated() {
		d.Doc.Faultf("spec.cli.resources", "limits only isolated tools, and runtime.isolation_mode is none: remove the key, or choose another mode")
	}
}

func isControl(c rune) bool { return c < ' ' || c == 0x7f }
