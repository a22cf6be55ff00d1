package console

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"sync"
	"time"
)

// How long something is good, and how many there are.
const (
	linkLife    = time.Minute
	maxLinks    = 16
	sessionIdle = 12 * time.Hour
	sessionLife = 7 * 24 * time.Hour
	maxSessions = 16
)

// digest is what is kept of a secret.
type digest [sha256.Size]byte

// access are the links that nobody has used yet, and the sessions. The zero value has none.
type access struct {
	mu       sync.Mutex // guards the fields that follow
	links    map[digest]time.Time
	sessions map[digest]*session
}

// session is one browser that was let in.
type session struct {
	token, key digest
	ends       time.Time
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
func (a *access) issue(now time.Time) (code string, until time.Time) {
	code, until = secret(), now.Add(linkLife)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.links == nil {
		a.links = map[digest]time.Time{}
	}
	a.links[digestOf(code)] = until
	for len(a.links) > maxLinks {
		var oldest digest
		for one, end := range a.links {
			if at, ok := a.links[oldest]; !ok || end.Before(at) {
				oldest = one
			}
		}
		delete(a.links, oldest)
	}
	return code, until
}

// enter exchanges a code for a session, of which it returns both halves of the secret.
func (a *access) enter(code string, now time.Time) (token, key string, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	used := digestOf(code)
	until, ok := a.links[used]
	delete(a.links, used)
	if !ok || now.After(until) {
		return "", "", false
	}
	token, key = secret(), secret()
	s := &session{token: digestOf(token), key: digestOf(key), ends: now.Add(sessionLife), used: now}
	s.ctx, s.end = context.WithDeadline(context.Background(), s.ends)
	if a.sessions == nil {
		a.sessions = map[digest]*session{}
	}
	a.sessions[s.token] = s
	a.expireLocked(now)
	for len(a.sessions) > maxSessions {
		var least *session
		for _, one := range a.sessions {
			if one != s && (least == nil || one.lastUse().Before(least.lastUse())) {
				least = one
			}
		}
		a.dropLocked(least)
	}
	return token, key, true
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

// has reports whether a key is that of the session.
func (s *session) has(key string) bool {
	given := digestOf(key)
	return subtle.ConstantTimeCompare(given[:], s.key[:]) == 1
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
