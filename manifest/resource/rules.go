package resource

import (
	"cmp"
	"strings"

	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/keys"
)

// The kinds of governance documents (SPEC-TOOLS 8.2).
const (
	kindRole       = "AgentRole"
	kindPolicy     = "AgentPolicy"
	kindPermission = "ToolPermission"
)

type roleResource struct {
	APIVersion versionKey   `json:"apiVersion" jsonschema:"Always orloj.dev/v1"`
	Kind       roleKind     `json:"kind" jsonschema:"What the document declares"`
	Metadata   metadataKeys `json:"metadata" jsonschema:"What it is called"`
	Spec       roleSpec     `json:"spec" jsonschema:"What callers with the role may do"`
}

type roleSpec struct {
	Description string   `json:"description,omitempty" jsonschema:"Informational only"`
	Permissions []string `json:"permissions,omitempty" jsonschema:"tool:NAME:invoke, to call a tool, or capability:NAME, to call all tools with a capability; * as NAME means all"`
}

type policyResource struct {
	APIVersion versionKey   `json:"apiVersion" jsonschema:"Always orloj.dev/v1"`
	Kind       policyKind   `json:"kind" jsonschema:"What the document declares"`
	Metadata   metadataKeys `json:"metadata" jsonschema:"What it is called"`
	Spec       policySpec   `json:"spec" jsonschema:"Which tools it blocks, and for whom"`
}

type policySpec struct {
	ApplyMode       applyMode `json:"apply_mode,omitempty" jsonschema:"scoped: to the targets alone; global: to all calls. Default scoped"`
	TargetSystems   []string  `json:"target_systems,omitempty" jsonschema:"Callers and groups that it applies to"`
	TargetTasks     []string  `json:"target_tasks,omitempty" jsonschema:"Tasks whose calls it applies to"`
	BlockedTools    []string  `json:"blocked_tools" jsonschema:"Tools that must not be called; * means all, and [] none"`
	AllowedModels   []string  `json:"allowed_models,omitempty" jsonschema:"Accepted and ignored: Orla runs no models"`
	MaxTokensPerRun int       `json:"max_tokens_per_run,omitempty" jsonschema:"Accepted and ignored: Orla runs no models"`
}

type permissionResource struct {
	APIVersion versionKey     `json:"apiVersion" jsonschema:"Always orloj.dev/v1"`
	Kind       permissionKind `json:"kind" jsonschema:"What the document declares"`
	Metadata   metadataKeys   `json:"metadata" jsonschema:"What it is called; the name of the tool, unless tool_ref says another"`
	Spec       permissionSpec `json:"spec" jsonschema:"What calls of the tool need"`
}

type permissionSpec struct {
	ToolRef             string          `json:"tool_ref,omitempty" jsonschema:"The tool; * means all. Default: the name in metadata"`
	Action              toolAction      `json:"action,omitempty" jsonschema:"Always invoke"`
	MatchMode           matchMode       `json:"match_mode,omitempty" jsonschema:"Whether a caller needs all of required_permissions, or any one of them. Default all"`
	ApplyMode           applyMode       `json:"apply_mode,omitempty" jsonschema:"global: to all callers; scoped: to target_agents alone. Default global"`
	TargetAgents        []string        `json:"target_agents,omitempty" jsonschema:"Of scoped: the callers, groups and agents that it applies to"`
	RequiredPermissions []string        `json:"required_permissions,omitempty" jsonschema:"What a caller needs: tool:NAME:invoke or capability:NAME"`
	OperationRules      []operationRule `json:"operation_rules,omitempty" jsonschema:"Verdicts by what a call does. Of several the strictest counts"`
}

type operationRule struct {
	OperationClass ruleClass           `json:"operation_class,omitempty" jsonschema:"The class of the tool that the rule is for; * means all. Default *"`
	Verdict        manifest.Verdict    `json:"verdict,omitempty" jsonschema:"Default allow"`
	Approvers      []manifest.Approver `json:"approvers,omitempty" jsonschema:"Of approval_required: who may decide"`
}

