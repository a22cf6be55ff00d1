// Package approvals keeps the calls that need somebody's approval (SPEC-TOOLS 8.7): a record for each, which is
// bound to the exact call and good for one.
//
// Its invariant: a call goes on only when its record is approved and, on the disk, used.
package approvals

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/orla-project/orla/manifest"
)

// Question is a call that needs an approval. The approval is bound to all of it but the Why: another call is
// one that differs in anything else.
type Question struct {
	Caller string          `json:"caller"`
	Agent  string          `json:"agent,omitempty"` // whom the caller acts for
	Tool   string          `json:"tool"`            // the name that clients see
	Runs   []string        `json:"runs"`            // all names of what runs
	Args   json.RawMessage `json:"arguments"`       // in canonical form, as they will be sent
	Input  json.RawMessage `json:"input,omitempty"` // what the client adds for the tool (2026-07-28), in canonical form; nil for nothing
	Policy string          `json:"policy"`          // the version of the rules

	Class     string              `json:"operation_class,omitempty"`
	Rule      string              `json:"rule,omitempty"` // which one wants the approval, and where it is
	Approvers []manifest.Approver `json:"approvers"`      // who may decide
	Task      string              `json:"task,omitempty"` // what the call is a part of
	Why       string              `json:"why,omitempty"`  // Rule as a sentence

	Definition string `json:"definition,omitempty"` // a digest of what clients are told of the tool
}

type key [sha256.Size]byte

// key distinguishes calls.
func (q *Question) key() (k key) {
	h := sha256.New()
	add := func(parts ...string) {
		h.Write(binary.AppendUvarint(nil, uint64(len(parts))))
		for _, part := range parts {
			h.Write(binary.AppendUvarint(nil, uint64(len(part))))
			h.Write([]byte(part))
		}
	}
	add(q.Caller, q.Agent, q.Tool, string(q.Args), string(q.Input), q.Policy, q.Class, q.Rule, q.Task)
	add(q.Runs...)
	for _, how := range q.Approvers {
		add(string(how))
	}
	if q.Definition != "" { // records of before have none
		add("definition", q.Definition)
	}
	h.Sum(k[:0])
	return k
}

// Phase is how far a record is, as a ToolApproval has it.
type Phase string

// The phases.
const (
	Pending  Phase = "Pending"
	Approved Phase = "Approved"
	Denied   Phase = "Denied"
	Expired  Phase = "Expired" // nobody decided in time, an approval was not used in time, or it was withdrawn
)

// phases lists all phases.
func phases() []Phase { return []Phase{Pending, Approved, Denied, Expired} }

// Record is a question, and what became of it. It must not be changed.
type Record struct {
	ID string `json:"id"`
	Question
	Created time.Time     `json:"created"`
	Expires time.Time     `json:"expires"`
	TTL     time.Duration `json:"ttl"` // how long it waits, and how long an approval is good
	Phase   Phase         `json:"phase"`

	// Of a decision. By is the authenticated decider, and How is what it has decided with.
	By      string            `json:"decided_by,omitempty"`
	How     manifest.Approver `json:"decided_how,omitempty"`
	Decided time.Time         `json:"decided_at,omitzero"`
	Reason  string            `json:"reason,omitempty"` // of a denial or a withdrawal, for the caller
	Proof   json.RawMessage   `json:"proof,omitempty"`  // the assertion of a passkey

	Used   time.Time `json:"used_at,omitzero"`  // when the call that it allows went on
	UsedBy string    `json:"used_by,omitempty"` // the process where, if several have the records
}

// Digest is a hash of what is shown to who decides. It changes with anything that the approval is bound to.
func (r *Record) Digest() string {
	k := r.key()
	sum := sha256.Sum256(append([]byte(r.ID), k[:]...))
	return hex.EncodeToString(sum[:])
}

// Allows reports whether somebody may decide with one of the means.
func (r *Record) Allows(how manifest.Approver) bool { return how.In(r.Approvers) }

// own reports whether somebody makes the call, or is the agent that it is made for.
func (r *Record) own(by string) bool { return by == r.Caller || r.Agent != "" && by == r.Agent }

// maxAhead is how far the times of a record that is read may be ahead of the clock, which is set right now and then.
const maxAhead = time.Minute

// later reports whether a record is of a time that has not come yet: the clock was set back while Orla did not run.
func (r *Record) later(now time.Time) bool {
	now = now.Add(maxAhead)
	return r.Created.After(now) || r.Decided.After(now) || r.Expires.After(now.Add(MaxTTL))
}

// ended reports whether the record is kept only to be shown.
func (r *Record) ended(now time.Time) bool {
	return r.Phase == Expired || !r.Used.IsZero() || !now.Before(r.Expires)
}
