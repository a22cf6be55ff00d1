package httpfront

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/sessionlog"
	"github.com/orla-project/orla/mcpbridge/transport/passed"
)

// session is the header that names a session.
const session = "Mcp-Session-Id"

// keptFront returns the front of a new process that keeps its sessions in a file, and what kills it.
func keptFront(t *testing.T, path string, configure func(*Settings)) (*Front, func()) {
	t.Helper()
	h, _, settings := newIssued()
	if configure != nil {
		configure(&settings)
		h.Configure(settings)
	}
	kept, err := sessionlog.Open(path, time.Hour, 100, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	h.Keep(kept)
	t.Cleanup(kept.Close)
	return h, kept.Close // nothing is said to the sessions
}

func begins(t *testing.T, h http.Handler, token string) string {
	t.Helper()
	begun := sendAs(h, token, aBeginning)
	id := begun.Header().Get(session)
	if begun.Code != http.StatusOK || id == "" {
		t.Fatalf("%d %s", begun.Code, begun.Body)
	}
	return id
}

// ends sends a DELETE.
func ends(h http.Handler, token, id string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodDelete, "http://localhost/mcp", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set(session, id)
	out := httptest.NewRecorder()
	h.ServeHTTP(out, r)
	return out
}

// SPEC Q2: a session goes on after a restart, for its caller only, and not after it was ended.
func TestQ2SessionsOutliveTheProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sessions.log")
	before, kill := keptFront(t, path, nil)
	mine, ended := begins(t, before, "ann/ops"), begins(t, before, "ann/ops")
	before.endSessions(before.sessions.remove(func(u *usage) bool { return u.ID == ended }))
	kill()

	for round := range 3 { // what was resumed outlives its process too
		h, kill := keptFront(t, path, nil)
		for what, c := range map[string]struct {
			token, id string
			want      int
		}{
			"another caller's": {"bob/ops", mine, http.StatusNotFound},
			"one that ended":   {"ann/ops", ended, http.StatusNotFound},
			"an unknown one":   {"ann/ops", "x" + mine, http.StatusNotFound},
		} {
			if out := sendAs(h, c.token, aPing, session, c.id); out.Code != c.want {
				t.Errorf("round %d, %s: %d %s", round, what, out.Code, out.Body)
			}
		}
		if n := h.Sessions(); n != 0 {
			t.Errorf("round %d: %d sessions before the client came back", round, n)
		}
		if out := sendAs(h, "ann/ops", aPing, session, mine); out.Code != http.StatusOK {
			t.Fatalf("round %d: %d %s", round, out.Code, out.Body)
		}
		if n := h.SessionsOf()["oauth:ann"]; n != 1 {
			t.Errorf("round %d: %d sessions count for ann", round, n)
		}
		if round == 1 {
			h.CloseSessions() // as at a stop
		}
		kill()
	}
}

// SPEC Q2: while Orla stops, no client hears that a session is over with which the next process goes on.
func TestQ2RequestsDuringTheStop(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sessions.log")
	h, kill := keptFront(t, path, nil)
	id := begins(t, h, "ann/ops")
	h.CloseSessions()
	out := sendAs(h, "ann/ops", aPing, session, id)
	if out.Code != http.StatusServiceUnavailable || out.Header().Get("Retry-After") == "" {
		t.Errorf("%d %s", out.Code, out.Body)
	}
	kill()
	h, _ = keptFront(t, path, nil)
	if out := sendAs(h, "ann/ops", aPing, session, id); out.Code != http.StatusOK {
		t.Errorf("%d %s", out.Code, out.Body)
	}
}

// SPEC Q2: nor does one whose request has found its session when all sessions end.
func TestQ2RequestsAtTheMomentOfTheStop(t *testing.T) {
	for range 100 {
		h, kill := keptFront(t, filepath.Join(t.TempDir(), "sessions.log"), nil)
		id := begins(t, h, "ann/ops")
		var clients sync.WaitGroup
		for n := range 8 {
			ping := strings.Replace(aPing, `"id":1`, fmt.Sprintf(`"id":%d`, n), 1)
			clients.Go(func() {
				for {
					switch out := sendAs(h, "ann/ops", ping, session, id); out.Code {
					case http.StatusOK:
					case http.StatusServiceUnavailable:
						return
					default:
						t.Errorf("%d %s", out.Code, out.Body)
						return
					}
				}
			})
		}
		h.CloseSessions()
		clients.Wait()
		kill()
	}
}

// SPEC Q2: requests that come at the same moment resume one session.
func TestQ2ResumedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sessions.log")
	before, kill := keptFront(t, path, nil)
	ids := make([]string, 60)
	for i := range ids {
		ids[i] = begins(t, before, "ann/ops")
	}
	kill()
	h, _ := keptFront(t, path, nil)
	for _, id := range ids {
		var all sync.WaitGroup
		together := make(chan struct{})
		for i := range 4 {
			all.Go(func() {
				<-together
				ping := strings.Replace(aPing, `"id":1`, fmt.Sprintf(`"id":%d`, i+2), 1)
				if out := sendAs(h, "ann/ops", ping, session, id); out.Code != http.StatusOK {
					t.Errorf("%d %s", out.Code, out.Body)
				}
			})
		}
		close(together)
		all.Wait()
	}
	if n := h.Sessions(); n != len(ids) {
		t.Errorf("%d sessions", n)
	}
}

