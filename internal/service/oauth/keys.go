package oauth

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

const (
	// refreshEvery is how often the keys are fetched. So long does a key that the issuer has withdrawn
	// remain valid.
	refreshEvery = 10 * time.Minute
	// The pauses after a failure: from firstPause, twice as long each time, up to longestPause.
	firstPause   = time.Second
	longestPause = time.Minute
	// askEvery is the least time between a fetch and the next one that a token causes.
	askEvery = 10 * time.Second
	// fetchPatience bounds a fetch.
	fetchPatience = 15 * time.Second

	maxTried   = 4    // keys that are tried for a token
	minRSABits = 2048 // (RFC 7518 §3.3)
)

// keys are the issuer's public keys. They are kept while the issuer cannot be reached.
type keys struct {
	issuer string
	fetch  func(context.Context) ([]jose.JSONWebKey, error)
	log    *slog.Logger
	asked  chan struct{} // holds one request to fetch

	mu     sync.Mutex // guards the fields that follow
	known  []jose.JSONWebKey
	count  int           // fetches that known is of
	other  int           // of these, those that brought other keys than the one before
	failed error         // of the last fetch
	ended  time.Time     // when the last fetch ended
	next   chan struct{} // closed when the fetch in progress, or else the next one, has ended
	busy   bool          // a fetch is in progress
}

func newKeys(issuer string, fetch func(context.Context) ([]jose.JSONWebKey, error), log *slog.Logger) *keys {
	return &keys{issuer: issuer, fetch: fetch, log: log, asked: make(chan struct{}, 1), next: make(chan struct{})}
}

