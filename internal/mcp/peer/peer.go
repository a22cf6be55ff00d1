// Package peer has the types that the bridge, the supervisor and the capsules share: what a peer offers, the
// calls and requests to it, and the client that it may send messages to. None of the three has to import
// another for them.
//
// The JSON between a client and a peer is passed on unchanged, except for names and tokens.
package peer

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/urimatch"
)

// ErrGone is in the chain of the error of a call that a peer did not begin because it is not served any more:
// its manifest has changed or was removed. The call may be made again, at the peer that replaced it.
var ErrGone = errors.New("the peer is gone")

// Call is one tools/call. Its id is the context's (internal/call/callid), and is the
// same in every attempt.
type Call struct {
	Tool string          // the name that clients use
	Args json.RawMessage // as the client sent them, valid JSON; nil if there are none
	// Meta is the request's _meta as the client sent it, without the keys that the protocol
	// reserves and the progress token; nil if nothing is left.
	Meta   json.RawMessage
	Client Client // who made the call; nil if nothing can be sent to it
	// Caller is the authenticated subject, else the transport (SPEC-TOOLS 8.1).
	Caller string
	// Groups are the groups of the caller, as its access token has them; nil for none (SPEC N3). They
	// must not be changed.
	Groups []string
	// Task names what the call is a part of: the name that the client gives in _meta, else a name
	// for its session that does not reveal its id; "" without either (SPEC-TOOLS 2.1).
	Task string
	// Owner is whose share of the bounded resources the call uses, also when it waits for them: by
	// caller first, and by session second. It is never shown.
	Owner turns.Owner
	// Input is the client's input, if the peer has required some.
	Input Input
	// Attempt counts the attempts of the call, from 1.
	Attempt int
	// Began is when it came; zero for when it gets to the tools.
	Began time.Time
	// Decided is where it is noted how the rules judge the call; nil if nobody wants to know. Only the goroutine that makes
	// the call may use it.
	Decided *Decision
}

// Decision is how the rules have judged a call, for the audit log. What is empty is not in it.
type Decision struct {
	Class    string // of the operation, such as read
	Rule     string // which rule decided
	Verdict  string
	Approval string // the id of the approval, if one was asked for
	Decider  string // who approved or denied
}

// Set notes a Decision; it does nothing for nil.
func (d *Decision) Set(made Decision) {
	if d != nil {
		*d = made
	}
}

// Noted is what is noted of a request other than a call, for the audit log. What is empty is not in it.
type Noted struct {
	Decision
	Target   string // the name of the manifest of the peer that it is for
	Requires bool   // the peer requires input of the client, and has not answered
}

// Set notes a Decision; it does nothing for nil.
func (n *Noted) Set(made Decision) {
	if n != nil {
		n.Decision = made
	}
}

// Input is what a client adds when it repeats a request that was answered with input_required, as the client
// sent it (2026-07-28, basic/patterns/mrtr).
type Input struct {
	Responses json.RawMessage // inputResponses; nil for none
	State     json.RawMessage // requestState; nil for none
}

// Declared is what a client has declared and what each of its requests tells a peer that speaks 2026-07-28.
type Declared struct {
	// Capabilities are the capabilities of the client, as JSON; nil for none.
	Capabilities json.RawMessage
	// LogLevel is the least level of log messages that it wants; "" for none.
	LogLevel string
	// Repeats says that the client handles input_required itself, and repeats the request. Orla
	// asks other clients for the input.
	Repeats bool
	// Waits says that the client waits for as long as a call takes. No client of MCP can declare that.
	Waits bool
}

// Answer is the answer of a call. With an error, Result may have what the tool has answered until then.
type Answer struct {
	Result *mcp.CallToolResult
	// Raw is a whole CallToolResult as valid JSON; non-nil exactly if there is neither a Result nor
	// an error. Only capsules and remote servers return it: as they wrote it, or, if they
	// answered with something else, with that as the text.
	Raw json.RawMessage
	// Attempts is how many attempts were made; 0 means one.
	Attempts int
	// Ended, if not nil, must be called once with how the call ended, before the answer is sent: "ok",
	// "input_required" or a code. Only who reads Raw knows it, and nobody should read it twice. took is since Call.Began; 0 if
	// it has just ended.
	Ended func(outcome string, took time.Duration)
}

// Request is any other request that a client may make of a peer: resources/read,
// prompts/get, completion/complete, resources/subscribe and unsubscribe,
// logging/setLevel.
type Request struct {
	Method string
	Params json.RawMessage // as the client sent them, valid JSON; nil if there are none
	Client Client          // who made the request; nil if nothing can be sent to it
	Owner  turns.Owner     // see Call.Owner; zero for a request of Orla itself
	Caller string          // see Call.Caller; "" for a request of Orla itself
	Groups []string        // see Call.Groups
	Meta   json.RawMessage // see Call.Meta; it is in Params too
	Task   string          // see Call.Task
	Input  Input           // see Call.Input
	// Noted is where it is noted what becomes of the request; nil if nobody wants to know. Only the goroutine that makes the
	// request may use it.
	Noted *Noted
	// Session is Client.Session for a request without a Client that is made for one; "" if it is
	// made for none.
	Session string
	// Later says that a peer that is not ready gets the request when it is. It is only for requests
	// that each new process of a peer gets too, such as resources/subscribe.
	Later bool
}

