package control

import (
	"encoding/json"
	"time"
)

// The types of the answers. Each field's jsonschema tag is its contract, and is
// what docs/control-api.yaml says of it. Lists are never null.

// Status tells of Orla and of every tool.
type Status struct {
	Version    string       `json:"version" jsonschema:"The version of Orla."`
	Pid        int          `json:"pid" jsonschema:"Its process."`
	Started    time.Time    `json:"started" jsonschema:"When that process began to serve."`
	URL        string       `json:"url" jsonschema:"Where MCP clients reach it; stdio if it serves one client there."`
	ToolsDir   string       `json:"tools_dir" jsonschema:"The folder of tools, or the one tool of orla dev; absolute."`
	ConfigFile string       `json:"config_file,omitempty" jsonschema:"The configuration file in force; absent if there is none."`
	StateDir   string       `json:"state_dir,omitempty" jsonschema:"Where Orla keeps what it remembers; absent if nowhere."`
	Log        string       `json:"log" jsonschema:"Where the log goes: a file, stderr or journald."`
	Socket     string       `json:"socket" jsonschema:"The socket of this interface."`
	InFlight   int          `json:"in_flight" jsonschema:"Calls that have begun and not ended."`
	Sessions   *int         `json:"sessions,omitempty" jsonschema:"Sessions of MCP clients over HTTP; absent on stdio."`
	Tools      []ToolStatus `json:"tools" jsonschema:"Every tool that is served, by name. A capsule is one, however many tools it offers."`
	Problems   []Problem    `json:"problems" jsonschema:"What of the tools folder is not served, or not as its author may think."`
	Denying    bool         `json:"denying,omitempty" jsonschema:"Every call is denied: among the problems is a governance document, which this version does not enforce."`
}

// ToolStatus tells of one tool. What only a capsule has is absent for a simple tool.
type ToolStatus struct {
	Name      string    `json:"name" jsonschema:"The name of the tool's manifest."`
	Kind      string    `json:"kind" jsonschema:"simple: a process for each call. capsule: one process, or one session with a server, for many calls. http, external, grpc, webhook-callback or mcp: a call of a service."`
	Version   string    `json:"version,omitempty" jsonschema:"The version in its manifest; absent for a plain executable."`
	Source    string    `json:"source" jsonschema:"The file that describes the tool."`
	State     string    `json:"state,omitempty" jsonschema:"Of a capsule: CREATED, STARTING, READY, RELOADING, CRASHED, STOPPING or STOPPED."`
	Since     time.Time `json:"since,omitzero" jsonschema:"Since when it is in that state."`
	Reason    string    `json:"reason,omitempty" jsonschema:"Why it is."`
	Held      bool      `json:"held,omitempty" jsonschema:"It was stopped by hand, and stays so until it is started or restarted by hand."`
	Pid       int       `json:"pid,omitempty" jsonschema:"Its process; absent if there is none."`
	Started   time.Time `json:"started,omitzero" jsonschema:"When that process was started."`
	Restarts  int       `json:"restarts,omitempty" jsonschema:"Starts of a process after the first one."`
	Failures  int       `json:"failures,omitempty" jsonschema:"Failures in a row."`
	LastExit  string    `json:"last_exit,omitempty" jsonschema:"How its last process ended; absent if none has."`
	Next      time.Time `json:"next_start,omitzero" jsonschema:"When it is started again; absent if no start is due."`
	InFlight  int       `json:"in_flight,omitempty" jsonschema:"Calls that its process is working on."`
	Waiting   int       `json:"waiting,omitempty" jsonschema:"Calls that wait for it to be ready."`
	Calls     int64     `json:"calls,omitempty" jsonschema:"Calls of its tools that have ended, since Orla was started."`
	Errors    int64     `json:"errors,omitempty" jsonschema:"How many of them failed."`
	P50       float64   `json:"p50_ms,omitempty" jsonschema:"Half of the last calls took no longer, in milliseconds."`
	P99       float64   `json:"p99_ms,omitempty" jsonschema:"99 of 100 of the last calls took no longer, in milliseconds."`
	Memory    int64     `json:"memory_bytes,omitempty" jsonschema:"What its process and those below it have in memory."`
	CPU       float64   `json:"cpu_seconds,omitempty" jsonschema:"The processor time that these have taken."`
	Processes int       `json:"processes,omitempty" jsonschema:"How many processes these are."`
	Isolation string    `json:"isolation,omitempty" jsonschema:"Where its processes live, and what isolates them: sandboxed (native), sandboxed (container), container, kubernetes or wasm; absent where they live as Orla's own do."`
	Limits    string    `json:"limits,omitempty" jsonschema:"Which limits hold for its process, or held for that of its last call, and which do not; not yet called, if there has been none. Absent without any."`
	Stderr    []string  `json:"stderr,omitempty" jsonschema:"The last lines that it wrote to stderr. Only where one tool is asked for."`
}

