package sealed

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/cluster/documents"
	"github.com/orla-project/orla/internal/cluster/replicas"
	"github.com/orla-project/orla/internal/testing/kubetest"
	"github.com/orla-project/orla/mcpbridge/sessionlog"
)

// two returns the sessions of two replicas with one key.
func two(t *testing.T) (a, b *Sessions) {
	t.Helper()
	return pair(t, new(kubetest.Objects))
}

// pair returns those of two replicas of an API server.
func pair(t *testing.T, api http.RoundTripper) (a, b *Sessions) {
	t.Helper()
	box, err := replicas.NewBox(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	one, err := replicas.New(replicas.Options{Pod: "a"})
	if err != nil {
		t.Fatal(err)
	}
	other, err := replicas.New(replicas.Options{Pod: "b"})
	if err != nil {
		t.Fatal(err)
	}
	docs := func() *documents.Documents {
		d := documents.New(documents.Options{
			Client: kubetest.Client(t, api), Namespace: "ops", Group: "orla", Part: "sessions", Log: slog.New(slog.DiscardHandler),
			Key: func(context.Context) (*replicas.Box, error) { return box, nil },
		})
		if err := d.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		return d
	}
	log := slog.New(slog.DiscardHandler)
	return New(one, box, docs(), log), New(other, box, docs(), log)
}

// SPEC P4: another replica finds in an id whose the session is and what its client has declared. Its own replica does
// not go on with it: if it does not know the session, that has ended.
func TestP4AnIDHasTheSession(t *testing.T) {
	a, b := two(t)
	says := json.RawMessage(`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}`)
	id := a.ID(&sessionlog.Record{Caller: "ann", Access: "by token", Says: says})
	if strings.Contains(id, "ann") || len(id) > 600 {
		t.Errorf("an id of %d bytes: %s", len(id), id)
	}
	if got := b.Opened(id); got == nil || got.Caller != "ann" || got.Access != "by token" || string(got.Says) != string(says) {
		t.Errorf("%+v", got)
	}
	if got := a.Opened(id); got != nil {
		t.Errorf("its own replica goes on with a session that has ended: %+v", got)
	}
	for _, bad := range []string{"", id[1:], id + "A", strings.Repeat("A", 1<<20)} {
		if b.Opened(bad) != nil {
			t.Errorf("%.20q is a session", bad)
		}
	}
	if !b.uses(a.replicas.Self()) || b.uses("c") {
		t.Error("b goes on with a session of a, and with none of c")
	}
	b.Ended(id)
	if b.uses(a.replicas.Self()) {
		t.Error("b goes on with a session of a that has ended")
	}
	if b.Opened(id) != nil {
		t.Error("a session that has ended comes back")
	}
}

// SPEC P4: an id stays small enough for a header. A session whose client declares more ends with its replica.
func TestP4ALargeDeclarationIsLeftOut(t *testing.T) {
	a, b := two(t)
	id := a.ID(&sessionlog.Record{Says: json.RawMessage(`{"x":"` + strings.Repeat("a", 4<<10) + `"}`)})
	if len(id) > maxID || b.Opened(id) != nil {
		t.Errorf("an id of %d bytes", len(id))
	}
	if c, ok := b.open(id); !ok || c.Replica != a.replicas.Self() {
		t.Error("it does not say whose it is")
	}
}
