// Package keys has the keys that the descriptions of tools have in common, the
// sections mcp and runtime, with their defaults and their checks. It reads no file
// itself: a reader decodes its file into these keys and hands them to a Description,
// which adds the faults and makes the parts of a manifest.Tool.
package keys

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/manifest"
)

// MCPKeys are the section mcp.
type MCPKeys struct {
	Title        string      `json:"title,omitempty" jsonschema:"Name of the tool for people"`
	Annotations  Annotations `json:"annotations,omitzero" jsonschema:"Hints to clients about what a call may do"`
	InputSchema  Schema      `json:"input_schema,omitempty" jsonschema:"JSON Schema of the arguments, or the short form NAME: TYPE, with TYPE? for an argument that may be left out"`
	OutputSchema Schema      `json:"output_schema,omitempty" jsonschema:"JSON Schema of the answer: stdout must be JSON that fits it"`
}

// Annotations has the names of MCP's ToolAnnotations.
type Annotations struct {
	Title           string `json:"title,omitempty" jsonschema:"Name of the tool for people"`
	ReadOnlyHint    bool   `json:"readOnlyHint,omitempty" jsonschema:"A call changes nothing. Default false"`
	DestructiveHint *bool  `json:"destructiveHint,omitempty" jsonschema:"A call may destroy something. Default true"`
	IdempotentHint  bool   `json:"idempotentHint,omitempty" jsonschema:"A second call with the same arguments changes nothing more. Default false"`
	OpenWorldHint   *bool  `json:"openWorldHint,omitempty" jsonschema:"A call reaches beyond this machine. Default true"`
}

// Runtime are the section runtime.
type Runtime struct {
	Mode manifest.Kind `json:"mode,omitempty" jsonschema:"simple: one process for each call; capsule: one process that stays. Default simple"`
	Simple
	Capsule
}

// Simple are the keys of runtime that matter to a simple tool. Some matter
// to capsules as well; simpleOnly lists the rest. It has a field for each key.
type Simple struct {
	Args           Args                   `json:"args,omitempty" jsonschema:"Arguments that stand before those of a call"`
	Env            Env                    `json:"env,omitempty" jsonschema:"Environment variables to set"`
	SecretEnv      []string               `json:"secret_env,omitempty" jsonschema:"Environment variables whose values are secrets: each is the key with its name in the Secret packages/TOOL"`
	InheritEnv     InheritEnv             `json:"inherit_env,omitzero" jsonschema:"Which of Orla's own variables the tool gets: true for all, false for PATH, HOME, LANG and TMPDIR, or a list of further names. Default true"`
	Setup          Setup                  `json:"setup,omitzero" jsonschema:"How the packages are installed that the tool's files declare: auto, none, or a command that fills the folder in ORLA_ENV. Default auto"`
	Timeout        yamldoc.Duration       `json:"timeout,omitempty" jsonschema:"Longest time of one call: 30s, 1m30s or a number of seconds. Default: the configured timeout"`
	MaxConcurrency int                    `json:"max_concurrency,omitempty" jsonschema:"Calls that may run at once. Default: no separate limit"`
	Arguments      manifest.ArgumentsMode `json:"arguments,omitempty" jsonschema:"How a call's arguments arrive: as JSON on stdin, as flags, or both. Default both"`
	Output         manifest.OutputMode    `json:"output,omitempty" jsonschema:"text: stdout is the answer's text; mcp: stdout is a whole CallToolResult. Default text"`
	MaxOutput      yamldoc.Size           `json:"max_output,omitempty" jsonschema:"Bytes kept of stdout and of stderr: 8MiB or a number. Default: the configured max_output"`
	Retry          Retry                  `json:"retry,omitzero" jsonschema:"Whether a failed call is tried again. Only calls of tools with readOnlyHint or idempotentHint are, and calls that were never sent"`

	IsolationMode   manifest.IsolationMode `json:"isolation_mode,omitempty" jsonschema:"Where the tool's processes live: none (as Orla does), sandboxed, container or, for a capsule, kubernetes. Default none"`
	Image           string                 `json:"image,omitempty" jsonschema:"Image of the container that the tool lives in. Default: the configured tool_container_image"`
	ImagePullSecret string                 `json:"image_pull_secret,omitempty" jsonschema:"The secret to pull it with: [namespace/]name[:key]"`
	Network         string                 `json:"network,omitempty" jsonschema:"The container's network. Default none"`
	Resources       Resources              `json:"resources,omitzero" jsonschema:"Limits of the tool and all processes that it starts, together. For capsules and isolated tools"`
}

