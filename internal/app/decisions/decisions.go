// Package decisions lets people decide about calls (SPEC-TOOLS 8.7): at the control socket, and on the page of the
// console, which may register passkeys.
//
// Its invariant: what a program of the user that runs Orla can do alone approves nothing, unless the configuration
// says that no agent is such a program.
package decisions

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"os/user"
	"strconv"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/call/approvals"
	"github.com/orla-project/orla/internal/call/approvals/passkey"
	"github.com/orla-project/orla/manifest"
)

// Decisions answers the requests about approvals. All fields are required. Its methods may be called from any goroutine.
type Decisions struct {
	// Store returns the records; nil before a rule has wanted an approval. Await waits for that, until ctx ends.
	Store func() *approvals.Store
	Await func(ctx context.Context) *approvals.Store
	// SameUser reports whether the user that runs Orla may approve calls.
	SameUser func() bool
	// ByLogin reports whether a login at the issuer of access tokens may approve calls.
	ByLogin  func() bool
	Passkeys *passkey.Store
	// Unrecorded returns why a new passkey could not be recorded now; nil if it could.
	Unrecorded func() error
	// Changed is told of each passkey that was registered or removed.
	Changed func(*PasskeyChange)
	Log     *slog.Logger

	challenges challenges
	wishes     wishes
	changing   sync.RWMutex // held for reading while a passkey decides, and for writing while one is added or removed
}

var _ control.Approver = (*Decisions)(nil)

// Approvals implements control.Approver.
func (d *Decisions) Approvals(ctx context.Context, q control.ApprovalQuery) iter.Seq[control.Approval] {
	wanted := func(r *approvals.Record) bool { return q.Phase == "" || string(r.Phase) == q.Phase }
	return func(yield func(control.Approval) bool) {
		if q.Follow {
			if store := d.Await(ctx); store != nil {
				for r := range store.Follow(ctx, wanted) {
					if !yield(approvalOf(&r)) {
						return
					}
				}
			}
			return
		}
		store := d.Store()
		if store == nil {
			return
		}
		for _, r := range store.List() {
			if wanted(&r) && !yield(approvalOf(&r)) {
				return
			}
		}
	}
}

// Waiting counts the records that nobody has decided about.
func (d *Decisions) Waiting() int {
	if store := d.Store(); store != nil {
		return store.Pending()
	}
	return 0
}

// approvalOf returns a record without its arguments.
func approvalOf(r *approvals.Record) control.Approval {
	a := control.Approval{
		ID: r.ID, Phase: string(r.Phase), Tool: r.Tool, Caller: r.Caller, Agent: r.Agent, Task: r.Task, Class: r.Class, Rule: r.Rule, Why: r.Why,
		Approvers: []string{}, Created: r.Created, Expires: r.Expires, TTL: r.TTL.String(), By: r.By, How: string(r.How), Decided: r.Decided,
		Reason: r.Reason, Used: r.Used, Policy: r.Policy, Defined: r.Definition, Digest: r.Digest(), Size: len(r.Args), InputSize: len(r.Input),
	}
	a.Runs = append([]string{}, r.Runs...)
	for _, how := range r.Approvers {
		a.Approvers = append(a.Approvers, string(how))
	}
	return a
}

// Approval implements control.Approver.
func (d *Decisions) Approval(id string) (control.Approval, error) {
	store := d.Store()
	if store == nil {
		return control.Approval{}, noApproval(id)
	}
	r, last, err := store.Get(id)
	if err != nil {
		return control.Approval{}, refusedDecision(id, &r, err)
	}
	a := approvalOf(&r)
	a.Arguments, a.Input = r.Args, r.Input
	if last != nil {
		a.Last = control.LastApproved{ID: last.ID, By: last.By, Decided: last.Decided, Defined: last.Definition, Changes: []control.ArgumentChange{}}
		changes, more := approvals.Diff(last.Args, r.Args)
		for _, c := range changes {
			a.Last.Changes = append(a.Last.Changes, control.ArgumentChange(c))
		}
		a.Last.More = more
	}
	return a, nil
}

// Approve implements control.Approver.
func (d *Decisions) Approve(by control.Peer, id string, asked control.ApproveRequest) (control.Approval, error) {
	return d.decide(by, id, approvals.Decision{Approve: true, Digest: asked.Digest}, asked.TTL)
}

// Deny implements control.Approver. Everybody may deny who reaches the socket, since that allows nothing.
func (d *Decisions) Deny(by control.Peer, id string, asked control.DenyRequest) (control.Approval, error) {
	return d.decide(by, id, approvals.Decision{Reason: asked.Reason, Digest: asked.Digest}, "")
}