// run fetches the keys at once, every refreshEvery, and when a token needs it, until ctx ends.
func (k *keys) run(ctx context.Context) {
	pause := firstPause
	for {
		err := k.refresh(ctx)
		if ctx.Err() != nil {
			return
		}
		wait := refreshEvery
		if err != nil {
			wait = pause + rand.N(pause/4)
			pause = min(2*pause, longestPause)
		} else {
			pause = firstPause
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-k.asked:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// refresh fetches the keys once.
func (k *keys) refresh(ctx context.Context) error {
	k.begin()
	limited, cancel := context.WithTimeout(ctx, fetchPatience)
	defer cancel()
	found, err := k.fetch(limited)
	if ctx.Err() != nil {
		return ctx.Err()
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	before, first := k.failed, k.count == 0
	k.failed, k.ended, k.busy = err, time.Now(), false
	if err == nil {
		if !sameKeys(found, k.known) {
			k.other++
		}
		k.known = found
		k.count++
	}
	close(k.next)
	k.next = make(chan struct{})
	switch {
	case err != nil && before == nil && first:
		k.log.Error("the issuer of access tokens cannot be asked for its keys; its tokens get 503 until it can", "issuer", k.issuer, "err", err)
	case err != nil && before == nil:
		k.log.Warn("the issuer of access tokens cannot be asked for its keys; the known ones stay in use", "issuer", k.issuer, "keys", len(k.known), "err", err)
	case err == nil && (before != nil || first):
		k.log.Info("the keys of the issuer of access tokens are known", "issuer", k.issuer, "keys", len(k.known))
	}
	return err
}

// sameKeys reports whether each of two lists has all keys of the other. Some issuers list them in another order each time.
func sameKeys(one, other []jose.JSONWebKey) bool {
	missing := func(from []jose.JSONWebKey) func(jose.JSONWebKey) bool {
		return func(key jose.JSONWebKey) bool {
			return !slices.ContainsFunc(from, func(one jose.JSONWebKey) bool { return reflect.DeepEqual(one, key) })
		}
	}
	return !slices.ContainsFunc(one, missing(other)) && !slices.ContainsFunc(other, missing(one))
}

// begin marks a fetch as in progress. Who has asked for one gets it.
func (k *keys) begin() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.busy = true
	select {
	case <-k.asked:
	default:
	}
}

// try has verify try the keys that may have signed a token. If there is none of this id, the keys are
// fetched once more, unless that was just done.
func (k *keys) try(ctx context.Context, id, algorithm string, verify func([]jose.JSONWebKey) ([]byte, *Refusal)) ([]byte, *Refusal) {
	for again := range 2 {
		candidates, fetch, current := k.find(id, algorithm)
		if payload, refused := verify(candidates); payload != nil || refused != nil {
			return payload, refused
		}
		if id != "" && len(candidates) > 0 {
			return nil, refusef("the token's signature is not valid")
		}
		if again == 0 {
			ended, asked := k.await(ctx, fetch)
			if ended {
				continue
			}
			current = current && !asked // the issuer was asked, and has not answered in time
		}
		if !current {
			return nil, &Refusal{Of: ErrUnavailable, Reason: "the issuer of access tokens cannot be reached; try again later"}
		}
		return nil, refusef("the token is not signed by a key of the issuer")
	}
	panic("unreachable: the second round does not wait")
}

// find returns the keys that may have signed a token, of which fetch they are, and whether the last fetch
// has succeeded.
func (k *keys) find(id, algorithm string) (candidates []jose.JSONWebKey, fetch int, current bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range k.known {
		if (id == "" || key.KeyID == id) && (key.Algorithm == "" || key.Algorithm == algorithm) && fits(key.Key, algorithm) && len(candidates) < maxTried {
			candidates = append(candidates, key)
		}
	}
	return candidates, k.count, k.count > 0 && k.failed == nil
}

// fetches returns how often the keys were fetched.
func (k *keys) fetches() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.count
}

// set returns which keys are known: another number after a fetch that brought others.
func (k *keys) set() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.other
}

// await waits until a fetch has ended that began after another one, if one may begin now. ended reports whether it has, and
// asked whether there was something to wait for.
func (k *keys) await(ctx context.Context, fetch int) (ended, asked bool) {
	if k.fetches() != fetch {
		return true, false // they have come since
	}
	next, due := k.ask()
	if !due {
		return k.fetches() != fetch, false
	}
	patience := time.NewTimer(fetchPatience)
	defer patience.Stop()
	select {
	case <-next:
		return true, true
	case <-patience.C:
	case <-ctx.Done():
	}
	return false, true
}

// ask asks for a fetch, unless one is in progress or has just ended. next is closed when it has ended.
func (k *keys) ask() (next <-chan struct{}, due bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.busy:
	case !k.ended.IsZero() && time.Since(k.ended) < askEvery:
		return nil, false
	default:
		k.busy = true
		k.asked <- struct{}{} // it has room: begin has emptied it
	}
	return k.next, true
}

// fits reports whether a key is of the type that an algorithm needs.
func fits(key any, algorithm string) bool {
	switch key := key.(type) {
	case *rsa.PublicKey:
		return algorithm[0] == 'R' || algorithm[0] == 'P'
	case *ecdsa.PublicKey:
		return strings.HasPrefix(algorithm, "ES") && ecBits[jose.SignatureAlgorithm(algorithm)] == key.Curve.Params().BitSize
	case ed25519.PublicKey:
		return algorithm == string(jose.EdDSA)
	}
	return false
}

// ecBits are the sizes of the curves that algorithms need (RFC 7518 §3.4).
var ecBits = map[jose.SignatureAlgorithm]int{jose.ES256: 256, jose.ES384: 384, jose.ES512: 521}

// usable returns a key as it verifies signatures, if it can.
func usable(key jose.JSONWebKey) (jose.JSONWebKey, bool) {
	public := key.Public() // empty for a symmetric key
	if key.Use != "" && key.Use != "sig" || !public.Valid() {
		return public, false
	}
	if key.Algorithm != "" && !slices.Contains(algorithms, jose.SignatureAlgorithm(key.Algorithm)) {
		return public, false
	}
	if r, ok := public.Key.(*rsa.PublicKey); ok && r.N.BitLen() < minRSABits {
		return public, false
	}
	return public, true
}