type roleKind string

// Values lists what kind may be in an AgentRole.
func (roleKind) Values() []string { return []string{kindRole} }

type policyKind string

// Values lists what kind may be in an AgentPolicy.
func (policyKind) Values() []string { return []string{kindPolicy} }

type permissionKind string

// Values lists what kind may be in a ToolPermission.
func (permissionKind) Values() []string { return []string{kindPermission} }

type applyMode string

const (
	applyScoped applyMode = "scoped"
	applyGlobal applyMode = "global"
)

// Values lists what apply_mode may be.
func (applyMode) Values() []string { return []string{string(applyScoped), string(applyGlobal)} }

type matchMode string

const (
	matchAll matchMode = "all"
	matchAny matchMode = "any"
)

// Values lists what match_mode may be.
func (matchMode) Values() []string { return []string{string(matchAll), string(matchAny)} }

type toolAction string

// Values lists what action may be.
func (toolAction) Values() []string { return []string{"invoke"} }

type ruleClass string

// Values lists what operation_class may be.
func (ruleClass) Values() []string { return append(manifest.ClassRead.Values(), "*") }

// readGovernance reads a governance document. If it has a fault, it denies every call, since it is not known what
// it forbids.
func (d *Declaration) readGovernance(kind string) {
	d.Doc.Reveal()
	switch kind {
	case kindRole:
		d.readRole()
	case kindPolicy:
		d.readPolicy()
	default:
		d.readPermission()
	}
	if d.Doc.Err() != nil {
		d.Doc.Faultf("kind", "a faulty %s may forbid anything, so that every call is denied until it is correct", kind)
		d.Rule, d.Rules = true, manifest.Rules{}
	}
}

// own returns the document's own name, and where it stands.
func (d *Declaration) own(m metadataKeys) manifest.Reference {
	return manifest.Reference{Name: d.identify(m), At: d.at("metadata.name")}
}

// at returns the position of a key, or of its nearest parent.
func (d *Declaration) at(key string) string {
	return d.Doc.At(key, "").Place()
}

// references reads a list of names. Each is there once, without regard to case.
func (d *Declaration) references(key string, names []string) (list []manifest.Reference) {
	seen := make(map[string]bool, len(names))
	for i, name := range names {
		at := key + keys.Indexed(i)
		name = strings.TrimSpace(name)
		if name == "" {
			d.Doc.Faultf(at, "must not be empty")
		}
		if folded := strings.ToLower(name); !seen[folded] {
			seen[folded] = true
			list = append(list, manifest.Reference{Name: name, At: d.at(at)})
		}
	}
	return list
}

// rights reads a list of permissions.
func (d *Declaration) rights(key string, texts []string) (list []manifest.Right) {
	seen := make(map[string]bool, len(texts))
	for i, text := range texts {
		right, ok := parseRight(text)
		if !ok {
			d.Doc.Faultf(key+keys.Indexed(i), "wants tool:NAME:invoke or capability:NAME, got %q", text)
		}
		if folded := strings.ToLower(right.String()); !seen[folded] {
			seen[folded] = true
			list = append(list, right)
		}
	}
	return list
}

// parseRight reads a permission. "*" stands for a whole segment.
func parseRight(text string) (r manifest.Right, ok bool) {
	kind, rest, _ := strings.Cut(strings.TrimSpace(text), ":")
	switch {
	case strings.EqualFold(kind, "capability"):
		r.Capability = strings.TrimSpace(rest)
		return r, validSegment(r.Capability, true)
	case strings.EqualFold(kind, "tool"):
		at := strings.LastIndexByte(rest, ':')
		if at < 0 {
			return r, false
		}
		r.Tool = strings.TrimSpace(rest[:at])
		action := strings.TrimSpace(rest[at+1:])
		return r, validSegment(r.Tool, false) && (action == "*" || strings.EqualFold(action, "invoke"))
	}
	return r, false
}

