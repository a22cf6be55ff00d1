package oauth

import (
	"crypto/sha256"
	"sync"
	"time"
)

// maxAccepted bounds the tokens whose check is remembered.
const maxAccepted = 1024

// accepted are tokens that were checked, by their hash: to check a signature takes longer than a small
// call, and waits for its turn. A token counts until it expires or the issuer has other keys. For one more than maxAccepted, the
// caller that has the most loses the one that ends first: whoever has many tokens, or writes one in many ways, does not make others
// wait (SPEC N2). Its zero value is empty.
type accepted struct {
	mu   sync.Mutex // guards the fields that follow
	of   map[[sha256.Size]byte]*Caller
	have map[string]int // how many each caller has, by its subject
	set  int            // which keys all of them were checked by
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
		a.forgetLocked(token)
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
	if a.of == nil || a.set != set {
		a.of, a.have, a.set = map[[sha256.Size]byte]*Caller{}, map[string]int{}, set
	}
	a.forgetLocked(token) // two requests have shown it at once
	if len(a.of) >= maxAccepted {
		a.makeRoomLocked()
	}
	a.of[token] = caller
	a.have[caller.Subject]++
}

// makeRoomLocked forgets the token that ends first of the caller that has the most.
func (a *accepted) makeRoomLocked() {
	most := ""
	for subject, n := range a.have {
		if n > a.have[most] {
			most = subject
		}
	}
	var first [sha256.Size]byte
	for token, caller := range a.of {
		if caller.Subject == most && (a.of[first] == nil || caller.Expires.Before(a.of[first].Expires)) {
			first = token
		}
	}
	a.forgetLocked(first)
}

// forgetLocked forgets a token, if it is there.
func (a *accepted) forgetLocked(token [sha256.Size]byte) {
	caller := a.of[token]
	if caller == nil {
		return
	}
	delete(a.of, token)
	if a.have[caller.Subject]--; a.have[caller.Subject] == 0 {
		delete(a.have, caller.Subject)
	}
}