// isolationKeys are the keys that say where processes live.
func (k Simple) isolationKeys() Isolation {
	return Isolation{k.IsolationMode, k.Image, k.ImagePullSecret, k.Network, k.Resources, false}
}

// simpleOnly are the keys of Simple without effect on a capsule.
var simpleOnly = []string{"arguments", "output", "max_output"}

// Capsule are the keys of runtime without effect on a simple tool.
type Capsule struct {
	StartupTimeoutMS int                `json:"startup_timeout_ms,omitempty" jsonschema:"Longest time until the capsule is ready, in ms. Default 5000"`
	DrainMS          int                `json:"drain_ms,omitempty" jsonschema:"Time that calls in flight may take when the capsule is stopped, in ms. Default 5000"`
	StopGraceMS      int                `json:"stop_grace_ms,omitempty" jsonschema:"Time between SIGTERM and SIGKILL, in ms. Default 5000"`
	IdleTimeout      yamldoc.Duration   `json:"idle_timeout,omitempty" jsonschema:"Stop the capsule after this long without a call. Default: never"`
	Handshake        manifest.Handshake `json:"handshake,omitempty" jsonschema:"How readiness shows: hello (orla.hello) or mcp (a completed initialize). Default hello"`
	Protocol         manifest.Protocol  `json:"protocol,omitempty" jsonschema:"Which MCP it is spoken to in: auto (2026-07-28 if it has that), 2026-07-28, or initialize (older versions, whose tools may ask clients by requests of their own). Default auto"`
	Start            manifest.Start     `json:"start,omitempty" jsonschema:"eager: with Orla; lazy: at the first call. Default eager"`
	ToolPrefix       *string            `json:"tool_prefix,omitempty" jsonschema:"What stands before the names of the capsule's own tools. Default: its name and two underscores"`
	Pin              manifest.Pin       `json:"pin,omitempty" jsonschema:"Definitions of tools and prompts that differ from the accepted ones: off (not noticed), warn (served, and reported) or hold (not served until orla pins approve). Default: the configured pin"`
	HotLoad          HotLoad            `json:"hot_load,omitzero" jsonschema:"Reload when files change"`
	Restart          Restart            `json:"restart,omitzero" jsonschema:"When to start again after a crash"`
	Health           Health             `json:"health,omitzero" jsonschema:"Ask the capsule whether it is well. Off unless given"`
}

// HotLoad are the keys of runtime.hot_load.
type HotLoad struct {
	Watch      []string             `json:"watch,omitempty" jsonschema:"Paths to watch, relative to the package. Default [./]"`
	Ignore     []string             `json:"ignore,omitempty" jsonschema:"Files that do not count, as lines of a .gitignore"`
	Mode       manifest.HotLoadMode `json:"mode,omitempty" jsonschema:"restart: stop, then start; replace: start the new process, then stop the old one. Default restart"`
	DebounceMS int                  `json:"debounce_ms,omitempty" jsonschema:"Quiet time after the last change, in ms. Default 100"`
}

// Restart are the keys of runtime.restart.
type Restart struct {
	InitialMS    int `json:"initial_ms,omitempty" jsonschema:"First pause, in ms. Default 500"`
	MaxMS        int `json:"max_ms,omitempty" jsonschema:"Longest pause, in ms. Default 30000"`
	MaxFailures  int `json:"max_failures,omitempty" jsonschema:"Failures in a row after which the capsule stays stopped; 0 means no limit. Default 8"`
	ResetAfterMS int `json:"reset_after_ms,omitempty" jsonschema:"Time of readiness that makes the count start afresh, in ms. Default 30000"`
}

// Health are the keys of runtime.health.
type Health struct {
	IntervalMS int `json:"interval_ms,omitempty" jsonschema:"Time between two questions, in ms. Default 10000"`
	TimeoutMS  int `json:"timeout_ms,omitempty" jsonschema:"Longest time for an answer, in ms. Default 1000"`
	Failures   int `json:"failures,omitempty" jsonschema:"Questions in a row without an answer that count as a crash. Default 3"`
}

