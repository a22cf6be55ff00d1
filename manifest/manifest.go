// Package manifest says what a tool is: its checked description, and what a
// search for tools finds. It reads no description itself. The packages below it do:
//
//	keys      the keys that all descriptions share, and their checks
//	toolfile  tool.yaml, orla-tool.json, metadata blocks and sidecars
//	resource  files of tool resources, secrets among them
//	discover  folders of tools
//
// All of them read files and start no process. Their invariant: each Tool that they return can be run. An entry
// that cannot be is reported as a Problem, which says where the fault is and what to do about it, and does not
// affect other entries (SPEC A2, B5).
package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/url"
	"reflect"
	"slices"
	"time"
	"unsafe"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/service/secret"
)

// Kind says how a tool's calls are answered.
type Kind string

const (
	// Simple tools are run once per call (RFC 1).
	Simple Kind = "simple"
	// Capsule tools are kept running (RFC 2, RFC 3).
	Capsule Kind = "capsule"
)

// Values lists what runtime.mode may be.
func (Kind) Values() []string { return []string{string(Simple), string(Capsule)} }

// Tool is the checked description of one tool. Two Tools that are the same behave the same, so that a reload keeps the present one.
type Tool struct {
	Name string // as clients call it: [A-Za-z0-9_.-]{1,64}, unique in a Result
	Kind Kind

	// Path is the file to run, absolute; with links resolved, unless it is an
	// McpServer's. "" where nothing is run.
	Path string
	// Dir is the working directory of its processes, absolute (SPEC C2, D3).
	Dir string
	// Source is the file that describes the tool, for messages: the
	// executable itself, its NAME.tool.yaml, the package's tool.yaml or
	// orla-tool.json, or a file of resources.
	Source string

	Interpreter Interpreter

	Version     string // SemVer; "" for a plain executable
	Title       string
	Description string

	// InputSchema is a compact JSON Schema whose type is "object"; never empty.
	InputSchema json.RawMessage
	// OutputSchema is a compact JSON Schema whose type is "object", or nil.
	OutputSchema json.RawMessage
	Annotations  *mcp.ToolAnnotations // nil when none are given

	// Requires are programs that the tool needs, such as "ffmpeg" and "node>=20". Without them it is not started;
	// their versions are checked by orla doctor and orla validate.
	Requires []string `json:",omitempty"`

	Run       Run
	Retry     Retry
	Isolation Isolation
	// Runtime is how a capsule's process is kept; zero for other tools.
	Runtime Runtime
	// Resource is what a Tool resource says in addition; nil for other tools.
	Resource *Resource
}

// Same reports whether two tools are equal by reflect.DeepEqual. Of a tool and its copy it does not look at what they share.
func (t *Tool) Same(other *Tool) bool {
	return bytes.Equal(t.memory(), other.memory()) || reflect.DeepEqual(t, other)
}

// memory is the memory of t itself, without what it points to.
func (t *Tool) memory() []byte { return unsafe.Slice((*byte)(unsafe.Pointer(t)), unsafe.Sizeof(*t)) }

// Listed is the tool as clients see it.
func (t Tool) Listed() *mcp.Tool {
	listed := &mcp.Tool{
		Name:        t.Name,
		Title:       t.Title,
		Description: t.Description,
		InputSchema: t.InputSchema,
		Annotations: t.Annotations,
	}
	if t.OutputSchema != nil {
		listed.OutputSchema = t.OutputSchema
	}
	return listed
}

