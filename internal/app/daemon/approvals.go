package daemon

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"os/user"
	"strconv"

	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/call/approvals"
	"github.com/orla-project/orla/manifest"
)

// Approvals implements control.Approver.
func (o operations) Approvals(ctx context.Context, q control.ApprovalQuery) iter.Seq[control.Approval] {
	wanted := func(r *approvals.Record) bool { return q.Phase == "" || string(r.Phase) == q.Phase }
	return func(yield func(control.Approval) bool) {
		if q.Follow {
			if store := o.AwaitApprovals(ctx); store != nil {
				for r := range store.Follow(ctx, wanted) {
					if !yield(approvalOf(&r)) {
						return
					}
				}
			}
			return
		}
		store := o.Governance.Approvals()
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

// waitingApprovals counts the records that nobody has decided about.
func (o operations) waitingApprovals() int {
	if store := o.Governance.Approvals(); store != nil {
		return store.Pending()
	}
	return 0
}

// approvalOf returns a record without its arguments.
func approvalOf(r *approvals.Record) control.Approval {
	a := control.Approval{
		ID: r.ID, Phase: string(r.Phase), Tool: r.Tool, Caller: r.Caller, Agent: r.Agent, Task: r.Task, Class: r.Class, Rule: r.Rule, Why: r.Why,
		Approvers: []string{}, Created: r.Created, Expires: r.Expires, TTL: r.TTL.String(), By: r.By, How: string(r.How), Decided: r.Decided,
		Reason: r.Reason, Used: r.Used, Policy: r.Policy, Digest: r.Digest(), Size: len(r.Args),
	}
	a.Runs = append([]string{}, r.Runs...)
	for _, how := range r.Approvers {
		a.Approvers = append(a.Approvers, string(how))
	}
	return a
}

// Approval implements control.Approver.
func (o operations) Approval(id string) (control.Approval, error) {
	store := o.Governance.Approvals()
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
		a.Last = control.LastApproved{ID: last.ID, By: last.By, Decided: last.Decided, Changes: []control.ArgumentChange{}}
		changes, more := approvals.Diff(last.Args, r.Args)
		for _, c := range changes {
			a.Last.Changes = append(a.Last.Changes, control.ArgumentChange(c))
		}
		a.Last.More = more
	}
	return a, nil
}

// Approve implements control.Approver.
func (o operations) Approve(by control.Peer, id string, asked control.ApproveRequest) (control.Approval, error) {
	return o.decide(by, id, approvals.Decision{Approve: true, Digest: asked.Digest}, asked.TTL)
}

// Deny implements control.Approver. Everybody may deny who reaches the socket, since that allows nothing.
func (o operations) Deny(by control.Peer, id string, asked control.DenyRequest) (control.Approval, error) {
	return o.decide(by, id, approvals.Decision{Reason: asked.Reason, Digest: asked.Digest}, "")
}

func (o operations) decide(by control.Peer, id string, d approvals.Decision, ttl string) (control.Approval, error) {
	store := o.Governance.Approvals()
	if store == nil {
		return control.Approval{}, noApproval(id)
	}
	if d.Approve {
		if err := o.mayApprove(by); err != nil {
			return control.Approval{}, err
		}
	}
	var err error
	if d.TTL, err = control.ParseTTL(ttl, approvals.MaxTTL); err != nil {
		return control.Approval{}, err
	}
	d.By, d.How = nameOf(by), manifest.ApproverOperator
	r, err := store.Decide(id, d)
	if err != nil {
		return control.Approval{}, refusedDecision(id, &r, err)
	}
	return approvalOf(&r), nil
}

// Extend implements control.Approver. It prolongs what an approval allows, so who may not approve may not extend.
func (o operations) Extend(by control.Peer, id string, asked control.ExtendRequest) (control.Approval, error) {
	store := o.Governance.Approvals()
	if store == nil {
		return control.Approval{}, noApproval(id)
	}
	if err := o.mayApprove(by); err != nil {
		return control.Approval{}, err
	}
	ttl, err := control.ParseTTL(asked.TTL, approvals.MaxTTL)
	if err != nil {
		return control.Approval{}, err
	}
	r, err := store.Extend(id, ttl, nameOf(by))
	if err != nil {
		return control.Approval{}, refusedDecision(id, &r, err)
	}
	o.log.Info("an approval was extended", "approval", r.ID, "tool", r.Tool, "caller", r.Caller, "by", nameOf(by), "expires", r.Expires)
	return approvalOf(&r), nil
}

// mayApprove reports by its error whether a peer may approve calls. An agent with a shell is usually the user that
// runs Orla, so that user may only if the configuration says so (docs/decisions/0044).
func (o operations) mayApprove(by control.Peer) error {
	if by.UID != os.Geteuid() || o.current().Approvals.SameUser {
		return nil
	}
	e := &control.Error{
		Code: control.CodeForbidden, Message: nameOf(by) + " runs this Orla, and may not approve its calls: an agent with a shell could do the same",
		Hint: "try sudo, since root may; or set approvals.same_user: true in orla.yaml, if no agent has a shell as this user",
	}
	if by.UID == 0 {
		e.Hint = "run Orla as another user; or set approvals.same_user: true in orla.yaml, if no agent has a shell as root"
	}
	return e
}

// nameOf names a peer in records, logs and the audit log.
func nameOf(by control.Peer) string {
	uid := strconv.Itoa(by.UID)
	u, err := user.LookupId(uid)
	if err != nil { // it has no name
		return "user:" + uid
	}
	return "user:" + u.Username + "(" + uid + ")"
}

func noApproval(id string) error {
	return &control.Error{Code: control.CodeNotFound, Message: fmt.Sprintf("there is no approval %q", id), Hint: "orla approvals list --all shows those that there are"}
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
		return &control.Error{Code: control.CodeForbidden, Message: id + ": the rule wants a passkey, and the console of this version of Orla does not ask for one; so nobody can decide", Hint: "change approvers in " + r.Rule}
	case errors.Is(err, approvals.ErrApprover):
		return &control.Error{Code: control.CodeForbidden, Message: id + ": the rule lets only the person at the client decide", Hint: "approvers in " + r.Rule + " says so"}
	}
	return err
}
