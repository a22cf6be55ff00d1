package oauth

import (
	"crypto/sha256"
	"sync"
	"time"
)

// maxAccepted bounds the tokens whose check is remembered.
const maxAccepted = 1024

// accepted are tokens that were checked, by their hash: to check a signature takes longer than a small
// call. A token counts until it expires or the issuer has other keys. Its zero value is empty.
type accepted struct {
	mu  sync.Mutex // guards of and set
	of  map[[sha256.Size]byte]*Caller
	set int // which keys all of them were checked by
}

// find returns who has a token that was accepted by a set of keys; nil if it was not.
func (a *accepted) find(token [sha256.Size]byte, set int, now time.Time) *Caller {
	a.mu.Lock()
	defer a.mu.Unlock()
	caller := a.of[token]
	switch {
	case caller == nil || a.set != set:
		return nil
	case !now.Before(caller.Expires.Add(Skew)):
		delete(a.of, token)
		return nil
	case now.Before(caller.from.Add(-Skew)): // the clock was ahead, or was set back
		return nil
	}
	return caller
}

// add remembers a token that was accepted by a set of keys.
func (a *accepted) add(token [sha256.Size]byte, set int, caller *Caller) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of == nil || a.set != set || len(a.of) >= maxAccepted {
		a.of, a.set = map[[sha256.Size]byte]*Caller{}, set
	}
	a.of[token] = caller
}
