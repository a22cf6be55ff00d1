package announce_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/approvals"
	"github.com/orla-project/orla/internal/call/approvals/announce"
	"github.com/orla-project/orla/manifest"
)

// slow is a receiver that takes its time, and answers by whose call it is told of.
type slow struct {
	takes  time.Duration
	answer func(caller string) (status int, retryAfter string)

	mu     sync.Mutex // guards the fields that follow
	at     map[string][]time.Time
	now    int
	atOnce int
}

func (r *slow) RoundTrip(req *http.Request) (*http.Response, error) {
	var e struct{ Data struct{ Caller string } }
	if err := json.NewDecoder(req.Body).Decode(&e); err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.now++
	r.atOnce = max(r.atOnce, r.now)
	r.mu.Unlock()
	select {
	case <-time.After(r.takes):
	case <-req.Context().Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now--
	status, after := http.StatusNoContent, ""
	if r.answer != nil {
		status, after = r.answer(e.Data.Caller)
	}
	r.at[e.Data.Caller] = append(r.at[e.Data.Caller], time.Now())
	return &http.Response{StatusCode: status, Header: http.Header{"Retry-After": {after}}, Body: io.NopCloser(strings.NewReader("")), Request: req}, nil
}

// first returns when the receiver has first answered about a caller, and how often it did.
func (r *slow) first(caller string) (at time.Time, n int) {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if n = len(r.at[caller]); n > 0 {
		at = r.at[caller][0]
	}
	return at, n
}

// underWay returns how many requests have not been answered, and how many that were at once.
func (r *slow) underWay() (now, atOnce int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now, r.atOnce
}

// told runs an Announcer, and returns its Store.
func told(t *testing.T, r *slow) (_ *approvals.Store, stop func()) {
	t.Helper()
	r.at = map[string][]time.Time{}
	store, err := approvals.Open(approvals.Options{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	a := announce.New(announce.Options{
		Client: &http.Client{Transport: r}, Await: func(context.Context) *approvals.Store { return store }, UserAgent: "orla/test", Log: slog.New(slog.DiscardHandler),
	})
	a.Use(&announce.Settings{URL: address, Key: key})
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		if err := a.Serve(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("it ends with %v", err)
		}
	}()
	return store, func() { cancel(); <-over; store.Close() }
}

func askFor(t *testing.T, store *approvals.Store, caller string, n int) string {
	t.Helper()
	r, _, err := store.Ask(approvals.Question{
		Caller: caller, Tool: "wipe", Args: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n)), Policy: "1", Approvers: []manifest.Approver{manifest.ApproverOperator},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r.ID
}

// SPEC-TOOLS 8.7, S2: what one caller makes does not delay what is announced of another's call, and the receiver
// gets a few requests at a time.
func TestT87ManyCallsOfOneDelayNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &slow{takes: 100 * time.Millisecond}
		store, stop := told(t, r)
		defer stop()
		for n := range 200 {
			askFor(t, store, "ann", n)
		}
		began := time.Now()
		askFor(t, store, "bob", 0)
		time.Sleep(30 * time.Second)
		bob, n := r.first("bob")
		if took := bob.Sub(began); n != 1 || took > 300*time.Millisecond {
			t.Errorf("bob's call is announced %d times, after %s", n, took)
		}
		if _, n := r.first("ann"); n != 200 {
			t.Errorf("%d of ann's calls are announced", n)
		}
		if r.atOnce < 2 || r.atOnce > 4 {
			t.Errorf("%d requests at a time", r.atOnce)
		}
	})
}

// SPEC-TOOLS 8.7, S2: a receiver that does not take one caller's calls is asked about those of others.
func TestT87ARefusalOfOneSilencesNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &slow{answer: func(caller string) (int, string) {
			if caller == "ann" {
				return http.StatusTooManyRequests, "300"
			}
			return http.StatusNoContent, ""
		}}
		store, stop := told(t, r)
		defer stop()
		for n := range 20 {
			askFor(t, store, "ann", n)
		}
		synctest.Wait()
		began := time.Now()
		askFor(t, store, "bob", 0)
		time.Sleep(4 * time.Minute)
		bob, n := r.first("bob")
		if took := bob.Sub(began); n != 1 || took > 5*time.Second {
			t.Errorf("bob's call is announced %d times, after %s", n, took)
		}
		if _, n := r.first("ann"); n > 4 {
			t.Errorf("it does not wait for as long as the receiver wants: %d attempts", n)
		}
	})
}

// SPEC-TOOLS 8.7: a decision is announced after its question, also if the question is being sent when it comes.
func TestT87InOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &slow{takes: time.Second}
		store, stop := told(t, r)
		defer stop()
		id := askFor(t, store, "ann", 1)
		synctest.Wait()
		if _, err := store.Decide(id, approvals.Decision{By: "user:root(0)", How: manifest.ApproverOperator}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * time.Millisecond)
		_, n := r.first("ann")
		if now, atOnce := r.underWay(); n != 1 || now != 1 || atOnce != 1 {
			t.Errorf("%d requests have ended and %d are under way; %d at once", n, now, atOnce)
		}
		time.Sleep(time.Second)
		if _, n := r.first("ann"); n != 2 {
			t.Errorf("%d requests", n)
		}
	})
}
