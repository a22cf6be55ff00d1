// Package announce tells a webhook of calls that need an approval, and of what was decided (SPEC-TOOLS 8.7), by
// requests that are signed as Standard Webhooks (standardwebhooks.com) says.
//
// There is at most one event for each record: the newest. It is sent again until the receiver accepts it, or it is
// of no use any more. Callers take turns, so the calls of one do not delay what is announced of another's.
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
	"sync"
	"sync/atomic"
	"time"

	"github.com/orla-project/orla/internal/call/approvals"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/recovered"
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

// Options configures an Announcer. All fields but Mine are required.
type Options struct {
	// Client follows no redirects.
	Client *http.Client
	// Await returns the records, once there are any; nil if ctx ends before.
	Await func(ctx context.Context) *approvals.Store
	// Mine reports whether this process announces a record, of those that have it in common; nil for all.
	Mine      func(id string) bool
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
	var sending sync.WaitGroup
	defer sending.Wait()
	results := make(chan result)
	var q *queue // of the receiver to
	var to string
	for {
		var changed <-chan struct{}
		var timer <-chan time.Time
		if s := a.settings.Load(); s == nil {
			q, to = nil, ""
		} else {
			if to != s.URL {
				q, to = newQueue(), s.URL
			}
			now := time.Now()
			changed = q.note(store, now)
			for e := q.next(now); e != nil; e = q.next(now) {
				record, ok := a.worth(store, e, now)
				if !ok {
					q.drop(e)
					continue
				}
				sent := result{of: q, event: e, news: e.news, since: e.since}
				sending.Go(func() {
					defer recovered.To(a.opts.Log, "announce an approval", func(any) {
						sent.err = errors.New("there is a fault in Orla")
						sent.report(ctx, results)
					})
					sent.again, sent.err = a.post(ctx, s, &record, sent)
					sent.report(ctx, results)
				})
			}
			if at := q.wake(now); !at.IsZero() {
				timer = time.After(at.Sub(now))
			}
		}
		select {
		case <-changed:
		case <-timer:
		case r := <-results:
			if r.of == q {
				a.note(q, r)
			}
		case <-a.used:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// worth returns the record of an event, if it is to be announced still.
func (a *Announcer) worth(store *approvals.Store, e *event, now time.Time) (r approvals.Record, ok bool) {
	r, ok = store.Record(e.id)
	switch {
	case ok && a.opts.Mine != nil && !a.opts.Mine(e.id):
		return r, false
	case !ok, e.phase != approvals.Pending && now.Sub(e.since) > useful:
		a.opts.Log.Warn("an approval was not announced", "approval", e.id, "phase", string(e.phase), "err", e.err)
		return r, false
	case !e.same(newsOf(&r)): // since it was noted
		e.begin(&r, now)
	}
	return r, true
}

// result is how an attempt has ended.
type result struct {
	of    *queue
	event *event
	news                // that were announced
	since time.Time     // when the record came to it
	again time.Duration // what the receiver wants to wait for
	err   error
}

// report passes a result on. It is dropped if ctx ends.
func (r result) report(ctx context.Context, to chan<- result) {
	select {
	case to <- r:
	case <-ctx.Done():
	}
}

// note notes how an attempt has ended.
func (a *Announcer) note(q *queue, r result) {
	switch {
	case r.err == nil:
		if q.accepted(r.event, r.news) {
			a.opts.Log.Info("the webhook of approvals accepts again")
		}
	case q.refused(r.event, r.news, r.err, r.again, time.Now()):
		a.opts.Log.Warn("the webhook of approvals does not accept; it is tried again", "approval", r.event.id, "err", r.err)
	}
}

// post announces what a record is now. again is what the receiver wants to wait for.
func (a *Announcer) post(ctx context.Context, s *Settings, r *approvals.Record, what result) (again time.Duration, _ error) {
	// The id is the same for all attempts, also those of another process, and another one for a record that was extended.
	id := r.ID + "-" + what.word() + "-" + strconv.FormatInt(r.Expires.UnixMilli(), 10)
	body, err := bodyOf(r, what, s.Arguments)
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
	req.Header.Set("Webhook-Id", id)
	req.Header.Set("Webhook-Timestamp", stamp)
	req.Header.Set("Webhook-Signature", "v1,"+sign(s.Key, id, stamp, body))
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

// bodyOf returns the body of a request.
func bodyOf(r *approvals.Record, what result, arguments bool) ([]byte, error) {
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
	}{"approval." + what.word(), what.since, d})
}