// Service returns what answers the calls of a tool that starts no process: the address of a service without its
// path, which may be secret, or the name of an McpServer. It is "" for all other tools.
func (t Tool) Service() string {
	endpoint := ""
	switch r := t.Resource; {
	case r != nil && r.Server != "":
		return r.Server
	case r != nil:
		endpoint = r.Endpoint
	case t.Runtime.Remote != nil:
		endpoint = t.Runtime.Remote.Endpoint
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// Run says how a tool's process is started and how its output becomes an answer. For limits that are zero, the
// configured ones apply.
type Run struct {
	Args []string          // stand after the file, before a call's own flags
	Env  map[string]string // set on top of what InheritEnv lets through

	// SecretEnv are variables that are set on top of Env.
	SecretEnv []SecretEnv

	InheritEnv EnvPolicy
	Setup      Setup `json:",omitzero"`
	Arguments  ArgumentsMode
	Output     OutputMode

	Timeout        time.Duration // of one attempt of a call; 0: the configured timeout
	MaxOutput      int64         // bytes kept of each stream; 0: the configured max_output
	MaxConcurrency int           // calls at once; 0: no limit of its own

	// StructuredResults puts stdout, stderr and exit_code in structuredContent
	// as well (SPEC C3). It comes from the configuration, never from a manifest.
	StructuredResults bool
}

// EnvPolicy says which of Orla's own variables a tool inherits (SPEC C2). The
// zero value inherits all but Orla's own and secrets.
type EnvPolicy struct {
	// Narrow limits the inherited variables to PATH, HOME, LANG, TMPDIR and Names.
	Narrow bool
	Names  []string
}

// Setup says how the packages are installed that the tool's own files declare (SPEC R2). The zero value finds
// out by the files.
type Setup struct {
	None    bool     // not at all
	Command []string // in place of the usual installers; nil for none
	// NoScripts says that installing runs no code of the packages. It is for tools that were installed, and never from
	// a manifest.
	NoScripts bool
	// Package is the name and the digest of the installed package that the tool is of; "" for others, and never from a
	// manifest.
	Package string
}

// ArgumentsMode says how a call's arguments reach a simple tool (SPEC C1).
type ArgumentsMode string

// The values of runtime.arguments.
const (
	ArgumentsBoth  ArgumentsMode = "both" // JSON on stdin and flags on argv
	ArgumentsStdin ArgumentsMode = "stdin"
	ArgumentsFlags ArgumentsMode = "flags"
)

// Values lists what runtime.arguments may be.
func (ArgumentsMode) Values() []string {
	return []string{string(ArgumentsBoth), string(ArgumentsStdin), string(ArgumentsFlags)}
}

// OutputMode says what a simple tool's stdout is (SPEC C3).
type OutputMode string

// The values of runtime.output.
const (
	OutputText OutputMode = "text" // text or bytes, as they come
	OutputMCP  OutputMode = "mcp"  // a whole CallToolResult as JSON
)

// Values lists what runtime.output may be.
func (OutputMode) Values() []string { return []string{string(OutputText), string(OutputMCP)} }

// DefaultMaxOutput is how many bytes an answer may have, and how many are kept of each stream of a
// process, where nothing else is said (SPEC C5, SPEC-TOOLS 1.2).
const DefaultMaxOutput = 8 << 20

// Severity says how bad a Problem is.
type Severity string

const (
	// Warning means that the entry is served, or was skipped for a reason that needs no repair.
	Warning Severity = "warning"
	// Fault means that the entry is not served, and `orla validate` fails.
	Fault Severity = "error"
)

// Problem is one reason why an entry is skipped or not as its author may think.
type Problem struct {
	Path     string // the entry, as found below the folder that was searched
	Tool     string // the tool's name where it is known, else ""
	Severity Severity
	// Err says what is wrong and what to do. For a fault inside a file it
	// unwraps to the yamldoc faults with FILE:LINE:COLUMN, one per line.
	Err error
	// Denies says that the entry is, or may be, a governance document that cannot be read. Every call has
	// to be denied while there is one (SPEC-TOOLS 8.3).
	Denies bool
}

// ErrNowhere is in the chain of the Err of a link that leads nowhere.
var ErrNowhere = errors.New("is a link to something that does not exist")

// Unreadable reports whether the entry could not be read, so that nobody knows
// what is in it.
func (p Problem) Unreadable() bool {
	_, ok := errors.AsType[*regularfile.UnreadableError](p.Err)
	return ok
}

// Result is what a search found. Tools are sorted by name; each name is there
// once. Problems are sorted by path, Secrets by namespace and name.
type Result struct {
	Tools    []Tool
	Secrets  []secret.Secret
	Rules    Rules
	Problems []Problem
	Folders  []string // of tools that were to be searched, as the problems have them; nil if it is not known
}

// Faulty returns the names of tools that are there and cannot be served, as far as they are known, sorted.
func (r *Result) Faulty() (names []string) {
	for _, p := range r.Problems {
		if p.Tool != "" && p.Severity == Fault {
			names = append(names, p.Tool)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
