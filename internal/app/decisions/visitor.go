package decisions

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/call/approvals"
	"github.com/orla-project/orla/internal/call/approvals/passkey"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/manifest"
)

// The roles of a visitor. Each may also do what a viewer may.
const (
	Viewer   = "viewer"
	Operator = "operator"
	Approver = "approver"
)

// Roles lists the roles.
func Roles() []string { return []string{Viewer, Operator, Approver} }

// Visitor is who uses the page of the console.
type Visitor struct {
	Name   string   // who decides, in records
	Roles  []string // of Roles; who has one is a viewer too
	Origin string   // of the page: scheme, host and port
	// Session distinguishes the browsers of a visitor.
	Session string
	// NoPasskeys returns why passkeys are not good on this page; nil if they are.
	NoPasskeys func() error
	// LoggedIn says that the visitor logged in at the issuer of access tokens for this page. That takes a browser that is logged
	// in there, and perhaps no person: a program can open the issuer's page and read the answer in the browser's history.
	LoggedIn bool
	// Admits is what the link allows that let this visitor in; Nothing for a token. It does so for AdmissionLife.
	Admits Admission
	// Entered is when the link or the token was used.
	Entered time.Time
	// Redeem returns what another link allows, which it uses up.
	Redeem func(code string) Admission
}

// Admission is what a link allows to register.
type Admission int

// The admissions.
const (
	Nothing Admission = iota
	First             // the first passkey of this Orla
	Any               // a passkey beside others: somebody made the link who may approve calls
)

// AdmissionLife is for how long after a link was used its page may register a passkey.
const AdmissionLife = 10 * time.Minute

// admission returns what a visitor's link still allows.
func (v *Visitor) admission() Admission {
	if time.Since(v.Entered) >= AdmissionLife {
		return Nothing
	}
	return v.Admits
}

// has reports whether a visitor has a role.
func (v *Visitor) has(role string) bool {
	return slices.Contains(v.Roles, role) || role == Viewer && len(v.Roles) > 0
}

type visitorKey struct{}

// With returns the context of a request of a visitor.
func With(ctx context.Context, v *Visitor) context.Context {
	return context.WithValue(ctx, visitorKey{}, v)
}

// Admission returns what a link that a peer makes allows to register.
func (d *Decisions) Admission(by control.Peer) Admission {
	if d.mayApprove(by) == nil {
		return Any
	}
	return First
}

// Statement is what is shown to who decides on the page, and signed by a passkey.
type Statement struct {
	Purpose  string `json:"purpose" jsonschema:"approve or extend."`
	ID       string `json:"id" jsonschema:"The id of the record."`
	TTL      string `json:"ttl" jsonschema:"How long the approval is to be good; empty for the ttl of the record."`
	Args     string `json:"arguments_sha256" jsonschema:"The hash of the arguments, as the audit log has it."`
	Document string `json:"document" jsonschema:"The record with its arguments as JSON, an Approval. What a passkey signs has the hash of this text."`
}

// signed is what a passkey signs.
func (s *Statement) signed() passkey.Statement {
	return passkey.Statement{Purpose: s.Purpose, ID: s.ID, TTL: s.TTL, Args: s.Args, Shown: passkey.Sum([]byte(s.Document))}
}

// statement returns what is to be shown now.
func (d *Decisions) statement(purpose, id, ttl string) (*Statement, control.Approval, error) {
	if purpose != passkey.Approve && purpose != passkey.Extend {
		return nil, control.Approval{}, &control.Error{Code: control.CodeBadRequest, Message: "purpose: wants approve or extend"}
	}
	if _, err := parseTTL(ttl); err != nil {
		return nil, control.Approval{}, err
	}
	a, err := d.Approval(id)
	if err != nil {
		return nil, a, err
	}
	text, err := rawjson.Line(&a) // drawn as it is, and the same for as long as the record is
	if err != nil {
		return nil, a, err
	}
	args := a.Arguments
	if len(args) == 0 || string(args) == "null" { // as the audit log has them
		args = []byte("{}")
	}
	return &Statement{Purpose: purpose, ID: a.ID, TTL: ttl, Args: passkey.Sum(args), Document: string(text)}, a, nil
}

