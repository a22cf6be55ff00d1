package oauth

import (
	"crypto/sha256"
	"sync"
	"time"
)

// maxAccepted bounds the tokens whose check is remembered.
const maxAccepted = 1024

// accepted are tokens that were checked, by their hash: to check a signature takes longer than a small
// call. A token counts until it expires or the keys are fetched again. Its zero value is empty.
type accepted struct {
	mu    sync.Mutex // guards of
	of    map[[sha256.Size]byte]*Caller
	fetch int // which fetch of the keys all of them were checked by
}

// find returns who has a token that was accepted since a fetch of the keys; nil if it was not.
func (a *accepted) find(token [sha256.Size]byte, fetch int, now time.Time) *Caller {
	a.mu.Lock()
	defer a.mu.Unlock()
	caller := a.of[token]
	switch {
	case caller == nil || a.fetch != fetch:
		return nil
	case !now.Before(caller.Expires.Add(Skew)):
		delete(a.of, token)
		return nil
	case now.Before(caller.from.Add(-Skew)): // the clock was ahead, or was set back
		return nil
	}
	return caller
}

// add remembers a token that was accepted by the keys of a fetch.
func (a *accepted) add(token [sha256.Size]byte, fetch int, caller *Caller) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of == nil || a.fetch != fetch || len(a.of) >= maxAccepted {
		a.of, a.fetch = map[[sha256.Size]byte]*Caller{}, fetch
	}
	a.of[token] = caller
}