// validSegment reports whether a segment is a name, or the one character that stands for all names.
func validSegment(s string, colons bool) bool {
	return s == "*" || s != "" && !strings.ContainsRune(s, '*') && (colons || !strings.ContainsRune(s, ':'))
}

func (d *Declaration) readRole() {
	var document roleResource
	_ = d.Doc.Decode(&document) // the Doc keeps the faults, and more are added to them
	d.Rules.Roles = []manifest.Role{{
		Reference:   d.own(document.Metadata),
		Permissions: d.rights("spec.permissions", document.Spec.Permissions),
	}}
}

func (d *Declaration) readPolicy() {
	document := policyResource{Spec: policySpec{ApplyMode: applyScoped}}
	_ = d.Doc.Decode(&document) // as above
	spec := document.Spec
	for _, key := range []string{"allowed_models", "max_tokens_per_run"} {
		if d.Doc.Has("spec." + key) {
			d.Warnings = append(d.Warnings, d.Doc.At("spec."+key, "is ignored: Orla runs no models"))
		}
	}
	p := manifest.Policy{
		Reference: d.own(document.Metadata),
		Global:    spec.ApplyMode == applyGlobal,
		Systems:   d.references("spec.target_systems", spec.TargetSystems),
		Tasks:     d.references("spec.target_tasks", spec.TargetTasks),
		Blocked:   d.references("spec.blocked_tools", spec.BlockedTools),
	}
	if !p.Global && len(p.Systems)+len(p.Tasks) == 0 {
		d.Doc.Faultf("spec", "applies to nobody: name target_systems or target_tasks, or write apply_mode: global")
	}
	d.Rules.Policies = []manifest.Policy{p}
}

func (d *Declaration) readPermission() {
	document := permissionResource{Spec: permissionSpec{MatchMode: matchAll, ApplyMode: applyGlobal}}
	_ = d.Doc.Decode(&document) // as above
	spec := document.Spec
	p := manifest.Permission{
		Reference: d.own(document.Metadata),
		Any:       spec.MatchMode == matchAny,
		Scoped:    spec.ApplyMode == applyScoped,
		Agents:    d.references("spec.target_agents", spec.TargetAgents),
		Required:  d.rights("spec.required_permissions", spec.RequiredPermissions),
	}
	p.Tool = p.Reference
	if d.Doc.Has("spec.tool_ref") {
		p.Tool = manifest.Reference{Name: strings.TrimSpace(spec.ToolRef), At: d.at("spec.tool_ref")}
		if p.Tool.Name == "" {
			d.Doc.Faultf("spec.tool_ref", "must not be empty")
		}
	}
	if d.hasSpec() && !d.Doc.Has("spec.required_permissions") && !d.Doc.Has("spec.operation_rules") {
		d.Doc.Faultf("spec", "says nothing of calls: write required_permissions or operation_rules; with required_permissions: [] every caller may call the tool")
	}
	switch {
	case p.Scoped && len(p.Agents) == 0:
		d.Doc.Faultf("spec", "applies to nobody: apply_mode scoped wants target_agents")
	case !p.Scoped && len(p.Agents) > 0:
		d.Doc.Faultf("spec.target_agents", "is for apply_mode: scoped; without it the rule applies to all")
	}
	for i, rule := range spec.OperationRules {
		p.Operations = append(p.Operations, d.operation("spec.operation_rules"+keys.Indexed(i), rule))
	}
	d.Rules.Permissions = []manifest.Permission{p}
}

// operation reads an operation rule with its defaults.
func (d *Declaration) operation(key string, rule operationRule) manifest.OperationRule {
	r := manifest.OperationRule{
		Class: cmp.Or(manifest.OperationClass(rule.OperationClass), "*"), Verdict: cmp.Or(rule.Verdict, manifest.Allow), Approvers: rule.Approvers,
	}
	if len(r.Approvers) > 0 && r.Verdict != manifest.ApprovalRequired {
		d.Doc.Faultf(key+".approvers", "is for verdict: approval_required")
	}
	return r
}
