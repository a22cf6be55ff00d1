package control

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
)

// Recorder answers the requests for what Orla has written down: numbers, the audit log, the locks of packages.
type Recorder interface {
	// Numbers returns the numbers of the last hour.
	Numbers() Numbers
	// AuditLog returns the last lines of the audit log, at most n.
	AuditLog(n int) (AuditLog, error)
	// VerifyAudit reads the whole audit log and checks its chain.
	VerifyAudit(ctx context.Context) (AuditReport, error)
	// Packages returns what the locks of the folders of tools say.
	Packages() Packages
}

// Numbers are what calls did in the last hour. A time in which nothing happened has no sample.
type Numbers struct {
	Now      time.Time     `json:"now" jsonschema:"When these are from, by Orla's clock."`
	Step     int           `json:"step_seconds" jsonschema:"The length of the time of a sample in samples, in seconds."`
	Samples  []Sample      `json:"samples" jsonschema:"All tools together, the oldest first."`
	ToolStep int           `json:"tool_step_seconds" jsonschema:"The length of the time of a sample of a tool, in seconds."`
	Tools    []ToolNumbers `json:"tools" jsonschema:"Those that were called, or whose memory was measured; sorted by name."`
}

// Sample is what happened in one step.
type Sample struct {
	At     time.Time `json:"at" jsonschema:"When the step began."`
	Calls  int64     `json:"calls,omitempty" jsonschema:"Calls that ended in it."`
	Errors int64     `json:"errors,omitempty" jsonschema:"How many of them failed."`
	P50    float64   `json:"p50_ms,omitempty" jsonschema:"The median of their durations, to an eighth, in milliseconds."`
	P99    float64   `json:"p99_ms,omitempty" jsonschema:"The 99th percentile of their durations, to an eighth, in milliseconds."`
	Memory int64     `json:"memory_bytes,omitempty" jsonschema:"Memory of all capsules at its end; absent if it was not measured."`
	Own    int64     `json:"orla_bytes,omitempty" jsonschema:"Memory of Orla itself at its end; absent if it was not measured."`
}

// ToolNumbers are the numbers of one manifest.
type ToolNumbers struct {
	Name    string       `json:"name" jsonschema:"The name of the manifest, as in the status."`
	Samples []ToolSample `json:"samples" jsonschema:"The oldest first."`
}

// ToolSample is what happened to a tool in one step.
type ToolSample struct {
	At     time.Time `json:"at" jsonschema:"When the step began."`
	Calls  int64     `json:"calls,omitempty" jsonschema:"Calls that ended in it."`
	Errors int64     `json:"errors,omitempty" jsonschema:"How many of them failed."`
	Mean   float64   `json:"mean_ms,omitempty" jsonschema:"The mean of their durations, in milliseconds."`
	Max    float64   `json:"max_ms,omitempty" jsonschema:"The longest of their durations, in milliseconds."`
	Memory int64     `json:"memory_bytes,omitempty" jsonschema:"Memory of the capsule's processes; absent if it was not measured."`
}

// AuditLog is the end of the audit log.
type AuditLog struct {
	Path  string      `json:"path,omitempty" jsonschema:"The file, or journal; absent if there is no audit log."`
	Bytes int64       `json:"bytes,omitempty" jsonschema:"The size of the file."`
	Error string      `json:"error,omitempty" jsonschema:"Why lines cannot be written now; absent if they can."`
	Lines []AuditLine `json:"lines" jsonschema:"The last lines of the file, oldest first. They were not checked. Those of the journal are not here."`
}

// AuditLine is a line of the audit log, without arguments.
type AuditLine struct {
	Seq      uint64    `json:"seq" jsonschema:"Its number."`
	Time     time.Time `json:"time" jsonschema:"When it was written."`
	Event    string    `json:"event" jsonschema:"What it tells of: call, request, approval, pin, start, head, torn, gap or lost."`
	Caller   string    `json:"caller,omitempty" jsonschema:"Who called."`
	Tool     string    `json:"tool,omitempty" jsonschema:"The tool, as clients name it; of a request the prompt, or the URI of the resource."`
	Target   string    `json:"target,omitempty" jsonschema:"The name of what runs, as rules have it."`
	Class    string    `json:"class,omitempty" jsonschema:"What the call does: read, write, delete or admin."`
	Rule     string    `json:"rule,omitempty" jsonschema:"The rule that decided."`
	Verdict  string    `json:"verdict,omitempty" jsonschema:"What the rules say of the call."`
	Approval string    `json:"approval,omitempty" jsonschema:"The record of an approval."`
	Decider  string    `json:"decider,omitempty" jsonschema:"Who decided."`
	Outcome  string    `json:"outcome,omitempty" jsonschema:"How the call ended: ok, or the code of an error."`
	Duration float64   `json:"duration_ms,omitempty" jsonschema:"How long the call took, in milliseconds."`
	Why      string    `json:"why,omitempty" jsonschema:"What else there is to know: of a request its method, of an approval what became of it, of a start, a head or a gap why it was written."`
}

