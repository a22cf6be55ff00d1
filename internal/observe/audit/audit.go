// Package audit writes and checks the audit log: a line of JSON for each call and the decision about it
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
	"context"
	"time"
)

// Decision is how the rules judged a call. Empty fields are not written.
type Decision struct {
	Class    string // of the operation, such as read
	Rule     string // which rule decided
	Verdict  string
	Approval string // the id of the approval, if one was asked for
	Decider  string // who approved or denied
}

// The verdicts.
const (
	Allow            = "allow"
	Deny             = "deny"
	ApprovalRequired = "approval_required"
	None             = "none" // the call was refused before the rules were asked
)

// Verdicts returns all verdicts.
func Verdicts() []string { return []string{Allow, Deny, ApprovalRequired, None} }

type decisionKey struct{}

// Noting returns a context that carries where the Decision of its call is noted.
func Noting(ctx context.Context, made *Decision) context.Context {
	return context.WithValue(ctx, decisionKey{}, made)
}

// DecisionIn returns where the Decision of the call of a context is noted; nil if it is not. Only the goroutine that makes the
// call may use it.
func DecisionIn(ctx context.Context) *Decision {
	made, _ := ctx.Value(decisionKey{}).(*Decision)
	return made
}

// Decide sets the Decision of the call of a context, if it is noted. It must be called by the goroutine that makes the call.
func Decide(ctx context.Context, made Decision) {
	if noted := DecisionIn(ctx); noted != nil {
		*noted = made
	}
}

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
