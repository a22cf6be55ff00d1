package control

import (
	"encoding/json"
	"time"
)

// The types of the answers. Each field's jsonschema tag is its contract, and is
// what docs/control-api.yaml says of it. Lists are never null.

// Status tells of Orla and of every tool.
type Status struct {
	Version     string          `json:"version" jsonschema:"The version of Orla."`
	Pid         int             `json:"pid" jsonschema:"Orla's process id."`
	Started     time.Time       `json:"started" jsonschema:"When Orla began to serve."`
	URL         string          `json:"url" jsonschema:"The address for MCP clients; stdio if Orla serves one client on stdin and stdout."`
	ToolsDir    string          `json:"tools_dir" jsonschema:"The absolute path of the tools folder, or of the tool that orla dev serves."`
	ConfigFile  string          `json:"config_file,omitempty" jsonschema:"The configuration file that Orla uses; absent if there is none."`
	StateDir    string          `json:"state_dir,omitempty" jsonschema:"The state folder; absent if there is none."`
	Log         string          `json:"log" jsonschema:"Where the log goes: a file, stderr or journald."`
	Socket      string          `json:"socket" jsonschema:"The path of the control socket."`
	InFlight    int             `json:"in_flight" jsonschema:"Calls in flight."`
	Upgrades    int             `json:"upgrades,omitempty" jsonschema:"How many times Orla was upgraded in place since its process was started."`
	NotUpgraded string          `json:"not_upgraded,omitempty" jsonschema:"Why the last upgrade was not made; absent if it was, or if there was none."`
	Sessions    *int            `json:"sessions,omitempty" jsonschema:"Sessions of MCP clients over HTTP; absent on stdio."`
	Tools       []ToolStatus    `json:"tools" jsonschema:"Every tool that Orla serves, sorted by name. A capsule is one entry, whatever number of tools it offers."`
	Problems    []Problem       `json:"problems" jsonschema:"Entries of the tools folder that Orla does not serve, or not as their authors may expect."`
	Waiting     int             `json:"approvals_waiting,omitempty" jsonschema:"Approvals that nobody has decided about."`
	Arguments   []KeptArguments `json:"arguments_kept,omitempty" jsonschema:"The tools of which the arguments of calls are kept now; absent if there is none."`
	Denying     bool            `json:"denying,omitempty" jsonschema:"Orla denies every call, because a governance document cannot be read or names nothing. The problems name it."`

	Callers []CallerStatus `json:"callers,omitempty" jsonschema:"Who may call what, if there are rules: the entries of callers, the tokens without one, and up to 1000 others that use something now. Absent without rules."`
}

// KeptArguments says that the arguments of calls of a tool are kept.
type KeptArguments struct {
	Tool  string    `json:"tool" jsonschema:"The tool, as clients name it."`
	Until time.Time `json:"until,omitzero" jsonschema:"Until when. What is kept is forgotten then. Absent if they are not kept."`
	By    string    `json:"by,omitempty" jsonschema:"Who has asked for it."`
}

// CallerStatus tells what one caller may do, or each caller of a group, and what the caller uses now.
type CallerStatus struct {
	Name          string       `json:"name,omitempty" jsonschema:"The caller; absent for a group."`
	Group         string       `json:"group,omitempty" jsonschema:"The group that the entry is for; absent for a caller."`
	Configured    bool         `json:"configured,omitempty" jsonschema:"It has an entry in callers, or is the name of a token."`
	Roles         []string     `json:"roles,omitempty" jsonschema:"The roles in its entry."`
	Toolsets      []string     `json:"toolsets,omitempty" jsonschema:"The toolsets in its entry."`
	MaySpeakFor   []string     `json:"may_speak_for,omitempty" jsonschema:"The agents that it may act for."`
	Limits        CallerLimits `json:"limits,omitzero" jsonschema:"The limits in its entry; absent if there are none."`
	Tools         *int         `json:"tools,omitempty" jsonschema:"How many tools it may call, some of them perhaps after an approval; for a group, a caller that has this entry alone. Absent until Orla has counted them, which can take more than one request if there are many callers and tools."`
	InFlight      int          `json:"in_flight,omitempty" jsonschema:"Its calls in flight."`
	Sessions      int          `json:"sessions,omitempty" jsonschema:"Its sessions and streams over HTTP."`
	Subscriptions int          `json:"subscriptions,omitempty" jsonschema:"Resources that it follows, counted once for each session."`
	KeptBytes     int64        `json:"kept_bytes,omitempty" jsonschema:"Bytes of its large answers that are kept."`
}