// SPEC Q2, N2: a session ends with the access of its caller, also while no process runs, and while its client is away.
func TestQ2SessionsEndWithTheirToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sessions.log")
	before, kill := keptFront(t, path, nil)
	static, issued := begins(t, before, "static"), begins(t, before, "ann/ops")
	kill()
	h, kill := keptFront(t, path, func(s *Settings) { s.Callers = map[string]string{"static": "another token", IssuedPrefix: "1"} })
	if out := sendAs(h, "static", aPing, session, static); out.Code != http.StatusNotFound {
		t.Errorf("with a new token: %d %s", out.Code, out.Body)
	}
	settings := *h.settings.Load()
	settings.Callers = map[string]string{"static": "another token"}
	h.Configure(settings)
	settings.Callers = map[string]string{"static": "another token", IssuedPrefix: "1"}
	h.Configure(settings)
	if out := sendAs(h, "ann/ops", aPing, session, issued); out.Code != http.StatusNotFound {
		t.Errorf("after its issuer was removed for a moment: %d %s", out.Code, out.Body)
	}
	kill()
	h, _ = keptFront(t, path, nil)
	if out := sendAs(h, "ann/ops", aPing, session, issued); out.Code != http.StatusNotFound {
		t.Errorf("in the next process: %d %s", out.Code, out.Body)
	}
	if out := sendAs(h, "static", aPing, session, static); out.Code != http.StatusNotFound {
		t.Errorf("with the first token again: %d %s", out.Code, out.Body)
	}
}

// SPEC Q2, S2: a session that comes back counts among max_sessions. Where there is no room, it can come back later.
func TestQ2NoRoom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sessions.log")
	before, kill := keptFront(t, path, nil)
	id, unwanted := begins(t, before, "ann/ops"), begins(t, before, "ann/ops")
	kill()
	h, _ := keptFront(t, path, func(s *Settings) { s.MaxSessions = 1 })
	other := begins(t, h, "bob/ops")
	out := sendAs(h, "ann/ops", aPing, session, id)
	if out.Code != http.StatusServiceUnavailable || out.Header().Get("Retry-After") == "" {
		t.Errorf("without room: %d %s", out.Code, out.Body)
	}
	if out := ends(h, "bob/ops", id); out.Code != http.StatusNotFound {
		t.Errorf("another caller ends it: %d %s", out.Code, out.Body)
	}
	if out := ends(h, "ann/ops", unwanted); out.Code != http.StatusNoContent {
		t.Errorf("its caller ends it without room: %d %s", out.Code, out.Body)
	}
	if out := sendAs(h, "ann/ops", aPing, session, unwanted); out.Code != http.StatusNotFound {
		t.Errorf("after its end: %d %s", out.Code, out.Body)
	}
	h.endSessions(h.sessions.remove(func(u *usage) bool { return u.ID == other }))
	if out := sendAs(h, "ann/ops", aPing, session, id); out.Code != http.StatusOK {
		t.Errorf("with room: %d %s", out.Code, out.Body)
	}
}

// replica is what other replicas say of one session of ann.
type replica struct {
	passed.Elsewhere
	asked   error // the context's, when it was asked what the client has set
	follows map[string]bool
}

func (r *replica) Home(context.Context, string) string { return "" }

func (r *replica) Opened(string) *sessionlog.Record {
	return &sessionlog.Record{Caller: "ann", Says: json.RawMessage(`{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}`)}
}

func (r *replica) Set(ctx context.Context, _ string, to *sessionlog.Record) {
	r.asked, to.Follows = ctx.Err(), r.follows
}

// panicking are rules that panic when they are asked about a resource.
type panicking struct{ otherRules }

type otherRules mcpbridge.Rules // which nothing asks

func (panicking) Limits(string, []string) rules.Limits { return rules.Limits{} }

func (panicking) May(rules.Caller, func() *rules.Target, *peer.Noted) error { panic("the test's") }

// SPEC Q2: a session that comes back has what its client has set, also if that has left in the middle of the request. One whose
// request panics is not counted.
func TestQ2ASessionComesBackWhole(t *testing.T) {
	h, catalog, _ := newIssued()
	other := &replica{asked: context.Canceled, follows: map[string]bool{"mem://x": true}}
	h.Share(other)
	left, leave := context.WithCancel(t.Context())
	leave()
	r := httptest.NewRequestWithContext(left, http.MethodPost, "http://localhost/mcp", nil)
	func() {
		defer func() {
			if p := recover(); p != "the test's" {
				t.Errorf("the request panics before its session counts, or not at all: %v", p)
			}
		}()
		healthy := h.bridge
		defer func() { h.bridge = healthy }()
		h.bridge = mcpbridge.New(catalog, mcpbridge.Options{Version: "1", Log: h.log, Rules: panicking{}})
		_, _ = h.resume(r, "x", "ann")
	}()
	if other.asked != nil {
		t.Errorf("what its client has set is asked for until the client leaves: %v", other.asked)
	}
	if h.sessions.opening != 0 || len(h.sessions.callers) > 0 {
		t.Errorf("%d sessions begin, and %v have some", h.sessions.opening, h.sessions.callers)
	}
	other.follows = nil
	if u, full := h.resume(r, "x", "ann"); u == nil || full != nil || h.sessions.opening != 0 || len(h.sessions.known) != 1 {
		t.Errorf("it does not come back: %v %v, %d begin", u, full, h.sessions.opening)
	}
}
