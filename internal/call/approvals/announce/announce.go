// Package announce tells a webhook of calls that need an approval, and of what was decided (SPEC-TOOLS 8.7), by
// requests that are signed as Standard Webhooks (standardwebhooks.com) says.
//
// There is at most one event for each record: the newest. It is sent again until the receiver accepts it, or it is
// of no use any more.
//
// Its invariant: nothing that a receiver answers decides about a call.
package announce

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/orla-project/orla/internal/call/approvals"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/service/outbound"
	"github.com/orla-project/orla/manifest"
)

const (
	// patience bounds a request.
	patience = 15 * time.Second
	// maxAnswer bounds what is read of an answer, so that its connection can be used again.
	maxAnswer = 4 << 10

	minSecret, maxSecret = 24, 64 // bytes
	secretPrefix         = "whsec_"
)

// Settings say where approvals are announced.
type Settings struct {
	URL       string
	Key       []byte // of the signatures
	Arguments bool   // the arguments of calls are sent too, and not only their hash
}

// ParseSecret returns the key in a secret: base64 after whsec_.
func ParseSecret(text string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(strings.TrimSpace(text), secretPrefix))
	if err != nil || len(key) < minSecret || len(key) > maxSecret { // the error would quote the secret
		return nil, fmt.Errorf("must hold %s and the base64 of %d to %d random bytes, as this makes it: echo %s$(openssl rand -base64 32)",
			secretPrefix, minSecret, maxSecret, secretPrefix)
	}
	return key, nil
}

// Options configures an Announcer. All fields are required.
type Options struct {
	// Client follows no redirects.
	Client *http.Client
	// Await returns the records, once there are any; nil if ctx ends before.
	Await     func(ctx context.Context) *approvals.Store
	UserAgent string
	Log       *slog.Logger
}

// Announcer is a service that announces approvals. Use may be called from any goroutine.
type Announcer struct {
	opts     Options
	settings atomic.Pointer[Settings] // nil for none
	used     chan struct{}            // holds one request to look at settings
}

// New returns an Announcer without Settings, which announces nothing.
func New(opts Options) *Announcer { return &Announcer{opts: opts, used: make(chan struct{}, 1)} }

// Use puts settings into force; nil for none.
func (a *Announcer) Use(s *Settings) {
	a.settings.Store(s)
	select {
	case a.used <- struct{}{}:
	default: // whoever wakes will see these
	}
}

// String names the service in logs.
func (a *Announcer) String() string { return "webhook of approvals" }

// Serve announces until ctx ends.
func (a *Announcer) Serve(ctx context.Context) error {
	store := a.opts.Await(ctx)
	if store == nil {
		return ctx.Err()
	}
	var q *queue // of the receiver to
	var to string
	for {
		changed := store.Changed()
		var timer <-chan time.Time
		if s := a.settings.Load(); s == nil {
			q, to = nil, ""
		} else {
			if to != s.URL {
				q, to = newQueue(), s.URL
			}
			for _, lost := range q.note(store.List(), time.Now()) {
				a.opts.Log.Warn("an approval was not announced", "approval", lost.record.ID, "phase", string(lost.record.Phase), "err", lost.err)
			}
			e, at := q.next()
			if e != nil && !time.Now().Before(at) {
				a.send(ctx, q, s, e)
				if ctx.Err() != nil {
					return ctx.Err()
				}
				continue
			}
			if e != nil {
				timer = time.After(time.Until(at))
			}
		}
		select {
		case <-changed:
		case <-timer:
		case <-a.used:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// send makes one attempt.
func (a *Announcer) send(ctx context.Context, q *queue, s *Settings, e *event) {
	again, err := a.post(ctx, s, e)
	switch {
	case err == nil:
		if q.accepted(e) {
			a.opts.Log.Info("the webhook of approvals accepts again")
		}
	case ctx.Err() == nil && q.refused(e, err, again, time.Now()):
		a.opts.Log.Warn("the webhook of approvals does not accept; it is tried again", "approval", e.record.ID, "err", err)
	}
}

// post sends an event. again is what the receiver wants to wait for.
func (a *Announcer) post(ctx context.Context, s *Settings, e *event) (again time.Duration, _ error) {
	body, err := e.body(s.Arguments)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, bytes.NewReader(body))
	if err != nil { // the configuration was checked
		return 0, errors.New("the address is not one")
	}
	stamp := strconv.FormatInt(time.Now().Unix(), 10)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", a.opts.UserAgent)
	req.Header.Set("Webhook-Id", e.id())
	req.Header.Set("Webhook-Timestamp", stamp)
	req.Header.Set("Webhook-Signature", "v1,"+sign(s.Key, e.id(), stamp, body))
	resp, err := a.opts.Client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return 0, fmt.Errorf("%s: no answer within %s", outbound.Origin(req.URL), patience)
		}
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err // without the address, whose path may be a secret
		}
		if f, ok := errors.AsType[*fault.Error](err); ok {
			err = errors.New(f.Reason) // its code is for calls
		}
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer)) // it says nothing that counts
	if resp.StatusCode/100 != 2 {
		return outbound.RetryAfter(resp.Header), fmt.Errorf("%s answered %d", outbound.Origin(req.URL), resp.StatusCode)
	}
	return 0, nil
}

// sign returns the signature of a request.
func sign(key []byte, id, stamp string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + stamp + "."))
	mac.Write(body)
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// data is a record as it is sent. The place of the rule is left out, which is a path of this machine.
type data struct {
	ID        string              `json:"id"`
	Phase     approvals.Phase     `json:"phase"`
	Tool      string              `json:"tool"`
	Caller    string              `json:"caller"`
	Agent     string              `json:"agent,omitempty"`
	Task      string              `json:"task,omitempty"`
	Class     string              `json:"operation_class,omitempty"`
	Why       string              `json:"why,omitempty"`
	Approvers []manifest.Approver `json:"approvers"`
	Created   time.Time           `json:"created_at"`
	Expires   time.Time           `json:"expires_at"`
	By        string              `json:"decided_by,omitempty"`
	How       manifest.Approver   `json:"decided_how,omitempty"`
	Decided   time.Time           `json:"decided_at,omitzero"`
	Reason    string              `json:"reason,omitempty"`
	Digest    string              `json:"digest"`
	ArgsHash  string              `json:"arguments_sha256"`
	Size      int                 `json:"arguments_bytes"`
	Arguments json.RawMessage     `json:"arguments,omitempty"`
}

// body returns the body of an event's requests.
func (e *event) body(arguments bool) ([]byte, error) {
	r := &e.record
	sum := sha256.Sum256(r.Args)
	d := data{
		ID: r.ID, Phase: r.Phase, Tool: r.Tool, Caller: r.Caller, Agent: r.Agent, Task: r.Task, Class: r.Class, Why: r.Why, Approvers: r.Approvers,
		Created: r.Created, Expires: r.Expires, By: r.By, How: r.How, Decided: r.Decided, Reason: r.Reason, Digest: r.Digest(),
		ArgsHash: hex.EncodeToString(sum[:]), Size: len(r.Args),
	}
	if arguments {
		d.Arguments = r.Args
	}
	return json.Marshal(struct {
		Type      string    `json:"type"`
		Timestamp time.Time `json:"timestamp"`
		Data      data      `json:"data"`
	}{"approval." + e.what(), e.since, d})
}
