package console

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
)

// How long something is good, and how many there are.
const (
	linkLife    = time.Minute
	maxLinks    = 16
	sessionIdle = 12 * time.Hour
	sessionLife = 7 * 24 * time.Hour
	maxSessions = 16   // of each guest
	maxAll      = 1024 // sessions of all guests
)

// digest is what is kept of a secret.
type digest [sha256.Size]byte

// access are the links that nobody has used yet, and the sessions. The zero value has none.
type access struct {
	mu       sync.Mutex // guards the fields that follow
	links    map[digest]link
	sessions map[digest]*session
}

// link lets one browser in.
type link struct {
	guest Guest
	until time.Time
}

// Guest is who has a session.
type Guest struct {
	Name     string   // who made the link, or the caller of a token
	Groups   []string // of the token
	Token    string   // changes with the token; "" for a link
	LoggedIn bool     // at the authorization server, for this page; the Console sets it
	Admits   int      // what the link allows, for whoever gave it out
}

// session is one browser that was let in.
type session struct {
	Guest
	token, key digest
	origin     string // of the page
	ends       time.Time
	entered    time.Time
	ctx        context.Context // of its requests
	end        context.CancelFunc

	mu      sync.Mutex // guards the fields that follow
	used    time.Time
	streams int
}

// secret returns 256 random bits as text.
func secret() string {
	var bits [32]byte
	_, _ = rand.Read(bits[:]) // it does not fail
	return base64.RawURLEncoding.EncodeToString(bits[:])
}

func digestOf(text string) digest { return sha256.Sum256([]byte(text)) }

// issue returns a code that is good once. The oldest of too many is dropped.
func (a *access) issue(g Guest, now time.Time) (code string, until time.Time) {
	code, until = secret(), now.Add(linkLife)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.links == nil {
		a.links = map[digest]link{}
	}
	a.links[digestOf(code)] = link{g, until}
	for len(a.links) > maxLinks {
		var oldest digest
		for one, l := range a.links {
			if first, ok := a.links[oldest]; !ok || l.until.Before(first.until) {
				oldest = one
			}
		}
		delete(a.links, oldest)
	}
	return code, until
}

// redeem returns whose link has a code, which is not good any more.
func (a *access) redeem(code string, now time.Time) (_ Guest, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	used := digestOf(code)
	l, ok := a.links[used]
	delete(a.links, used)
	return l.guest, ok && !now.After(l.until)
}

// enter makes a session, of which it returns both halves of the secret. It reports false if there are too many.
func (a *access) enter(g Guest, origin string, now, ends time.Time) (token, key string, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expireLocked(now)
	token, key = secret(), secret()
	s := &session{Guest: g, token: digestOf(token), key: digestOf(key), origin: origin, ends: now.Add(sessionLife), entered: now, used: now}
	if !ends.IsZero() && ends.Before(s.ends) {
		s.ends = ends
	}
	var least *session
	own := 0
	for _, one := range a.sessions {
		if one.Name == g.Name && (one.Token == "") == (g.Token == "") {
			if own++; least == nil || one.givesWayTo(least) {
				least = one
			}
		}
	}
	if own >= maxSessions {
		a.dropLocked(least)
	}
	if len(a.sessions) >= maxAll {
		return "", "", false
	}
	s.ctx, s.end = context.WithDeadline(context.Background(), s.ends)
	if a.sessions == nil {
		a.sessions = map[digest]*session{}
	}
	a.sessions[s.token] = s
	return token, key, true
}

// keep ends the sessions of guests who are not to have one any more.
func (a *access) keep(still func(Guest) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.sessions {
		if s.Token != "" && !still(s.Guest) {
			a.dropLocked(s)
		}
	}
}

// find returns the session of a token, which counts as a use; nil for none.
func (a *access) find(token string, now time.Time) *session {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expireLocked(now)
	s := a.sessions[digestOf(token)]
	if s != nil {
		s.mu.Lock()
		s.used = now
		s.mu.Unlock()
	}
	return s
}

// expireLocked ends the sessions that are too old. One with a stream is not idle.
func (a *access) expireLocked(now time.Time) {
	for _, s := range a.sessions {
		if now.After(s.ends) || now.Sub(s.lastUse()) > sessionIdle && !s.streaming() {
			a.dropLocked(s)
		}
	}
}

func (a *access) dropLocked(s *session) {
	delete(a.sessions, s.token)
	s.end()
}

// drop ends a session.
func (a *access) drop(s *session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dropLocked(s)
}

// clear ends all sessions and links.
func (a *access) clear() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.links = nil
	for _, s := range a.sessions {
		a.dropLocked(s)
	}
}

func (a *access) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.sessions)
}

// id distinguishes a session. It says nothing about its secrets.
func (s *session) id() string { return hex.EncodeToString(s.token[:]) }

// owner is who shares the places with others: a guest, with all sessions.
func (s *session) owner() turns.Owner {
	if s.Token == "" {
		return turns.Owner{Session: "link of " + s.Name}
	}
	return turns.Owner{Session: "token of " + s.Name}
}

// has reports whether a key is that of the session.
func (s *session) has(key string) bool {
	given := digestOf(key)
	return subtle.ConstantTimeCompare(given[:], s.key[:]) == 1
}

// givesWayTo reports whether a session is dropped before another. One that nobody has open goes first, and of those the one that was
// not used for longest. Of those that are open the newest goes: who keeps making links does not end what somebody looks at.
func (s *session) givesWayTo(other *session) bool {
	if open := s.streaming(); open != other.streaming() {
		return !open
	} else if open {
		return s.entered.After(other.entered)
	}
	return s.lastUse().Before(other.lastUse())
}

func (s *session) lastUse() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

func (s *session) streaming() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams > 0
}

// begin counts a stream. It reports false if there are too many. After a stream begun, done must be called.
func (s *session) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams >= maxOwn {
		return false
	}
	s.streams++
	return true
}

func (s *session) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams--
	s.used = time.Now()
}