// Client is the client that made a request. A peer may send messages to it while the request is in flight. Its
// methods may be called from any goroutine; after the request has been answered they do nothing.
type Client interface {
	// Session distinguishes clients: by the session of the request, or by its caller if there are no
	// sessions. It is never empty.
	Session() string
	// Owner is whose share of the bounded resources the client uses.
	Owner() turns.Owner
	// Hears reports whether Notify may send anything to the client.
	Hears() bool
	// Declared returns what the client has declared.
	Declared() Declared
	// WantsProgress reports whether the client gave a progress token.
	WantsProgress() bool
	// Notify sends notifications/progress or notifications/message, if the client wants it. It
	// replaces the progress token in params by the client's own. It may block until the client
	// reads or ctx ends.
	Notify(ctx context.Context, method string, params json.RawMessage)
	// Ask makes a request to the client: sampling/createMessage, elicitation/create or roots/list. An
	// error is a *jsonrpc.Error: the client's, or one that says why it cannot be asked.
	Ask(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error)
}

// Template is a resource template that a peer offers.
type Template struct {
	*mcp.ResourceTemplate
	URIs *urimatch.Template // the URIs that it matches
}

// Templates compiles resource templates. It leaves out invalid ones, for which it calls refuse.
func Templates(all []*mcp.ResourceTemplate, refuse func(*mcp.ResourceTemplate, error)) []Template {
	var compiled []Template
	for _, t := range all {
		uris, err := urimatch.Compile(t.URITemplate)
		if err != nil {
			refuse(t, err)
			continue
		}
		compiled = append(compiled, Template{t, uris})
	}
	return compiled
}

// NamesOf returns the names of tools.
func NamesOf(tools []*mcp.Tool) []string {
	list := make([]string, len(tools))
	for i, t := range tools {
		list[i] = t.Name
	}
	return list
}

// OwnScheme is the scheme of the URIs that Orla itself serves. No peer serves one.
const OwnScheme = "orla:"

// IsOwn reports whether Orla itself serves a URI, or the URIs with a prefix.
func IsOwn(uri string) bool {
	return len(uri) >= len(OwnScheme) && strings.EqualFold(uri[:len(OwnScheme)], OwnScheme)
}

// Withheld is a tool or a prompt that a peer lists and that must not be served.
type Withheld struct {
	Name string    // that clients would use
	Tool *mcp.Tool // as it would be listed; nil for a prompt
	Why  error     // the error of its calls, a *fault.Error
}

// Offers is what a peer offers at one moment, under the names that clients use.
// It is never changed.
type Offers struct {
	Tools     []*mcp.Tool
	Resources []*mcp.Resource
	Templates []Template
	Prompts   []*mcp.Prompt
	// Withheld is what is listed and must not be served; see Withheld.
	Withheld []Withheld

	Reads     bool // it answers resources/read
	Completes bool // it answers completion/complete
	Logs      bool // it answers logging/setLevel
	// Talks says that the peer may send its clients log messages and requests
	// while it answers them.
	Talks bool

	// Known says that there is nothing to wait for: the peer has said what it offers, now or in an
	// earlier run, or its time to do so is over (SPEC D7a).
	Known bool
	// Silent says that it is Known only because the time is over, or the peer failed: it has not said
	// what it offers.
	Silent bool

	// Changed is closed when newer Offers replace these.
	Changed <-chan struct{}
}

// Life is the state of a peer, for operators.
type Life struct {
	State    string    // CREATED, STARTING, READY, RELOADING, CRASHED, STOPPING or STOPPED
	Since    time.Time // when State began
	Reason   string    // why State began
	Held     bool      // an operator has stopped it, and only an operator starts it again
	Pid      int       // of its process; 0 if there is none
	Place    string    // where its process is; "" if that is this machine
	Started  time.Time // when its process was started; zero if there is none
	Failures int       // in a row
	Restarts int       // starts of a process after the first one
	Next     time.Time // when it is started again; zero if no start is due
	LastExit string    // how its last process ended; "" if none has
	Stderr   string    // the last lines of its stderr, while it is CRASHED or STOPPED
	InFlight int       // calls that a process is working on
	Waiting  int       // calls that wait for READY
	Calls    int64     // calls that have ended
	Limits   string    // which limits of runtime.resources are in effect and which are not; "" without any
	// Settled says that it has been READY, or has failed to become so, or waits for a call.
	Settled bool
	// Overdue says that a stranger has made it, and that it takes longer to be ready for the first time than anybody waits for it.
	Overdue bool
	// Changed is closed when the state is another one, or has another reason or process. It is nil for a peer that has no
	// states.
	Changed <-chan struct{}
}