// Resources are the keys of runtime.resources.
type Resources struct {
	Memory yamldoc.Size `json:"memory,omitempty" jsonschema:"Memory including swap: 256MiB or a number of bytes. A capsule that exceeds it is killed and started again. Default: no limit; for isolated tools the configured one"`
	CPUs   float64      `json:"cpus,omitempty" jsonschema:"Processors: 0.5 is half of one. Default: no limit"`
	Pids   int          `json:"pids,omitempty" jsonschema:"Processes and threads at once. Default: no limit"`
}

// RuntimeDefaults is what holds for the keys that a file leaves out.
func RuntimeDefaults() Runtime {
	return Runtime{
		Mode:   manifest.Simple,
		Simple: Simple{Arguments: manifest.ArgumentsBoth, Output: manifest.OutputText, Retry: RetryDefaults()},
		Capsule: Capsule{
			StartupTimeoutMS: 5000,
			DrainMS:          5000,
			StopGraceMS:      5000,
			Handshake:        manifest.HandshakeHello,
			Protocol:         manifest.ProtocolAuto,
			Start:            manifest.StartEager,
			HotLoad:          HotLoad{Watch: []string{"./"}, Mode: manifest.HotLoadRestart, DebounceMS: 100},
			Restart:          Restart{InitialMS: 500, MaxMS: 30_000, MaxFailures: 8, ResetAfterMS: 30_000},
			Health:           Health{IntervalMS: 10_000, TimeoutMS: 1000, Failures: 3},
		},
	}
}

// Schema is a JSON Schema, or the short form of one.
type Schema []byte

// UnmarshalJSON keeps a mapping of any shape.
func (s *Schema) UnmarshalJSON(raw []byte) error {
	if raw[0] != '{' {
		return fmt.Errorf("wants a mapping: a JSON Schema whose type is object, or NAME: TYPE for each argument")
	}
	*s = append(Schema{}, raw...)
	return nil
}

// JSONSchema allows any mapping.
func (Schema) JSONSchema() string { return `{"type":"object"}` }

// Args are arguments. They may be written without quotes: [--limit, 5].
type Args []string

// JSONSchema allows the scalars that stand for their own text.
func (Args) JSONSchema() string {
	return `{"type":"array","items":{"type":["string","number","boolean"]}}`
}

// Env are variables. Their values may be written without quotes: LOG: 1.
type Env map[string]string

// JSONSchema allows the scalars that stand for their own text.
func (Env) JSONSchema() string {
	return `{"type":"object","additionalProperties":{"type":["string","number","boolean"]}}`
}

// Setup is auto, none, or a command.
type Setup manifest.Setup

// UnmarshalJSON reads any of them.
func (s *Setup) UnmarshalJSON(raw []byte) error {
	var word string
	if err := json.Unmarshal(raw, &word); err == nil && (word == "auto" || word == "none") {
		*s = Setup{None: word == "none"}
		return nil
	}
	var command []string
	if err := json.Unmarshal(raw, &command); err != nil || len(command) == 0 || slices.ContainsFunc(command, func(word string) bool {
		return word == "" || strings.ContainsRune(word, 0)
	}) {
		return errors.New("wants auto, none or a command as a list of words")
	}
	*s = Setup{Command: command}
	return nil
}

// JSONSchema allows all of them.
func (Setup) JSONSchema() string {
	return `{"anyOf":[{"enum":["auto","none"]},{"type":"array","items":{"type":"string"},"minItems":1}]}`
}

// InheritEnv is true, false, or a list of names.
type InheritEnv manifest.EnvPolicy

// UnmarshalJSON reads either.
func (p *InheritEnv) UnmarshalJSON(raw []byte) error {
	var all bool
	if err := json.Unmarshal(raw, &all); err == nil {
		*p = InheritEnv{Narrow: !all}
		return nil
	}
	var names []string
	if err := json.Unmarshal(raw, &names); err != nil {
		return errors.New("wants true, false or a list of names")
	}
	for _, name := range names {
		if why := badVariable(name); why != "" {
			return fmt.Errorf("%q %s", name, why)
		}
	}
	*p = InheritEnv{Narrow: true, Names: names}
	return nil
}

// JSONSchema allows both.
func (InheritEnv) JSONSchema() string {
	return `{"anyOf":[{"type":"boolean"},{"type":"array","items":{"type":"string"}}]}`
}