// AuditReport is the result of a check of the audit log.
type AuditReport struct {
	Whole    bool      `json:"whole" jsonschema:"Nothing is wrong."`
	Lines    int       `json:"lines" jsonschema:"Lines that were read."`
	Calls    int       `json:"calls" jsonschema:"Those of them that are calls."`
	First    uint64    `json:"first" jsonschema:"The number of the first line."`
	Last     uint64    `json:"last" jsonschema:"The number of the last line."`
	Signed   uint64    `json:"signed,omitempty" jsonschema:"The number of the last head with a valid signature; absent if there is none."`
	SignedAt time.Time `json:"signed_at,omitzero" jsonschema:"When it was signed."`
	Unsigned int       `json:"unsigned" jsonschema:"Lines after it. Who can write the file can have changed them."`
	Findings []string  `json:"findings" jsonschema:"What is wrong, each with the file and the line."`
	More     int       `json:"more_findings,omitempty" jsonschema:"How many findings are left out."`
	Notes    []string  `json:"notes" jsonschema:"What is not wrong, and what could not be checked."`
}

// Packages are the packages of the folders of tools.
type Packages struct {
	Locks    []PackageLock `json:"locks" jsonschema:"The files that tell of them, those that do not exist too."`
	Packages []Package     `json:"packages" jsonschema:"Sorted by name, and then by version, the highest first."`
}

// PackageLock is one orla.lock.
type PackageLock struct {
	File  string `json:"file" jsonschema:"Its path."`
	Error string `json:"error,omitempty" jsonschema:"Why it cannot be read."`
}

// Package is what a lock says of one version of a package.
type Package struct {
	Name        string   `json:"name" jsonschema:"The name of the package."`
	Version     string   `json:"version" jsonschema:"The version."`
	Serves      bool     `json:"serves" jsonschema:"This version serves: the lock says so, or none does and it is the highest."`
	Kind        string   `json:"kind" jsonschema:"Where it came from: git, local, bundle or server (of an MCP registry)."`
	Source      string   `json:"source,omitempty" jsonschema:"The address of the repository or file, or the name in the registry."`
	Registry    string   `json:"registry,omitempty" jsonschema:"The registry that named it."`
	Tag         string   `json:"tag,omitempty" jsonschema:"The tag in the repository."`
	Commit      string   `json:"commit,omitempty" jsonschema:"The commit of the tag."`
	Digest      string   `json:"digest" jsonschema:"The digest of its files."`
	Permissions []string `json:"permissions" jsonschema:"What was granted."`
	Unenforced  []string `json:"unenforced,omitempty" jsonschema:"Those of them that Orla cannot hold the package to."`
	Signer      string   `json:"signer,omitempty" jsonschema:"Who signed the tag."`
	Unsigned    bool     `json:"unsigned,omitempty" jsonschema:"A version without a signature was accepted."`
	Lock        string   `json:"lock" jsonschema:"The lock that has it."`
}

func (s *Server) numbers(http.ResponseWriter, *http.Request) (any, error) {
	return s.opts.Backend.Numbers(), nil
}

// How many lines of the audit log are shown.
const (
	usualAuditLines = 200
	maxAuditLines   = 1000
)

func (s *Server) auditLog(_ http.ResponseWriter, r *http.Request) (any, error) {
	n := usualAuditLines
	for key, values := range r.URL.Query() {
		if key != "n" {
			return nil, &Error{Code: CodeBadRequest, Message: fmt.Sprintf("there is no parameter %q", key), Hint: "there is n"}
		}
		var err error
		if n, err = strconv.Atoi(values[len(values)-1]); err != nil || n < 1 || n > maxAuditLines {
			return nil, &Error{Code: CodeBadRequest, Message: fmt.Sprintf("n: wants a number from 1 to %d", maxAuditLines)}
		}
	}
	return s.opts.Backend.AuditLog(n)
}

// verifyAudit checks the audit log. Of each caller one request at a time does, since it may read a large file.
func (s *Server) verifyAudit(_ http.ResponseWriter, r *http.Request) (any, error) {
	owner := turns.OwnerIn(r.Context())
	if !s.verifying.Try(owner) {
		return nil, &Error{Code: CodeRefused, Message: "the audit log is being checked for you already, or for many others", Hint: "try again"}
	}
	defer s.verifying.Give(owner)
	return s.opts.Backend.VerifyAudit(r.Context())
}

func (s *Server) packages(http.ResponseWriter, *http.Request) (any, error) {
	return s.opts.Backend.Packages(), nil
}
