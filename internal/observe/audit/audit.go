// Package audit writes and checks the audit log: a line of JSON for each call or read and the decision about it
// (SPEC-TOOLS 8.8).
//
// Each line carries the hash of the line before it, so that a change, an insertion or a deletion breaks
// the chain. Now and then a line is a head: a signature (package note of golang.org/x/mod) over the chain up to
// there. The newest head is also kept in the state folder, so that a cut end shows.
//
// Its invariant: lines get their numbers and are written by one goroutine, in the order in which calls have ended, and
// nothing that was written is changed.
package audit

import (
	"time"

	"github.com/orla-project/orla/internal/mcp/peer"
)

// Decision is how the rules judged a call.
type Decision = peer.Decision

// The verdicts.
const (
	Allow            = "allow"
	Deny             = "deny"
	ApprovalRequired = "approval_required"
	None             = "none" // the rules were not asked
)

// Verdicts returns all verdicts.
func Verdicts() []string { return []string{Allow, Deny, ApprovalRequired, None} }

// Call is a call that has ended.
type Call struct {
	Caller string
	Acting
	Tool   string // as the client named it
	Target string // the name of the manifest; "" if there is no such tool
	Decision
	Outcome string // OK, InputRequired, or the code of the error
	Took    time.Duration
	Ended   time.Duration // Log.Now when it ended
	ID      string        // the call_id of the log
	Trace   string        // the id of the trace; "" for none
	Args    []byte        // the arguments as the client sent them, valid JSON; nil for none
	Input   []byte        // what it has answered to the tool's questions, the same; nil for nothing
}

// Acting is in whose place a caller makes a call, and for what, as its client says it.
type Acting struct {
	Agent string // "" for nobody
	Task  string // what the call is a part of, else a name for its session
}

// Outcomes that are not the code of an error.
const (
	OK            = "ok"
	InputRequired = "input_required" // the tool asked for input; the client repeats the call with it
)
