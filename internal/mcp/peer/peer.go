// Package peer has the words in which the bridge, the supervisor and the
// providers that live speak of each other: what such a provider offers, what it
// is asked, and whom it may speak back to. It is a leaf, so that none of the
// three has to import another.
//
// What passes between a client and a peer stays the JSON that it was: only
// names and tokens are exchanged on the way.
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

// ErrGone is in the chain of the error of a call that was not begun, by a peer
// that will not begin another: its manifest has changed or gone. Whoever took
// its place may be asked instead.
var ErrGone = errors.New("the peer is gone")

// Call is one tools/call. Its id is the context's (internal/call/callid), and is the
// same in every attempt.
type Call struct {
	Tool string          // the name that clients use
	Args json.RawMessage // as the client sent them, valid JSON; nil if there are none
	// Meta is the request's _meta as the client sent it, less what the protocol
	// keeps for the parties themselves and the progress token; nil if nothing is left.
	Meta   json.RawMessage
	Client Client // who asked; nil if it cannot be spoken to
	// Caller is the authenticated subject, else the transport (SPEC-TOOLS 8.1).
	Caller string
	// Task tells what the call is a part of: what the client says in its _meta,
	// else a name of its session that does not let its reader take that over; ""
	// where there is neither (SPEC-TOOLS 2.1).
	Task string
	// Owner is who waits where calls have to wait, and whose share of what is bounded
	// the call takes: by caller first, and by session second. It is shown to nobody.
	Owner turns.Owner
	// Input is what the client gives to a request that its peer required more for.
	Input Input
	// Attempt counts the attempts of the call, from 1.
	Attempt int
}

// Input is what a request of 2026-07-28 repeats a request with that its peer answered
// with input_required, as the client sent it (basic/patterns/mrtr).
type Input struct {
	Responses json.RawMessage // inputResponses; nil for none
	State     json.RawMessage // requestState; nil for none
}

// Declared is what a client has declared that the peers which speak 2026-07-28 are to
// know with each of its requests.
type Declared struct {
	// Capabilities are those for what a peer may require, as JSON; nil for none.
	Capabilities json.RawMessage
	// LogLevel is from which level on it wants log messages; "" for none.
	LogLevel string
	// Repeats says that the client takes an answer that requires input, and makes
	// the request again by itself. Others are asked.
	Repeats bool
}

// Answer is what a call gave. It may stand beside an error: Result is what there
// was of an answer.
type Answer struct {
	Result *mcp.CallToolResult
	// Raw is a whole CallToolResult as JSON, valid; non-nil exactly when there is neither a
	// Result nor an error. Only capsules and remote servers give it, as they wrote it or with
	// a value around it that is no result.
	Raw json.RawMessage
	// Attempts is how many attempts were made. Zero: one.
	Attempts int
}

// Request is any other request that a client may make of a peer: resources/read,
// prompts/get, completion/complete, resources/subscribe and unsubscribe,
// logging/setLevel.
type Request struct {
	Method string
	Params json.RawMessage // as the client sent them, valid JSON; nil if there are none
	Client Client          // who asked; nil if it cannot be spoken to
	Owner  turns.Owner     // see Call.Owner; that of Orla itself is empty
	Input  Input           // as Call has it
	// Session is the Client's, of a request that it made and must not be asked about;
	// "" of a request that is nobody's.
	Session string
	// Later says of a wish, which is what a peer's next processes are told too,
	// that a peer that is not ready is not waited for: it is told when it is.
	Later bool
}

// Client is whoever made a request, as a peer may speak to it while the request
// is in flight. Its methods may be called from any goroutine; after the request
// has been answered they do nothing.
type Client interface {
	// Session tells clients apart: the session that the request is of, or its caller
	// where there are no sessions. It is never empty.
	Session() string
	// Owner is whose share of what is bounded the client takes.
	Owner() turns.Owner
	// Hears reports whether anything that Notify is given may reach the client.
	Hears() bool
	// Declared returns what the client has declared.
	Declared() Declared
	// WantsProgress reports whether the client gave a progress token.
	WantsProgress() bool
	// Notify sends notifications/progress or notifications/message. The
	// progress token in params is replaced by the client's own. What the
	// client did not ask for is dropped. It may block for as long as the
	// client does, or until ctx ends.
	Notify(ctx context.Context, method string, params json.RawMessage)
	// Ask makes a request of the client: sampling/createMessage,
	// elicitation/create or roots/list. An error is a *jsonrpc.Error, the
	// client's own or one that says why it cannot be asked.
	Ask(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error)
}

// Template is a resource template that a peer offers.
type Template struct {
	*mcp.ResourceTemplate
	URIs *urimatch.Template // the URIs that it matches
}

// Templates compiles resource templates. It leaves out those that refuse gets.
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

// OwnScheme is the scheme of the URIs that Orla itself serves. No peer serves one.
const OwnScheme = "orla:"

// IsOwn reports whether a URI, or the text that the URIs of a template begin with, is one
// that Orla itself serves.
func IsOwn(uri string) bool {
	return len(uri) >= len(OwnScheme) && strings.EqualFold(uri[:len(OwnScheme)], OwnScheme)
}

// Offers is what a peer offers at one moment, under the names that clients use.
// It is never changed.
type Offers struct {
	Tools     []*mcp.Tool
	Resources []*mcp.Resource
	Templates []Template
	Prompts   []*mcp.Prompt

	Reads      bool // it answers resources/read
	Subscribes bool // it answers resources/subscribe
	Completes  bool // it answers completion/complete
	Logs       bool // it answers logging/setLevel
	// Talks says that the peer may send its clients log messages and requests
	// while it answers them.
	Talks bool

	// Known says that nothing better is to be waited for: the peer said what it
	// offers, now or in an earlier life, or its time to say it is over (SPEC D7a).
	Known bool
	// Silent says that it is Known only because its time is over, or it failed: it has
	// not said what it offers.
	Silent bool

	// Changed is closed when newer Offers replace these.
	Changed <-chan struct{}
}

// Life is where a peer is in its life, for people to look at.
type Life struct {
	State    string    // CREATED, STARTING, READY, RELOADING, CRASHED, STOPPING or STOPPED
	Since    time.Time // when it came into State
	Reason   string    // why it did
	Held     bool      // it was stopped by an operator, and is to stay so until it is started by an operator
	Pid      int       // of its process; 0 if there is none
	Started  time.Time // when its process was; zero if there is none
	Failures int       // in a row
	Restarts int       // starts of a process after the first one
	Next     time.Time // when it is started again; zero if no start is due
	LastExit string    // how its last process ended; "" if none has
	Stderr   string    // what it said last there, while it is CRASHED or STOPPED
	InFlight int       // calls that a process is working on
	Waiting  int       // calls that wait for READY
	Calls    int64     // that have ended
	Limits   string    // of runtime.resources, those that hold and those that do not; "" without any
	// Settled says that it has been READY, or has given up being so, or waits
	// to be called.
	Settled bool
}
