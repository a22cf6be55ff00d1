package decisions

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/call/approvals/passkey"
	"github.com/orla-project/orla/internal/call/turns"
)

const (
	maxBody       = 64 << 10 // of a decision
	challengeLife = 5 * time.Minute
	maxChallenges = 256
)

// challenges are those of passkeys that are being registered: one of each session. The zero value has none.
type challenges struct {
	mu  sync.Mutex // guards all
	all map[string]challenge
}

type challenge struct {
	bits  []byte
	until time.Time
}

// issue returns a challenge for a session; nil if there are too many.
func (c *challenges) issue(session string, now time.Time) []byte {
	bits := make([]byte, 32)
	_, _ = rand.Read(bits) // it does not fail
	c.mu.Lock()
	defer c.mu.Unlock()
	for one, old := range c.all {
		if now.After(old.until) {
			delete(c.all, one)
		}
	}
	if len(c.all) >= maxChallenges {
		return nil
	}
	if c.all == nil {
		c.all = map[string]challenge{}
	}
	c.all[session] = challenge{bits, now.Add(challengeLife)}
	return bits
}

// take returns the challenge of a session, once; nil for none.
func (c *challenges) take(session string, now time.Time) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	got := c.all[session]
	delete(c.all, session)
	if now.After(got.until) {
		return nil
	}
	return got.bits
}

// VisitorInfo is what the page needs to know of who uses it.
type VisitorInfo struct {
	Name     string        `json:"name" jsonschema:"Who decides, as records have it."`
	Roles    []string      `json:"roles" jsonschema:"viewer, operator and approver: what this visitor may do."`
	Alone    bool          `json:"alone" jsonschema:"May approve without a passkey, if the rule does not ask for one."`
	Host     string        `json:"host" jsonschema:"The host that passkeys of this page are for."`
	Passkeys []PasskeyInfo `json:"passkeys" jsonschema:"The passkeys of this visitor for this page: its host and port."`
	Register string        `json:"register" jsonschema:"What another passkey needs: nothing, a link, the agreement of somebody who has a passkey (or a link of an operator who may approve calls), or a passkey of this visitor. One of nothing, link, operator and passkey."`
	Asked    AskedPasskey  `json:"asked,omitzero" jsonschema:"The passkey of this page to which somebody is to agree; absent if there is none."`
	Problem  string        `json:"problem,omitempty" jsonschema:"Why passkeys cannot be used."`
}

// PasskeyInfo is a passkey.
type PasskeyInfo struct {
	ID         string    `json:"id" jsonschema:"The id of the credential, in base64url."`
	Name       string    `json:"name" jsonschema:"The name that its owner has given it."`
	Registered time.Time `json:"registered_at" jsonschema:"When it was registered."`
	Used       time.Time `json:"used_at,omitzero" jsonschema:"When it was used last; absent if it never was."`
}

// Challenge is what a new passkey has to sign.
type Challenge struct {
	Challenge string `json:"challenge" jsonschema:"256 random bits, in base64url. It is good once, for 5 minutes."`
}

// route is one thing that the page can ask.
type route struct {
	pattern string
	role    string
	handle  func(*Decisions, *Visitor, *http.Request) (any, error)
}

func routes() []route {
	return []route{
		{"GET /v1/visitor", Viewer, func(d *Decisions, v *Visitor, _ *http.Request) (any, error) { return d.info(v), nil }},
		{"POST /v1/passkeys/challenge", Approver, (*Decisions).challenge},
		{"POST /v1/passkeys", Approver, (*Decisions).newPasskey},
		{"GET /v1/passkeys", Approver, (*Decisions).listPasskeys},
		{"POST /v1/passkeys/agree", Approver, aboutPasskey((*Decisions).agree)},
		{"POST /v1/passkeys/refuse", Approver, aboutPasskey((*Decisions).refuse)},
		{"POST /v1/passkeys/remove", Approver, aboutPasskey((*Decisions).remove)},
		{"GET /v1/approvals/{id}", Viewer, (*Decisions).seen},
		{"GET /v1/approvals/{id}/statement", Approver, (*Decisions).askedStatement},
		{"POST /v1/approvals/{id}/approve", Approver, decided(passkey.Approve)},
		{"POST /v1/approvals/{id}/extend", Approver, decided(passkey.Extend)},
		{"POST /v1/approvals/{id}/deny", Approver, func(d *Decisions, v *Visitor, r *http.Request) (any, error) {
			var asked VisitorDecision
			if err := read(r, &asked); err != nil {
				return nil, err
			}
			return d.deny(v, r.PathValue("id"), &asked)
		}},
	}
}