func (d *Decisions) decide(by control.Peer, id string, with approvals.Decision, ttl string) (control.Approval, error) {
	store := d.Store()
	if store == nil {
		return control.Approval{}, noApproval(id)
	}
	if with.Approve {
		if err := d.mayApprove(by); err != nil {
			return control.Approval{}, err
		}
	}
	var err error
	if with.TTL, err = parseTTL(ttl); err != nil {
		return control.Approval{}, err
	}
	with.By, with.How = NameOf(by), manifest.ApproverOperator
	r, err := store.Decide(id, with)
	if err != nil {
		return control.Approval{}, refusedDecision(id, &r, err)
	}
	return approvalOf(&r), nil
}

// Extend implements control.Approver. It prolongs what an approval allows, so who may not approve may not extend.
func (d *Decisions) Extend(by control.Peer, id string, asked control.ExtendRequest) (control.Approval, error) {
	store := d.Store()
	if store == nil {
		return control.Approval{}, noApproval(id)
	}
	if err := d.mayApprove(by); err != nil {
		return control.Approval{}, err
	}
	ttl, err := parseTTL(asked.TTL)
	if err != nil {
		return control.Approval{}, err
	}
	r, err := store.Extend(id, approvals.Decision{TTL: ttl, By: NameOf(by), How: manifest.ApproverOperator})
	if err != nil {
		return control.Approval{}, refusedDecision(id, &r, err)
	}
	d.Log.Info("an approval was extended", "approval", r.ID, "tool", r.Tool, "caller", r.Caller, "by", NameOf(by), "expires", r.Expires)
	return approvalOf(&r), nil
}

// mayApprove reports by its error whether a peer may approve calls. An agent with a shell is usually the user that
// runs Orla, so that user may only if the configuration says so (docs/decisions/0044).
func (d *Decisions) mayApprove(by control.Peer) error {
	if by.UID != os.Geteuid() || d.SameUser() {
		return nil
	}
	e := &control.Error{
		Code: control.CodeForbidden, Message: NameOf(by) + " runs this Orla, and may not approve its calls: an agent with a shell could do the same",
		Hint: "try sudo, since root may; or use a passkey on the page of the console; or set approvals.same_user: true in orla.yaml, if no agent has a shell as this user",
	}
	if by.UID == 0 {
		e.Hint = "run Orla as another user; or set approvals.same_user: true in orla.yaml, if no agent has a shell as root"
	}
	return e
}

// NameOf names a peer in records, logs and the audit log.
func NameOf(by control.Peer) string {
	uid := strconv.Itoa(by.UID)
	u, err := user.LookupId(uid)
	if err != nil { // it has no name
		return "user:" + uid
	}
	return "user:" + u.Username + "(" + uid + ")"
}

func noApproval(id string) error {
	return &control.Error{Code: control.CodeNotFound, Message: fmt.Sprintf("there is no approval %q", id), Hint: "orla approvals list --all lists all of them"}
}

// refusedDecision returns the error of a decision that does not count.
func refusedDecision(id string, r *approvals.Record, err error) error {
	if late, ok := errors.AsType[*approvals.DecidedError](err); ok {
		return &control.Error{Code: control.CodeDecided, Message: id + ": " + late.Error()}
	}
	switch {
	case errors.Is(err, approvals.ErrUnknown):
		return noApproval(id)
	case errors.Is(err, approvals.ErrOwn):
		return &control.Error{Code: control.CodeForbidden, Message: id + ": " + err.Error()}
	case errors.Is(err, approvals.ErrDigest):
		return &control.Error{Code: control.CodeDigest, Message: id + ": " + err.Error(), Hint: "read it again"}
	case errors.Is(err, approvals.ErrApprover) && r.Allows(manifest.ApproverPasskey):
		return &control.Error{Code: control.CodeForbidden, Message: id + ": the rule wants a passkey", Hint: "decide on the page of the console: orla console"}
	case errors.Is(err, approvals.ErrApprover):
		return &control.Error{Code: control.CodeForbidden, Message: id + ": the rule lets only the person at the client decide", Hint: "approvers in " + r.Rule + " says so"}
	}
	return err
}

// parseTTL reads how long something waits or is good; 0 for "".
func parseTTL(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	ttl, err := time.ParseDuration(text)
	if err != nil || ttl < time.Second || ttl > approvals.MaxTTL {
		return 0, &control.Error{Code: control.CodeBadRequest, Message: fmt.Sprintf("ttl: wants a duration from 1s to %dh, such as 10m, got %q", int(approvals.MaxTTL.Hours()), text)}
	}
	return ttl, nil
}
