package announce_test

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
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/approvals"
	"github.com/orla-project/orla/internal/call/approvals/announce"
	"github.com/orla-project/orla/internal/testing/leaks"
	"github.com/orla-project/orla/manifest"
)

func TestMain(m *testing.M) { leaks.Main(m) }

var key = []byte(strings.Repeat("k", 32))

const address = "https://hooks.example.com/T1/secret"

// receiver answers requests, and keeps those that it accepts.
type receiver struct {
	t  *testing.T
	mu sync.Mutex // guards the fields that follow

	status int // of answers; 0 for no connection
	header http.Header
	tried  []time.Duration // since the first attempt
	began  time.Time
	got    []string // types, ids and phases
	bodies []string
}

func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.began.IsZero() {
		r.began = time.Now()
	}
	r.tried = append(r.tried, time.Since(r.began))
	id, stamp := req.Header.Get("webhook-id"), req.Header.Get("webhook-timestamp")
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", id, stamp, body)
	if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); req.Header.Get("webhook-signature") != want || req.Method != http.MethodPost {
		r.t.Errorf("%s with the signature %s; want %s", req.Method, req.Header.Get("webhook-signature"), want)
	}
	if seconds, err := strconv.ParseInt(stamp, 10, 64); err != nil || seconds != time.Now().Unix() {
		r.t.Errorf("webhook-timestamp is %s", stamp)
	}
	switch {
	case r.status == 0:
		return nil, errors.New("connection refused")
	case r.status/100 == 2:
		var e struct {
			Type string
			Data struct {
				ID, Phase string
				Expires   time.Time `json:"expires_at"`
			}
		}
		if err := json.Unmarshal(body, &e); err != nil {
			r.t.Fatal(err)
		}
		r.got = append(r.got, fmt.Sprint(e.Type, " ", e.Data.Phase))
		r.bodies = append(r.bodies, string(body))
		if word := strings.TrimPrefix(e.Type, "approval."); id != fmt.Sprint(e.Data.ID, "-", word, "-", e.Data.Expires.UnixMilli()) {
			r.t.Errorf("%s of %s has the id %s", e.Type, e.Data.ID, id)
		}
	}
	return &http.Response{StatusCode: r.status, Header: r.header, Body: io.NopCloser(strings.NewReader("no")), Request: req}, nil
}

// answers sets what it answers from now on.
func (r *receiver) answers(status int, header http.Header) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status, r.header = status, header
}

// heard returns when it was tried, and the bodies that it has accepted.
func (r *receiver) heard() (tried []time.Duration, bodies []string) {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.tried), slices.Clone(r.bodies)
}

// announcing runs an Announcer in a bubble.
type announcing struct {
	*announce.Announcer
	*receiver
	store *approvals.Store
	log   bytes.Buffer
	stop  func()
}