// CallerLimits are the limits of one caller. What is absent has no limit of its own.
type CallerLimits struct {
	CallsInFlight  int   `json:"calls_in_flight,omitempty" jsonschema:"Calls at the same time."`
	CallsPerMinute int   `json:"calls_per_minute,omitempty" jsonschema:"Calls in a minute."`
	Sessions       int   `json:"sessions,omitempty" jsonschema:"Sessions and streams over HTTP."`
	Subscriptions  int   `json:"subscriptions,omitempty" jsonschema:"Resources that it follows."`
	KeptMemory     int64 `json:"kept_memory,omitempty" jsonschema:"Bytes of kept answers."`
}

// ToolStatus tells of one tool. What only a capsule has is absent for a simple tool.
type ToolStatus struct {
	Name      string    `json:"name" jsonschema:"The name of the tool's manifest."`
	Kind      string    `json:"kind" jsonschema:"simple: a process for each call. capsule: one process, or one session with a server, for many calls. http, external, grpc, webhook-callback or mcp: a service."`
	Version   string    `json:"version,omitempty" jsonschema:"The version in its manifest; absent for a plain executable."`
	Source    string    `json:"source" jsonschema:"The file that describes the tool."`
	State     string    `json:"state,omitempty" jsonschema:"The state of a capsule: CREATED, STARTING, READY, RELOADING, CRASHED, STOPPING or STOPPED."`
	Since     time.Time `json:"since,omitzero" jsonschema:"When it entered that state."`
	Reason    string    `json:"reason,omitempty" jsonschema:"Why it is in that state."`
	Held      bool      `json:"held,omitempty" jsonschema:"It was stopped manually, and stays stopped until it is started or restarted manually."`
	Pid       int       `json:"pid,omitempty" jsonschema:"Its process id; absent without a process."`
	Place     string    `json:"place,omitempty" jsonschema:"Where its process is, such as a Pod and its node; absent if that is this machine."`
	Started   time.Time `json:"started,omitzero" jsonschema:"When its process was started."`
	Restarts  int       `json:"restarts,omitempty" jsonschema:"Starts of a process after the first one."`
	Failures  int       `json:"failures,omitempty" jsonschema:"Failures in a row."`
	LastExit  string    `json:"last_exit,omitempty" jsonschema:"How its last process ended; absent if none has ended."`
	Next      time.Time `json:"next_start,omitzero" jsonschema:"The time of the next start; absent if none is planned."`
	InFlight  int       `json:"in_flight,omitempty" jsonschema:"Calls that its process works on."`
	Waiting   int       `json:"waiting,omitempty" jsonschema:"Calls that wait until it is ready."`
	Calls     int64     `json:"calls,omitempty" jsonschema:"Calls of its tools that have ended since Orla started."`
	Errors    int64     `json:"errors,omitempty" jsonschema:"How many of these calls failed."`
	P50       float64   `json:"p50_ms,omitempty" jsonschema:"The median duration of the last calls, in milliseconds."`
	P99       float64   `json:"p99_ms,omitempty" jsonschema:"The 99th percentile of the duration of the last calls, in milliseconds."`
	Memory    int64     `json:"memory_bytes,omitempty" jsonschema:"Memory of its process and that process's descendants."`
	CPU       float64   `json:"cpu_seconds,omitempty" jsonschema:"Processor time of these processes."`
	Processes int       `json:"processes,omitempty" jsonschema:"The number of these processes."`
	Isolation string    `json:"isolation,omitempty" jsonschema:"Where its processes run, and what isolates them: sandboxed (native), sandboxed (container), container, kubernetes or wasm; absent without isolation."`
	Limits    string    `json:"limits,omitempty" jsonschema:"Which limits apply to its process, or applied to that of its last call, and which do not; not yet called, if there was no call. Absent without limits."`
	Login     string    `json:"login,omitempty" jsonschema:"Who has logged in to a remote server by orla login, and until when the access token is valid; absent without a login."`
	NeedLogin bool      `json:"need_login,omitempty" jsonschema:"The login of a remote server is over or cannot be used, or a login is required and there is none: somebody has to run orla login."`
	Stderr    []string  `json:"stderr,omitempty" jsonschema:"Its last lines on stderr. Only in the status of one tool."`
	Problems  []string  `json:"problems,omitempty" jsonschema:"What may not be as its author thinks, such as packages that nobody installs. Only in the status of one tool."`
}

// Problem is one entry of the tools folder that is not served, or not as its
// author may think.
type Problem struct {
	Severity string   `json:"severity" jsonschema:"error: it is not served, or is served as it was before. warning: it is served."`
	Path     string   `json:"path" jsonschema:"The file or folder."`
	Tool     string   `json:"tool,omitempty" jsonschema:"The tool's name, if it is known."`
	Messages []string `json:"messages" jsonschema:"What is wrong and what to do; one error in each string."`
}

