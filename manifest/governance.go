package manifest

import (
	"slices"
	"strings"
)

// Rules are the governance documents that a search found (SPEC-TOOLS 8.2), each sorted by its name. Names
// of tools, callers and roles in them are as somebody wrote them.
type Rules struct {
	Roles       []Role
	Policies    []Policy
	Permissions []Permission
}

// Empty reports whether there is no document.
func (r Rules) Empty() bool { return len(r.Roles)+len(r.Policies)+len(r.Permissions) == 0 }

// With returns the rules of both. Of two documents of a kind with one name, that of r counts.
func (r Rules) With(other Rules) Rules {
	r.Roles = with(r.Roles, other.Roles, func(d Role) string { return d.Name })
	r.Policies = with(r.Policies, other.Policies, func(d Policy) string { return d.Name })
	r.Permissions = with(r.Permissions, other.Permissions, func(d Permission) string { return d.Name })
	return r
}

func with[T any](all, others []T, name func(T) string) []T {
	for _, other := range others {
		if !slices.ContainsFunc(all, func(one T) bool { return strings.EqualFold(name(one), name(other)) }) {
			all = append(slices.Clip(all), other)
		}
	}
	return all
}

// Reference is a name that a rule refers to, and where it stands.
type Reference struct {
	Name string
	At   string // FILE:LINE:COLUMN
}

// Role is an AgentRole.
type Role struct {
	Reference   // its own name
	Permissions []Right
}

// Right is a permission: to call a tool, or all tools with a capability. "*" stands for all.
type Right struct {
	Tool       string // "" for a capability
	Capability string // "" for a tool
}

// String returns the right as a document has it.
func (r Right) String() string {
	if r.Tool != "" {
		return "tool:" + r.Tool + ":invoke"
	}
	return "capability:" + r.Capability
}

// Policy is an AgentPolicy: tools that nobody may call whom it applies to.
type Policy struct {
	Reference
	Global  bool        // it applies to all calls
	Systems []Reference // else: to these callers and groups,
	Tasks   []Reference // and to the calls of these tasks
	Blocked []Reference // tools
}

// Permission is a ToolPermission: what a call of a tool needs.
type Permission struct {
	Reference
	Tool       Reference
	Any        bool        // one of Required is enough
	Scoped     bool        // it is for Agents alone
	Agents     []Reference // callers, groups and agents
	Required   []Right
	Operations []OperationRule
}

// OperationRule is the verdict on calls of one class.
type OperationRule struct {
	Class     OperationClass // "*" for all
	Verdict   Verdict
	Approvers []Approver // with ApprovalRequired; empty for the default
}

// Verdict is what a rule says of a call.
type Verdict string

// The verdicts, the mildest first.
const (
	Allow            Verdict = "allow"
	ApprovalRequired Verdict = "approval_required"
	Deny             Verdict = "deny"
)

// Values lists what verdict may be.
func (Verdict) Values() []string {
	return []string{string(Allow), string(Deny), string(ApprovalRequired)}
}

// Approver is who may decide about a call.
type Approver string

// The approvers.
const (
	ApproverClient   Approver = "client"
	ApproverOperator Approver = "operator"
	ApproverPasskey  Approver = "passkey"
)

// In reports whether an approver may decide where a list says who may. A passkey is good for what an operator may decide.
func (a Approver) In(who []Approver) bool {
	return slices.Contains(who, a) || a == ApproverPasskey && slices.Contains(who, ApproverOperator)
}

// Values lists what approvers may hold.
func (Approver) Values() []string {
	return []string{string(ApproverClient), string(ApproverOperator), string(ApproverPasskey)}
}