// seen returns a record. A viewer does not see the arguments of callers.
func (d *Decisions) seen(v *Visitor, r *http.Request) (any, error) {
	a, err := d.Approval(r.PathValue("id"))
	if err == nil && !v.has(Operator) && !v.has(Approver) {
		a.Arguments, a.Input, a.Last = nil, nil, control.LastApproved{}
	}
	return a, err
}

// Routes lists what only the page can ask, as docs/control-api.yaml writes it.
func Routes() (patterns []string) {
	for _, r := range routes() {
		if shared := []string{"approve", "deny", "extend", "{id}"}; !slices.Contains(shared, path.Base(r.pattern)) {
			patterns = append(patterns, r.pattern) // the control socket has those too
		}
	}
	return patterns
}

// Page answers the requests of the page, each with With. next answers those that decide nothing.
func (d *Decisions) Page(next http.Handler) http.Handler {
	mux := http.NewServeMux()
	for _, one := range routes() {
		mux.HandleFunc(one.pattern, func(w http.ResponseWriter, r *http.Request) {
			v, err := visitorOf(r, []string{one.role})
			if err != nil {
				control.Send(w, nil, err)
				return
			}
			answer, err := one.handle(d, v, r)
			control.Send(w, answer, err)
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if _, err := visitorOf(r, rolesFor(r)); err != nil {
			control.Send(w, nil, err)
			return
		}
		next.ServeHTTP(w, r)
	})
	return inTurn(mux)
}

const (
	// answerMoments is about how many moments the largest answers take to be made, and linesMoments what comes at once of a log.
	answerMoments, linesMoments = 500, 5
	// bytesAMoment is about how many bytes of a request can be read and decoded in a moment, and mostBytes how many one may have.
	bytesAMoment, mostBytes = 10 << 10, 4 << 20
)

// inTurn has next make answers in the turn of whoever asks (SPEC N2). What is read for streams, logs and the check of the audit log, which
// may be much, is read in turns of its own, piece by piece, when that of the request is over.
func inTurn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		moments := answerMoments
		switch {
		case r.URL.Path == "/v1/logs", r.URL.Path == "/v1/watch":
			moments = linesMoments
		case r.Method == http.MethodPost:
			moments = 1 + int(min(uint64(r.ContentLength), mostBytes)/bytesAMoment) // below 0 is not known
		}
		end, err := turns.Begin(r.Context(), moments)
		if err != nil {
			control.Send(w, nil, err) // the browser has left, or its session has ended
			return
		}
		defer end()
		next.ServeHTTP(w, r)
	})
}

// rolesFor returns the roles of which a request needs one that decides nothing. What is not known is for nobody.
func rolesFor(r *http.Request) []string {
	changes := func(part string) bool { return strings.HasPrefix(r.URL.Path, "/v1/"+part+"/") }
	switch {
	case r.URL.Path == "/v1/arguments": // of other callers
		return []string{Operator}
	case strings.HasPrefix(r.URL.Path, "/v1/manifests/"): // what somebody has written into a script
		return []string{Operator, Approver}
	case r.Method == http.MethodGet, r.URL.Path == "/v1/audit/verify":
		return []string{Viewer}
	case changes("tools"), changes("capsules"), changes("questions"):
		return []string{Operator}
	}
	return nil
}

// visitorOf returns who makes a request, who has one of some roles, or why it may not.
func visitorOf(r *http.Request, roles []string) (*Visitor, error) {
	v, ok := r.Context().Value(visitorKey{}).(*Visitor)
	switch {
	case !ok:
		return nil, &control.Error{Code: control.CodeForbidden, Message: "Orla cannot tell who you are"}
	case len(roles) == 0:
		return nil, &control.Error{Code: control.CodeNotFound, Message: "the page cannot ask for " + r.URL.Path, Hint: "docs/control-api.yaml lists what there is"}
	case !slices.ContainsFunc(roles, v.has):
		return nil, &control.Error{Code: control.CodeForbidden, Message: v.Name + " does not have the role " + strings.Join(roles, " or "), Hint: "console: [" + roles[0] + "] in the entry of callers gives it"}
	}
	return v, nil
}