func start(t *testing.T, dir string, settings *announce.Settings) *announcing {
	t.Helper()
	a := &announcing{receiver: &receiver{t: t, status: http.StatusNoContent}}
	var err error
	if a.store, err = approvals.Open(approvals.Options{Dir: dir, Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	a.Announcer = announce.New(announce.Options{
		Client: &http.Client{Transport: a.receiver, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		Await:  func(context.Context) *approvals.Store { return a.store }, UserAgent: "orla/test", Log: slog.New(slog.NewTextHandler(&a.log, nil)),
	})
	a.Use(settings)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		if err := a.Serve(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("it ends with %v", err)
		}
	}()
	a.stop = sync.OnceFunc(func() {
		cancel()
		<-over
		a.store.Close()
	})
	return a
}

func (a *announcing) ask(args string) approvals.Record {
	a.t.Helper()
	r, _, err := a.store.Ask(approvals.Question{
		Caller: "ann", Tool: "wipe", Args: json.RawMessage(args), Policy: "1", Rule: "ToolPermission wipe, /srv/tools/rules.yaml:4:9", Why: "the ToolPermission wipe says so",
		Approvers: []manifest.Approver{manifest.ApproverOperator},
	})
	if err != nil {
		a.t.Fatal(err)
	}
	return r
}

func (a *announcing) decide(id string, approve bool) {
	a.t.Helper()
	if _, err := a.store.Decide(id, approvals.Decision{Approve: approve, By: "user:root(0)", How: manifest.ApproverOperator}); err != nil {
		a.t.Fatal(err)
	}
}

func (a *announcing) wants(got ...string) {
	a.t.Helper()
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Equal(a.got, got) {
		a.t.Errorf("the receiver got %q; want %q", a.got, got)
	}
}

// SPEC-TOOLS 8.7: calls that need an approval, decisions and expiries are announced, with a signature.
func TestT87Announced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := start(t, t.TempDir(), &announce.Settings{URL: address, Key: key})
		defer a.stop()
		first := a.ask(`{"path":"/private"}`)
		a.wants("approval.requested Pending")
		a.decide(first.ID, true)
		a.wants("approval.requested Pending", "approval.decided Approved")
		if err := a.store.Use(first.ID); err != nil {
			t.Fatal(err)
		}
		second := a.ask(`{"path":"/other"}`)
		synctest.Wait()
		a.decide(second.ID, false)
		synctest.Wait()
		a.ask(`{}`)
		time.Sleep(approvals.DefaultTTL)
		a.wants("approval.requested Pending", "approval.decided Approved", "approval.requested Pending", "approval.decided Denied", "approval.requested Pending", "approval.expired Expired")
		_, bodies := a.heard()
		all := strings.Join(bodies, "\n")
		if strings.Contains(all, "/private") || strings.Contains(all, "/srv") || strings.Contains(all, `"arguments":`) {
			t.Errorf("the arguments or a path of this machine are sent: %s", all)
		}
		sum := sha256.Sum256([]byte(`{"path":"/private"}`))
		for _, part := range []string{hex.EncodeToString(sum[:]), `"arguments_bytes":19`, `"decided_by":"user:root(0)"`, `"why":"the ToolPermission wipe says so"`, first.Digest()} {
			if !strings.Contains(all, part) {
				t.Errorf("%s is not sent: %s", part, all)
			}
		}
	})
}

// SPEC-TOOLS 8.7: an event is sent again until it is accepted or of no use, with growing pauses; the log says
// so once, and has neither the path of the address nor the key.
func TestT87TriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := start(t, t.TempDir(), &announce.Settings{URL: address, Key: key, Arguments: true})
		defer a.stop()
		a.answers(0, nil)
		first := a.ask(`{"a":1}`)
		time.Sleep(10 * time.Second)
		a.answers(http.StatusFound, http.Header{"Location": {"http://127.0.0.1/"}})
		time.Sleep(2 * time.Minute)
		tried, _ := a.heard()
		if n := len(tried); n < 5 || n > 15 || tried[n-1]-tried[n-2] < 15*time.Second { // half of the longest pause
			t.Errorf("attempts at %s", tried)
		}
		a.answers(http.StatusTooManyRequests, http.Header{"Retry-After": {"200"}})
		time.Sleep(90 * time.Second)
		before, _ := a.heard()
		time.Sleep(100 * time.Second)
		if tried, _ := a.heard(); len(tried) != len(before) {
			t.Errorf("it does not wait for as long as the receiver wants: %s", tried)
		}
		a.wants()
		a.decide(first.ID, true) // what was not announced is of no use now
		a.answers(http.StatusOK, nil)
		time.Sleep(5 * time.Minute)
		a.wants("approval.decided Approved")
		if _, bodies := a.heard(); !strings.Contains(bodies[0], `"arguments":{"a":1}`) {
			t.Errorf("without arguments: %s", bodies)
		}
		a.stop()
		log := a.log.String()
		if strings.Count(log, "does not accept") != 1 || strings.Count(log, "accepts again") != 1 || strings.Contains(log, "/T1") || strings.Contains(log, string(key)) {
			t.Errorf("the log has:\n%s", log)
		}
	})
}

