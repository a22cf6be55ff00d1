// Package control is the control API, with which operators query and control a running Orla: HTTP and JSON
// over a unix socket (SPEC J2). It has the server, which is a service of the front, the client, and the
// types of both. A Backend answers the requests. docs/control-api.yaml describes the API, and a test
// compares it with the code.
//
// Only Orla's user and root can open the socket (package unixsocket), since its clients may do everything.
//
// Its invariant: no client can make Orla wait.
package control

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/observe/linefilter"
)

// Backend answers the requests of a server. Its methods may be called from any goroutine. An error that is
// neither an *Error nor a *fault.Error is reported to the client as internal.
type Backend interface {
	// Status tells of Orla and of every tool. It does not block.
	Status() Status
	// Tool tells of one tool, by the name of its manifest. It does not block.
	Tool(name string) (ToolStatus, error)
	// Tools lists what clients can call, once that is known. A list that ctx
	// cuts short is one too.
	Tools(ctx context.Context) []ListedTool
	// Manifest returns the file that describes a tool, by the name of its manifest.
	Manifest(name string) (Manifest, error)
	// Call answers a call with a CallToolResult, as JSON. Trouble of the tool
	// is such a result too; an error says that there was no call.
	// client gets progress and questions; it may be nil.
	Call(ctx context.Context, by Caller, tool string, arguments json.RawMessage, client peer.Client) (json.RawMessage, error)
	// Operate does to a capsule what is asked, and returns when it is done, or
	// with why it is not. ctx bounds only the waiting.
	Operate(ctx context.Context, capsule string, action Action) error
	// Reload reads the configuration and the folders again, and returns what
	// that changed. An error says that nothing was changed, and why. by is who asks.
	Reload(ctx context.Context, by Peer, asked ReloadRequest) (Reload, error)
	// Upgrade checks another binary, and has this process execute it soon after that. An error says that it does
	// not, and why; nothing has changed then.
	Upgrade(ctx context.Context, binary string) (Upgrade, error)
	// Pins tells which definitions are pinned, of all providers.
	Pins() PinList
	// Pinned tells what is not accepted of a provider, or of one of its tools or prompts, and how it differs.
	Pinned(name string) (PinnedProvider, error)
	// Approve accepts the definitions that are listed now of a provider, or of one of its tools or prompts, and
	// returns what was not accepted before. by is who asks. ctx bounds only the wait until it is served.
	ApprovePins(ctx context.Context, by Peer, name string, asked PinApproval) (PinnedProvider, error)
	// Lines yields lines of the log, oldest first, each a JSON object without a
	// line end, with the number of lines that were dropped before it because
	// the caller was slow. With Follow it goes on until ctx ends.
	Lines(ctx context.Context, q Query) (iter.Seq2[json.RawMessage, int], error)
	// ConsoleLink makes a link that lets one browser into the console.
	ConsoleLink(ctx context.Context, by Peer) (ConsoleLink, error)
	Recorder
	Approver
}

// Caller is who makes a call, for rules and the log: CLI, Page, or whose token somebody has opened the page with.
type Caller struct {
	Name   string
	Groups []string
}

// The names of callers without a token (SPEC-TOOLS 8.1).
const (
	CLI  = "cli"
	Page = "console"
)

// Action is what an operator can do to a capsule.
type Action string

// The actions.
const (
	Restart Action = "restart"
	Stop    Action = "stop"
	Start   Action = "start"
)

// Query says which lines of the log are wanted. The zero value wants all that
// are kept, and no new ones.
type Query struct {
	Tools  []string  // only lines of these, at most maxLogTools; empty for all and Orla itself
	Last   int       // at most so many of the past; 0 for all that are kept, below 0 for none
	Since  time.Time // none before it; zero for no limit
	Events []string  // the messages that are wanted; empty for all
	Level  string    // one of Levels: lines of it and above; "" for all
	Stream string    // stdout or stderr: what a tool printed there; "" for all lines
	Grep   string    // lines that have this text in the message, the tool or a value; "" for all lines
	Follow bool      // new lines too, for as long as they come
	// Pace is the least time between two times at which new lines come; 0 for none.
	Pace time.Duration
}

// Levels are those of the log, from the least on.
func Levels() []string { return linefilter.Levels() }

// maxLogTools bounds the tools of a query.
const maxLogTools = 64

// Wants returns whether a line of the log has the level, the stream and the text of a query; nil if
// it asks for none of them.
func (q *Query) Wants() func(line []byte) bool {
	return linefilter.Filter{Level: q.Level, Stream: q.Stream, Grep: q.Grep}.Func()
}

// Events are the messages of the log that tell what happened to Orla and its
// tools. They are what GET /v1/events streams; docs/LOG.md
// says what each has.
func Events() []string {
	return []string{
		"serving", "stopping", "stopped",
		"reload", "reload: the configuration has errors; keeping the previous one", "reload failed; keeping the previous configuration",
		"a tool is not served", "listening elsewhere",
		"created", "operator request", "state", "started", "ended", "offers", "replacing", "replaced",
		"attempt", "call", "a call needs an approval", "an approval was decided", "an approval was extended",
		"arguments of calls are kept", "arguments of calls are not kept any more",
	}
}