// VisitorDecision is what a visitor has decided.
type VisitorDecision struct {
	Digest string            `json:"digest,omitempty" jsonschema:"The digest of the record that was shown. Approving without a proof needs it."`
	TTL    string            `json:"ttl,omitempty" jsonschema:"How long the approval is good, or waits, from 1s to 168h. Default: the ttl of the record."`
	Reason string            `json:"reason,omitempty" jsonschema:"Why it was denied, for who made the call; up to 1000 bytes."`
	Proof  passkey.Assertion `json:"proof,omitzero" jsonschema:"What a passkey has signed: the challenge is that of the statement."`
}

// approve notes that a visitor approves, or extends.
func (d *Decisions) approve(v *Visitor, purpose, id string, asked *VisitorDecision) (control.Approval, error) {
	store := d.Store()
	if store == nil {
		return control.Approval{}, noApproval(id)
	}
	said, shown, err := d.statement(purpose, id, asked.TTL)
	if err != nil {
		return control.Approval{}, err
	}
	if purpose == passkey.Approve && shown.Phase != string(approvals.Pending) { // no signature is needed to say so
		r, _, _ := store.Get(id) // it has just been there
		return control.Approval{}, refusedDecision(id, &r, &approvals.DecidedError{Record: r})
	}
	with := approvals.Decision{Approve: true, By: v.Name, Digest: shown.Digest}
	if asked.Digest != "" {
		with.Digest = asked.Digest
	}
	with.TTL, _ = parseTTL(asked.TTL) // statement has checked it
	d.changing.RLock()
	defer d.changing.RUnlock()
	if with.Proof, with.How, err = d.means(v, said, asked); err != nil {
		return control.Approval{}, err
	}
	var r approvals.Record
	if purpose == passkey.Approve {
		r, err = store.Decide(id, with)
	} else {
		r, err = store.Extend(id, with)
	}
	if err != nil {
		return control.Approval{}, refusedDecision(id, &r, err)
	}
	if purpose == passkey.Extend {
		d.Log.Info("an approval was extended", "approval", r.ID, "tool", r.Tool, "caller", r.Caller, "by", v.Name, "expires", r.Expires)
	}
	return approvalOf(&r), nil
}

// deny notes that a visitor denies. That needs no passkey, since it allows nothing.
func (d *Decisions) deny(v *Visitor, id string, asked *VisitorDecision) (control.Approval, error) {
	store := d.Store()
	if store == nil {
		return control.Approval{}, noApproval(id)
	}
	r, err := store.Decide(id, approvals.Decision{By: v.Name, How: manifest.ApproverOperator, Reason: asked.Reason, Digest: asked.Digest})
	if err != nil {
		return control.Approval{}, refusedDecision(id, &r, err)
	}
	return approvalOf(&r), nil
}

// alone reports whether a visitor may approve without a passkey. A program could be any visitor, so that is for the
// configuration to say.
func (d *Decisions) alone(v *Visitor) bool { return v.LoggedIn && d.ByLogin() || d.SameUser() }

// use checks what a passkey of a visitor has signed on the visitor's page, and returns the proof.
func (d *Decisions) use(v *Visitor, a *passkey.Assertion, of passkey.Statement) (*passkey.Proof, error) {
	if err := v.NoPasskeys(); err != nil {
		return nil, err
	}
	return d.Passkeys.Use(v.Name, v.Origin, a, of)
}