// SPEC S2: the end of a record is not announced for ever.
func TestS2AnEndIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := start(t, t.TempDir(), &announce.Settings{URL: address, Key: key})
		defer a.stop()
		a.answers(http.StatusInternalServerError, nil)
		synctest.Wait()
		a.decide(a.ask(`{}`).ID, false)
		time.Sleep(62 * time.Minute)
		before, _ := a.heard()
		time.Sleep(time.Hour)
		tried, _ := a.heard()
		a.stop()
		if log := a.log.String(); len(before) < 40 || len(tried) != len(before) || strings.Count(log, "an approval was not announced") != 1 {
			t.Errorf("it is tried %d times, and %d times in the end; the log has:\n%s", len(before), len(tried), log)
		}
	})
}

// SPEC-TOOLS 8.7: one event that the receiver never accepts does not hold up the others.
func TestT87OneEventDoesNotHoldUpTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := start(t, t.TempDir(), &announce.Settings{URL: address, Key: key})
		defer a.stop()
		a.answers(http.StatusBadRequest, nil)
		a.ask(`{"a":1}`)
		synctest.Wait()
		a.ask(`{"a":2}`)
		synctest.Wait()
		a.answers(http.StatusOK, nil)
		time.Sleep(3 * time.Second)
		a.wants("approval.requested Pending", "approval.requested Pending")
	})
}

// SPEC-TOOLS 8.7: after a restart the calls that still wait are announced again, with the same id. Another
// address is told of them as well, and none of nothing.
func TestT87AnnouncedAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		a := start(t, dir, nil)
		a.ask(`{"a":1}`)
		a.decide(a.ask(`{"a":2}`).ID, true)
		a.wants()
		a.stop()
		a = start(t, dir, &announce.Settings{URL: address, Key: key})
		defer a.stop()
		a.wants("approval.requested Pending")
		a.Use(&announce.Settings{URL: address, Key: key, Arguments: true})
		a.wants("approval.requested Pending")
		a.Use(&announce.Settings{URL: address + "2", Key: key})
		a.wants("approval.requested Pending", "approval.requested Pending")
		a.Use(nil)
		a.ask(`{"a":3}`)
		a.wants("approval.requested Pending", "approval.requested Pending")
	})
}

// SPEC-TOOLS 8.7: what a secret is, and that an error does not repeat it.
func TestT87Secrets(t *testing.T) {
	for text, want := range map[string]string{
		"whsec_" + base64.StdEncoding.EncodeToString(key) + "\n": string(key),
		base64.StdEncoding.EncodeToString(key):                   string(key),
		"whsec_c2hvcnQ=":                                         "",
		"whsec_" + string(key)[1:]:                               "",
		"hunter2hunter2":                                         "",
		"":                                                       "",
		base64.StdEncoding.EncodeToString(bytes.Repeat(key, 3)): "",
	} {
		got, err := announce.ParseSecret(text)
		if string(got) != want && want != "" || (err == nil) != (want != "") || err != nil && text != "" && strings.Contains(err.Error(), strings.TrimPrefix(text, "whsec_")) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

// SPEC-TOOLS 8.7: that a record was extended is an event of its own, with another id, which a receiver tells from the request.
// One that has not heard of the request gets that, with the new time.
func TestT87AnExtensionIsAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := start(t, t.TempDir(), &announce.Settings{URL: address, Key: key})
		defer a.stop()
		extend := func(id string, ttl time.Duration) {
			t.Helper()
			if _, err := a.store.Extend(id, approvals.Decision{TTL: ttl, By: "user:root(0)", How: manifest.ApproverOperator}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		r := a.ask(`{}`)
		synctest.Wait()
		extend(r.ID, time.Hour)
		a.decide(r.ID, true)
		synctest.Wait()
		extend(r.ID, 2*time.Hour)
		a.wants("approval.requested Pending", "approval.extended Pending", "approval.decided Approved", "approval.extended Approved")
		a.answers(http.StatusServiceUnavailable, nil)
		late := a.ask(`{"late":1}`)
		synctest.Wait()
		extend(late.ID, time.Hour)
		a.answers(http.StatusNoContent, nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		a.wants("approval.requested Pending", "approval.extended Pending", "approval.decided Approved", "approval.extended Approved", "approval.requested Pending")
	})
}