// Problem is one entry of the tools folder that is not served, or not as its
// author may think.
type Problem struct {
	Severity string   `json:"severity" jsonschema:"error: it is not served, or serves on as it was before. warning: it is served."`
	Path     string   `json:"path" jsonschema:"The file or folder."`
	Tool     string   `json:"tool,omitempty" jsonschema:"The tool's name, where it is known."`
	Messages []string `json:"messages" jsonschema:"What is wrong and what to do, one fault each."`
}

// ListedTools are the tools that clients can call.
type ListedTools struct {
	Tools []ListedTool `json:"tools" jsonschema:"By name."`
}

// ListedTool is one tool as MCP clients see it, and where it comes from.
type ListedTool struct {
	Name         string          `json:"name" jsonschema:"As clients call it."`
	Of           string          `json:"of" jsonschema:"The name of the manifest that it comes from, as in the status: a capsule may offer many tools."`
	Kind         string          `json:"kind" jsonschema:"simple, capsule, http, external, grpc, webhook-callback or mcp."`
	Version      string          `json:"version,omitempty" jsonschema:"The version in the manifest; absent for a plain executable."`
	Title        string          `json:"title,omitempty" jsonschema:"Its name for people."`
	Description  string          `json:"description,omitempty" jsonschema:"What it does."`
	Path         string          `json:"path" jsonschema:"The file that is run; empty for what is a service."`
	Source       string          `json:"source" jsonschema:"The file that describes the tool."`
	Interpreter  string          `json:"interpreter,omitempty" jsonschema:"What runs it; absent if it runs by itself."`
	Service      string          `json:"service,omitempty" jsonschema:"What answers its calls, where nothing is run for them: the address of a service, or the name of an McpServer."`
	InputSchema  json.RawMessage `json:"input_schema" jsonschema:"The JSON Schema of its arguments."`
	OutputSchema json.RawMessage `json:"output_schema,omitempty" jsonschema:"The JSON Schema of its structured answers; absent if there is none."`
	Timeout      string          `json:"timeout" jsonschema:"The longest time of one call, such as 30s."`
	Isolation    string          `json:"isolation,omitempty" jsonschema:"Where its processes live, as in the status; absent where they live as Orla's own do."`
}

// CallRequest is what a call is asked with.
type CallRequest struct {
	Arguments json.RawMessage `json:"arguments,omitempty" jsonschema:"The arguments, an object; absent for none."`
}

// Reload is what a reload changed, by the names of manifests.
type Reload struct {
	Added    []string          `json:"added" jsonschema:"Tools that are new."`
	Removed  []string          `json:"removed" jsonschema:"Tools that are gone."`
	Changed  []string          `json:"changed" jsonschema:"Tools whose manifest is another; a capsule has a new process."`
	Kept     int               `json:"kept" jsonschema:"How many tools stay as they were, with their processes and calls."`
	Failed   map[string]string `json:"failed" jsonschema:"Why a tool is not served, by its name."`
	Problems []Problem         `json:"problems" jsonschema:"As in the status."`
	Duration float64           `json:"duration_ms" jsonschema:"How long it took."`
}