// means returns with what a visitor decides, and the proof of a passkey.
func (d *Decisions) means(v *Visitor, said *Statement, asked *VisitorDecision) (proof []byte, how manifest.Approver, err error) {
	switch {
	case !asked.Proof.IsZero():
		p, err := d.use(v, &asked.Proof, said.signed())
		if err != nil {
			d.Log.Warn("a passkey was refused", "approval", said.ID, "by", v.Name, "err", err)
			return nil, "", &control.Error{Code: control.CodeForbidden, Message: said.ID + ": the passkey: " + err.Error(), Hint: "read the call again, and use a passkey that is registered here"}
		}
		proof, err = json.Marshal(p)
		return proof, manifest.ApproverPasskey, err
	case !d.alone(v):
		return nil, "", &control.Error{
			Code: control.CodeForbidden, Message: said.ID + ": " + v.Name + " needs a passkey: a program that has the link, the token or the login could be this page",
			Hint: "register one on this page; or approve as root: sudo orla approvals approve " + said.ID,
		}
	case said.Purpose == passkey.Approve && asked.Digest == "":
		return nil, "", &control.Error{Code: control.CodeBadRequest, Message: "digest is required: that of the record that was shown"}
	}
	return nil, manifest.ApproverOperator, nil
}

// PasskeyRequest registers a passkey.
type PasskeyRequest struct {
	passkey.Registration
	Ask   bool              `json:"ask,omitempty" jsonschema:"Somebody with a passkey is to agree: the new one waits for ten minutes, and is not good before."`
	Link  string            `json:"link,omitempty" jsonschema:"A link that orla console prints, or what is after its #: beyond loopback, and for a page that has been open for long."`
	Proof passkey.Assertion `json:"proof,omitzero" jsonschema:"What another passkey of this visitor has signed: that it agrees to the new one."`
}

// register keeps a passkey of a visitor.
func (d *Decisions) register(v *Visitor, asked *PasskeyRequest) error {
	refused := func(err error) error {
		d.Log.Warn("a passkey was not registered", "by", v.Name, "err", err)
		return &control.Error{Code: control.CodeForbidden, Message: "the passkey was not registered: " + err.Error(), Hint: registering}
	}
	if err := cmp.Or(d.Unrecorded(), v.NoPasskeys()); err != nil {
		return refused(err)
	}
	challenge := d.challenges.take(v.Session, time.Now())
	if challenge == nil {
		return refused(errors.New("there is no challenge for it, or it is too old"))
	}
	k, err := asked.Key(challenge, v.Origin)
	if err != nil {
		return refused(err)
	}
	if len(k.Name) > maxName || k.Name == "" {
		return &control.Error{Code: control.CodeBadRequest, Message: "name: wants 1 to 100 bytes"}
	}
	k.Owner, k.Registered, k.Salt = v.Name, time.Now().UTC().Truncate(time.Second), []byte(rand.Text())
	if asked.Ask {
		if err := d.wish(v, &k); err != nil {
			return refused(err)
		}
		return nil
	}
	if err := d.change(func() (*PasskeyChange, error) { return d.add(v, &k, asked) }); err != nil {
		return refused(err)
	}
	return nil
}

// add makes a new passkey of a visitor good, if a link or another passkey of the visitor admits it.
func (d *Decisions) add(v *Visitor, k *passkey.Key, asked *PasskeyRequest) (*PasskeyChange, error) {
	change := &PasskeyChange{Key: k, What: Added}
	admitted := v.admission()
	if asked.Link != "" && v.Redeem != nil {
		admitted = max(admitted, v.Redeem(asked.Link))
	}
	if !asked.Proof.IsZero() {
		proof, err := d.use(v, &asked.Proof, passkey.Statement{Purpose: passkey.Register, ID: passkey.Sum(k.Public), Shown: passkey.Sum(asked.ClientData)})
		if err != nil {
			return nil, err
		}
		admitted, change.By, change.Proof = Any, v.Name, proof
	}
	err := d.Passkeys.Add(k, func(there []passkey.Key) error { return mayRegister(admitted, len(there)) })
	return change, err
}

const (
	maxName     = 100 // bytes of the name of a passkey
	registering = "the first passkey needs a link of orla console that is fresh, each other one a passkey of yours, somebody with a passkey who agrees, or a link of sudo orla console"
)

// mayRegister reports by its error that a passkey may not be registered beside others.
func mayRegister(admitted Admission, others int) error {
	switch {
	case admitted == Any, admitted == First && others == 0:
		return nil
	case others == 0:
		return errors.New("it needs a link of orla console")
	}
	return errors.New("there is one already, and it has not agreed")
}