// ListedTools are the tools that clients can call.
type ListedTools struct {
	Tools []ListedTool `json:"tools" jsonschema:"Sorted by name."`
}

// ListedTool is one tool as MCP clients see it, and where it comes from.
type ListedTool struct {
	Name         string          `json:"name" jsonschema:"The name that clients use."`
	Of           string          `json:"of" jsonschema:"The name of its manifest, as in the status. A capsule may offer many tools."`
	Kind         string          `json:"kind" jsonschema:"simple, capsule, http, external, grpc, webhook-callback or mcp."`
	Version      string          `json:"version,omitempty" jsonschema:"The version in the manifest; absent for a plain executable."`
	Title        string          `json:"title,omitempty" jsonschema:"Its name for people."`
	Description  string          `json:"description,omitempty" jsonschema:"What the tool does."`
	Path         string          `json:"path" jsonschema:"The file that Orla runs; empty for a service."`
	Source       string          `json:"source" jsonschema:"The file that describes the tool."`
	Interpreter  string          `json:"interpreter,omitempty" jsonschema:"The interpreter; absent if the file is executed directly."`
	Service      string          `json:"service,omitempty" jsonschema:"What answers the calls of a service: its address, or the name of an McpServer."`
	InputSchema  json.RawMessage `json:"input_schema" jsonschema:"The JSON Schema of its arguments."`
	OutputSchema json.RawMessage `json:"output_schema,omitempty" jsonschema:"The JSON Schema of its structured answers; absent if there is none."`
	Timeout      string          `json:"timeout" jsonschema:"The longest time of one call, such as 30s."`
	Isolation    string          `json:"isolation,omitempty" jsonschema:"Where its processes run, as in the status; absent without isolation."`
}

// CallRequest is what a call is asked with.
type CallRequest struct {
	Arguments json.RawMessage `json:"arguments,omitempty" jsonschema:"The arguments, an object; absent without arguments."`
	Timeout   int64           `json:"timeout_ms,omitempty" jsonschema:"The most time that the call may take, in milliseconds, in addition to the tool's own timeout; absent for no other limit."`
	Stream    bool            `json:"stream,omitempty" jsonschema:"Answer with a stream of CallEvents, so that the tool can tell of its progress and ask questions."`
}

// Manifest is the file that describes a tool.
type Manifest struct {
	Source string `json:"source" jsonschema:"The file."`
	Text   string `json:"text" jsonschema:"What it has now, without the Secret resources in it. It may differ from what is served."`
}

// ConsoleLink is a link that lets one browser into the console.
type ConsoleLink struct {
	URL     string    `json:"url" jsonschema:"The link. It is good once."`
	Expires time.Time `json:"expires" jsonschema:"Until when it is good."`
}

// Change is what is new in the status, since the stream began or since the last Change.
type Change struct {
	Status Status       `json:"status,omitzero" jsonschema:"The status without its tools, if anything in it is new; always in the first Change."`
	Tools  []ToolStatus `json:"tools,omitempty" jsonschema:"The tools that are new or have changed; all of them in the first Change."`
	Gone   []string     `json:"gone,omitempty" jsonschema:"The names of tools that are not served any more."`
}

// LogLines are lines of the log that came together.
type LogLines struct {
	Dropped int               `json:"dropped,omitempty" jsonschema:"How many lines came before these and are left out, since there were too many."`
	Lines   []json.RawMessage `json:"lines" jsonschema:"The lines, oldest first; each is a Line."`
}

// ReloadRequest asks for a reload.
type ReloadRequest struct {
	AcceptNoRules bool `json:"accept_no_rules,omitempty" jsonschema:"Governance documents that were there, and are gone, are to be gone. Without it, every call is denied if a folder has lost all of them, or if a file with some is empty."`
}

// Reload is what a reload changed, by the names of manifests.
type Reload struct {
	Added    []string          `json:"added" jsonschema:"New tools."`
	Removed  []string          `json:"removed" jsonschema:"Removed tools."`
	Changed  []string          `json:"changed" jsonschema:"Tools with a changed manifest. A changed capsule has a new process."`
	Kept     int               `json:"kept" jsonschema:"The number of unchanged tools, which keep their processes and calls."`
	Failed   map[string]string `json:"failed" jsonschema:"Why a tool is not served, by the tool's name."`
	Problems []Problem         `json:"problems" jsonschema:"The problems, as in the status."`
	Duration float64           `json:"duration_ms" jsonschema:"How long the reload took."`
}

// Approvals are the records of calls that need an approval.
type Approvals struct {
	Approvals []Approval `json:"approvals" jsonschema:"The oldest first."`
}

