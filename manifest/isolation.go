package manifest

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/service/secret"
)

// Isolation says where a tool's processes run, and their limits there (SPEC-TOOLS 7, docs/decisions/0019). The
// zero Isolation is none.
type Isolation struct {
	Mode IsolationMode // "" is none
	// Image is the container's, by its name for the engine. "": the operator's.
	Image string
	// PullSecret is what Image is pulled with; zero: nothing.
	PullSecret secret.Ref
	Network    string // of a container; "" is none
	Resources  Resources
	// Grants are what an installed package may do beyond its isolation (SPEC M7). They come from orla.lock and the
	// configuration, never from a manifest.
	Grants Grants `json:",omitzero"`
	// Terms are the configuration's, as zero limits of Run are; zero where nothing is isolated.
	Terms Terms `json:",omitzero"`
}

// Terms are the operator's settings for an isolated tool. They come from the configuration, never from a
// manifest.
type Terms struct {
	Backend Backend // "": see Refused
	// Refused says why calls are refused, if nothing here may isolate the tool, and Remedy what to do
	// about it; "" if something may.
	Refused, Remedy string

	User    string   // UID:GID that processes run as, in containers
	Paths   []string // of this machine, absolute, that a native sandbox shows beside the rest
	Hidden  []string // folders of which it shows only what a tool names
	Engine  string   // of containers: auto, podman, docker or a path
	Runtime string   // that the engine is to use; "" is its own
	Cluster Cluster
}

// Grants are what an installed package was granted.
type Grants struct {
	Reads   []string // paths of this machine, absolute and without links; "/" is all
	Writes  []string // the same, that the process can change too
	Network bool     // that of this machine
	Env     []string // names of Orla's variables that its processes inherit
	Home    string   // HOME of its processes, if paths in it were granted; "" for the sandbox's own
	// Hides are folders of Orla itself, which are not visible in those.
	Hides []string
}

// Empty reports whether nothing was granted.
func (g Grants) Empty() bool { return len(g.Reads)+len(g.Writes)+len(g.Env) == 0 && !g.Network }

// Backend is what isolates.
type Backend string

// The backends of Terms.
const (
	BackendNative     Backend = "native" // this machine's kernel
	BackendContainer  Backend = "container"
	BackendKubernetes Backend = "kubernetes"
)

// Cluster is where Jobs are made.
type Cluster struct {
	Kubeconfig string // a file; "" is where kubectl looks
	Context    string // of that file; "" is its current one
	Namespace  string
	TTL        time.Duration // after which the cluster removes a Job by itself
}

// Isolated reports whether processes are isolated.
func (i Isolation) Isolated() bool { return i.Mode != "" && i.Mode != IsolationNone }

// Resources bound what a tool's processes may take together (SPEC K3). Zero: the
// operator's bound where they are isolated, else none.
type Resources struct {
	Memory int64 // bytes, swap included
	CPUs   float64
	Pids   int // processes and threads
}

// IsolationMode is a kind of place for processes.
type IsolationMode string

// The values of runtime.isolation_mode.
const (
	IsolationNone       IsolationMode = "none"
	IsolationSandboxed  IsolationMode = "sandboxed"
	IsolationContainer  IsolationMode = "container"
	IsolationKubernetes IsolationMode = "kubernetes"
	IsolationWASM       IsolationMode = "wasm"
)

// Values lists what runtime.isolation_mode may be.
func (IsolationMode) Values() []string {
	return []string{string(IsolationNone), string(IsolationSandboxed), string(IsolationContainer), string(IsolationKubernetes), string(IsolationWASM)}
}

// CLI is the command of a tool of type cli (SPEC-TOOLS 3.6). Its variables are
// in Run.Env and Run.SecretEnv.
type CLI struct {
	Command string   // an absolute path, or a name that is looked up where it runs
	Args    []string // templates over a call's arguments; each makes one argument, or none
	// Stdin: the process reads the call's arguments from stdin, as JSON.
	Stdin  bool
	Output CLIOutput
	// WorkingDir is absolute, where the command runs. "": see Tool.WorkDir.
	WorkingDir     string
	RetryExitCodes []int
}

// CLIOutput is what of a command's output is the result.
type CLIOutput string

// The values of cli.output.
const (
	CLIStdout CLIOutput = "stdout"
	CLIStderr CLIOutput = "stderr"
	CLIBoth   CLIOutput = "both" // {"stdout", "stderr"}
)

// Values lists what spec.cli.output may be.
func (CLIOutput) Values() []string {
	return []string{string(CLIStdout), string(CLIStderr), string(CLIBoth)}
}

// WASM is the module of a tool of type wasm (SPEC-TOOLS 3.7).
type WASM struct {
	// Module is an absolute path, with links resolved, or an https:// or oci://
	// address without its digest.
	Module     string
	Digest     string // sha256:HEX that the module must have; "": any
	Entrypoint string
	MaxMemory  int64 // bytes
	Fuel       int64
	WASI       bool
	PullSecret secret.Ref // of an oci:// module; zero: nothing
}

// Exposed lists the files and folders of this machine that isolated processes of the tool need, as absolute
// paths: the folder of a package; the file of a simple tool; for an McpServer the files and folders next to
// its resource file that its command and arguments name; for type cli a command and a working folder next to
// its resource file. Nothing else of that folder is shown, since it may have secrets. A package whose process is in a
// Pod has none.
func (t Tool) Exposed() []string {
	var named []string
	switch {
	case t.Kind == Cli:
		named = []string{t.Path, t.Resource.CLI.WorkingDir}
	case t.Runtime.Generated:
		named = append([]string{t.Path}, t.Run.Args...)
		if !strings.Contains(t.Path, "/") {
			named = named[1:]
		}
	case t.Version != "" && t.Isolation.Mode == IsolationKubernetes: // what runs is in the image
		return nil
	case t.Version != "":
		return []string{t.Dir}
	default:
		return []string{t.Path}
	}
	var list []string
	for _, name := range named {
		if file := t.inDir(name); file != "" && !slices.Contains(list, file) {
			list = append(list, file)
		}
	}
	return list
}

// WorkDir returns the working folder of the tool's processes. If they are isolated, it is /tmp, unless they
// see the tool's folder.
func (t Tool) WorkDir() string {
	switch {
	case t.Kind == Cli && t.Resource.CLI.WorkingDir != "":
		return t.Resource.CLI.WorkingDir
	case !t.Isolation.Isolated():
		return t.Dir
	case len(t.Exposed()) > 0 && (t.Runtime.Generated || t.Kind != Cli && t.Version != ""): // its arguments count from there
		return t.Dir
	}
	return "/tmp"
}

// inDir is what a path that may count from the tool's folder names in it, or "".
func (t Tool) inDir(name string) string {
	file := name
	if !filepath.IsAbs(file) {
		file = filepath.Join(t.Dir, file)
	}
	at := regularfile.Resolve(t.Dir, file)
	if name == "" || at == "" || at == regularfile.Resolve(t.Dir, t.Dir) || !regularfile.Within(t.Dir, at) || !regularfile.Within(t.Dir, file) {
		return ""
	}
	return filepath.Clean(file)
}
