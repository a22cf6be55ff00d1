// Package sealed has the sessions of all replicas of a group in their ids (SPEC P4; docs/decisions/0052): the id of a
// session says which replica has it and what its client has declared, sealed with the key of the group. So any replica
// passes a request on to the replica that has its session, or goes on with a session whose replica has gone. What a client
// sets later is a document.
package sealed

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/cluster/documents"
	"github.com/orla-project/orla/internal/cluster/replicas"
	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/sessionlog"
	"github.com/orla-project/orla/mcpbridge/transport/passed"
	"github.com/orla-project/orla/mcpbridge/wire"
)

const (
	// maxID bounds an id in bytes. What a client has declared is left out of one that would be longer: its session
	// ends with its replica.
	maxID = 2 << 10
	// maxEnded bounds the sessions of other replicas that ended here and are remembered.
	maxEnded = 100_000
)

// Sessions implements passed.Elsewhere. Its methods may be called from any goroutine.
type Sessions struct {
	replicas *replicas.Replicas
	box      *replicas.Box
	wishes   *wishes

	mu    sync.Mutex // guards the fields that follow
	ended map[[sha256.Size]byte]struct{}
	older map[[sha256.Size]byte]struct{} // the previous generation
	going map[[sha256.Size]byte]struct{} // sessions of others that this replica may go on with
	used  map[string]int                 // how many of these began on each replica
}

// New returns the Sessions of a replica. docs are for what clients set in them; Unlock was called.
func New(r *replicas.Replicas, box *replicas.Box, docs *documents.Documents, log *slog.Logger) *Sessions {
	s := &Sessions{replicas: r, box: box, wishes: newWishes(docs, log), ended: map[[sha256.Size]byte]struct{}{}, going: map[[sha256.Size]byte]struct{}{}, used: map[string]int{}}
	r.KeepUsed(s.uses)
	return s
}

// Serve writes what clients set, until ctx ends.
func (s *Sessions) Serve(ctx context.Context) {
	s.wishes.serve(ctx, func(replica string) documents.Owner {
		name, uid := s.replicas.Lease(replica)
		return documents.Owner{Name: name, UID: uid}
	})
}

// SetLevel implements passed.Elsewhere.
func (s *Sessions) SetLevel(id, level string) { s.set(id, func(w *wish) { w.Level = level }) }

// Follow implements passed.Elsewhere.
func (s *Sessions) Follow(id, uri string) { s.set(id, func(w *wish) { w.Follows[uri] = true }) }

// Unfollow implements passed.Elsewhere.
func (s *Sessions) Unfollow(id, uri string) { s.set(id, func(w *wish) { delete(w.Follows, uri) }) }

func (s *Sessions) set(id string, change func(*wish)) {
	if c, ok := s.open(id); ok && c.Of != nil { // else no other replica goes on with it
		s.wishes.change(id, c.Replica, change)
	}
}

// Set implements passed.Elsewhere.
func (s *Sessions) Set(ctx context.Context, id string, to *sessionlog.Record) {
	if c, ok := s.open(id); ok {
		to.Level, to.Follows = s.wishes.read(ctx, id, c.Replica)
	}
}

// content is what an id says.
type content struct {
	Replica string             `json:"r"`
	Begun   int64              `json:"t"` // seconds
	Of      *sessionlog.Record `json:"s,omitempty"`
}

// ID implements passed.Elsewhere.
func (s *Sessions) ID(of *sessionlog.Record) string {
	c := content{Replica: s.replicas.Self(), Begun: time.Now().Unix(), Of: of}
	id := s.seal(c)
	if len(id) > maxID {
		c.Of = nil
		id = s.seal(c)
	}
	return id
}

func (s *Sessions) seal(c content) string {
	text, err := json.Marshal(c)
	if err != nil { // it was JSON before
		panic(err)
	}
	return s.box.Seal(text)
}

func (s *Sessions) open(id string) (c content, ok bool) {
	if len(id) > maxID {
		return c, false
	}
	text, ok := s.box.Open(id)
	return c, ok && json.Unmarshal(text, &c) == nil
}

// Opened implements passed.Elsewhere. A session of this replica is not one that it may go on with: if it is not
// known, it has ended. So has one of a replica that nobody remembers: nobody has gone on with it for a day, or it has ended.
func (s *Sessions) Opened(id string) *sessionlog.Record {
	c, ok := s.open(id)
	if !ok || c.Of == nil || c.Replica == s.replicas.Self() || s.hasEnded(id) || s.replicas.Forgotten(c.Replica) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := sha256.Sum256([]byte(id))
	if _, known := s.going[sum]; !known && len(s.going) < maxEnded {
		s.going[sum] = struct{}{}
		s.used[c.Replica]++
	}
	return c.Of
}

// uses reports whether this replica goes on with a session that began on another one.
func (s *Sessions) uses(replica string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used[replica] > 0
}

// Ended implements passed.Elsewhere.
func (s *Sessions) Ended(id string) {
	c, ok := s.open(id)
	if !ok {
		return
	}
	own := c.Replica == s.replicas.Self()
	if !own || s.wishes.known(id) {
		s.wishes.change(id, c.Replica, func(w *wish) { w.over = true })
	}
	if own {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ended) >= maxEnded/2 {
		s.ended, s.older = map[[sha256.Size]byte]struct{}{}, s.ended
	}
	sum := sha256.Sum256([]byte(id))
	s.ended[sum] = struct{}{}
	if _, known := s.going[sum]; known {
		delete(s.going, sum)
		if s.used[c.Replica]--; s.used[c.Replica] == 0 {
			delete(s.used, c.Replica)
		}
	}
}

func (s *Sessions) hasEnded(id string) bool {
	sum := sha256.Sum256([]byte(id))
	s.mu.Lock()
	defer s.mu.Unlock()
	_, now := s.ended[sum]
	_, before := s.older[sum]
	return now || before
}

// Home implements passed.Elsewhere.
func (s *Sessions) Home(ctx context.Context, id string) string {
	if id == "" {
		return s.unlessSelf(s.replicas.Heir("", rand.Text()))
	}
	c, ok := s.open(id)
	switch {
	case !ok:
		return ""
	case s.replicas.Known(ctx, c.Replica) && s.replicas.Lives(c.Replica):
		return s.unlessSelf(c.Replica)
	}
	return s.unlessSelf(s.replicas.Heir(c.Replica, id))
}

// NamedBy implements passed.Elsewhere.
func (s *Sessions) NamedBy(name string) string {
	of := mcpbridge.Replica(name)
	if of == "" || !s.replicas.Reaches(of) {
		return ""
	}
	return s.unlessSelf(of)
}

func (s *Sessions) unlessSelf(replica string) string {
	if replica == s.replicas.Self() {
		return ""
	}
	return replica
}

// Pass implements passed.Elsewhere.
func (s *Sessions) Pass(w http.ResponseWriter, r *http.Request, to string, by *passed.Caller, again http.Handler) {
	s.replicas.Pass(w, r, replicas.Passing{
		To: to, Sign: by.Sign, Again: again, Stream: wire.FirstHeader(r.Header, wire.MethodHeader) == wire.MethodListen,
	})
}