// Approval is the record of a call that needs an approval.
type Approval struct {
	ID        string          `json:"id" jsonschema:"The id of the record."`
	Phase     string          `json:"phase" jsonschema:"Pending, Approved, Denied or Expired."`
	Tool      string          `json:"tool" jsonschema:"The tool, as clients name it."`
	Caller    string          `json:"caller" jsonschema:"Who called."`
	Agent     string          `json:"agent,omitempty" jsonschema:"The agent that the caller acts for."`
	Task      string          `json:"task,omitempty" jsonschema:"The task that the call is a part of."`
	Runs      []string        `json:"runs" jsonschema:"All names of what runs, as rules may have them."`
	Class     string          `json:"operation_class,omitempty" jsonschema:"What the call does: read, write, delete or admin."`
	Rule      string          `json:"rule,omitempty" jsonschema:"The rule that wants the approval, and where it is."`
	Why       string          `json:"why,omitempty" jsonschema:"The same as a sentence."`
	Defined   string          `json:"definition,omitempty" jsonschema:"A digest of what clients are told of the tool: its name, title, description, schemas and annotations. Of an alias, also that of what it calls."`
	Approvers []string        `json:"approvers" jsonschema:"Who may decide: client, operator or passkey."`
	Created   time.Time       `json:"created_at" jsonschema:"When the call came."`
	Expires   time.Time       `json:"expires_at" jsonschema:"Until when it waits, or the approval is good."`
	TTL       string          `json:"ttl" jsonschema:"How long it waits, and how long an approval is good, such as 10m0s."`
	By        string          `json:"decided_by,omitempty" jsonschema:"Who decided: user:NAME(UID), or client of CALLER."`
	How       string          `json:"decided_how,omitempty" jsonschema:"With what: client, operator or passkey."`
	Decided   time.Time       `json:"decided_at,omitzero" jsonschema:"When."`
	Reason    string          `json:"reason,omitempty" jsonschema:"Why it was denied, or has expired."`
	Used      time.Time       `json:"used_at,omitzero" jsonschema:"When the call went on. An approval is good for one call."`
	Policy    string          `json:"policy" jsonschema:"The version of the rules."`
	Digest    string          `json:"digest" jsonschema:"A hash of all that the approval is bound to. Approving needs it."`
	Size      int             `json:"arguments_bytes" jsonschema:"The size of the arguments."`
	InputSize int             `json:"input_bytes,omitempty" jsonschema:"The size of the input; absent without one."`
	Arguments json.RawMessage `json:"arguments,omitempty" jsonschema:"The arguments, as the tool will get them. Only in the answer for one record."`
	Input     json.RawMessage `json:"input,omitempty" jsonschema:"What the client adds for a tool that requires input (2026-07-28): inputResponses and requestState. Only in the answer for one record."`
	Last      LastApproved    `json:"last_approved,omitzero" jsonschema:"The last call of this caller and tool that was approved before. Only in the answer for one record."`
}

// LastApproved is an earlier call of the same caller and tool, and how the arguments differ from its arguments.
type LastApproved struct {
	ID      string           `json:"id" jsonschema:"The id of its record."`
	By      string           `json:"decided_by" jsonschema:"Who approved it."`
	Decided time.Time        `json:"decided_at" jsonschema:"When."`
	Defined string           `json:"definition,omitempty" jsonschema:"What definition was then."`
	Changes []ArgumentChange `json:"changes" jsonschema:"What differs, at most 100 places; empty if nothing does."`
	More    int              `json:"more_changes,omitempty" jsonschema:"How many places more differ."`
}

// ArgumentChange is a place in which arguments differ. What was added has no was, and what was removed no is.
type ArgumentChange struct {
	Path string          `json:"path" jsonschema:"The place, as a JSON pointer; empty for all arguments."`
	Was  json.RawMessage `json:"was,omitempty" jsonschema:"What was there."`
	Is   json.RawMessage `json:"is,omitempty" jsonschema:"What is there now."`
}

// ApproveRequest approves a call. Who approves is known from the connection.
type ApproveRequest struct {
	Digest string `json:"digest" jsonschema:"The digest of the record that was read."`
	TTL    string `json:"ttl,omitempty" jsonschema:"How long the approval is good, from 1s to 168h. Default: the ttl of the record."`
}

// DenyRequest denies a call.
type DenyRequest struct {
	Reason string `json:"reason,omitempty" jsonschema:"Why, for who made the call; up to 1000 bytes."`
	Digest string `json:"digest,omitempty" jsonschema:"The digest of the record that was read."`
}

// ExtendRequest changes how long a record waits, or an approval is good.
type ExtendRequest struct {
	TTL string `json:"ttl" jsonschema:"How long from now, from 1s to 168h."`
}