// AskedBy returns who makes a request, on the page or at the control socket, as records have it.
func AskedBy(r *http.Request) (string, error) {
	if v, ok := r.Context().Value(visitorKey{}).(*Visitor); ok {
		return v.Name, nil
	}
	by, err := control.PeerOf(r)
	if err != nil {
		return "", err
	}
	return NameOf(by), nil
}

// read decodes the body of a request. Who decides is not for the request to say.
func read(r *http.Request, into any) error {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	switch {
	case err != nil:
		return &control.Error{Code: control.CodeBadRequest, Message: "the request's body is cut off: " + err.Error()}
	case len(body) > maxBody:
		return &control.Error{Code: control.CodeTooLarge, Message: fmt.Sprintf("the request is larger than %d bytes", maxBody)}
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return &control.Error{Code: control.CodeBadRequest, Message: "the request's body: " + strings.TrimPrefix(err.Error(), "json: ")}
	}
	if _, err := decoder.Token(); err != io.EOF {
		return &control.Error{Code: control.CodeBadRequest, Message: "the request's body: there is something after the object"}
	}
	return nil
}

func decided(purpose string) func(*Decisions, *Visitor, *http.Request) (any, error) {
	return func(d *Decisions, v *Visitor, r *http.Request) (any, error) {
		var asked VisitorDecision
		if err := read(r, &asked); err != nil {
			return nil, err
		}
		return d.approve(v, purpose, r.PathValue("id"), &asked)
	}
}

func (d *Decisions) askedStatement(_ *Visitor, r *http.Request) (any, error) {
	q := r.URL.Query()
	for key := range q {
		if key != "purpose" && key != "ttl" {
			return nil, &control.Error{Code: control.CodeBadRequest, Message: fmt.Sprintf("there is no parameter %q", key), Hint: "there are purpose and ttl"}
		}
	}
	said, _, err := d.statement(q.Get("purpose"), r.PathValue("id"), q.Get("ttl"))
	return said, err
}

func (d *Decisions) challenge(v *Visitor, _ *http.Request) (any, error) {
	bits := d.challenges.issue(v.Session, time.Now())
	if bits == nil {
		return nil, &control.Error{Code: control.CodeRefused, Message: "too many passkeys are being registered", Hint: "try again in some minutes"}
	}
	text, _ := passkey.Bytes(bits).MarshalText() // it does not fail
	return Challenge{string(text)}, nil
}

func (d *Decisions) newPasskey(v *Visitor, r *http.Request) (any, error) {
	var asked PasskeyRequest
	if err := read(r, &asked); err != nil {
		return nil, err
	}
	if err := d.register(v, &asked); err != nil {
		return nil, err
	}
	return d.info(v), nil
}

// info tells of a visitor.
func (d *Decisions) info(v *Visitor) VisitorInfo {
	info := VisitorInfo{Name: v.Name, Roles: []string{}, Alone: d.alone(v), Passkeys: []PasskeyInfo{}, Register: "passkey", Asked: d.asked(v)}
	for _, role := range Roles() {
		if v.has(role) {
			info.Roles = append(info.Roles, role)
		}
	}
	if at, err := url.Parse(v.Origin); err == nil {
		info.Host = at.Hostname()
	}
	keys, err := d.Passkeys.Keys()
	if err = cmp.Or(err, v.NoPasskeys()); err != nil {
		info.Problem = err.Error()
	}
	for _, k := range keys {
		if k.Owner == v.Name && k.Origin == v.Origin {
			id, _ := k.ID.MarshalText() // it does not fail
			info.Passkeys = append(info.Passkeys, PasskeyInfo{string(id), k.Name, k.Registered, k.Used})
		}
	}
	switch {
	case mayRegister(v.admission(), len(keys)) == nil:
		info.Register = "nothing"
	case len(keys) == 0:
		info.Register = "link"
	case len(info.Passkeys) == 0:
		info.Register = "operator"
	}
	slices.SortFunc(info.Passkeys, func(a, b PasskeyInfo) int { return a.Registered.Compare(b.Registered) })
	return info
}
