package oauth

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// fakeIssuer gives keys without a network. It is used under a fake clock.
type fakeIssuer struct {
	mu      sync.Mutex
	keys    []jose.JSONWebKey
	down    bool
	hangs   bool
	fetched int
}

func (f *fakeIssuer) fetch(ctx context.Context) ([]jose.JSONWebKey, error) {
	f.mu.Lock()
	f.fetched++
	keys, down, hangs := f.keys, f.down, f.hangs
	f.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if down {
		return nil, errors.New("down")
	}
	return keys, nil
}

func (f *fakeIssuer) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeIssuer) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fetched
}

// records counts lines of the log by their level.
type records struct {
	slog.Handler
	mu sync.Mutex
	of map[slog.Level]int
}

func (r *records) Enabled(context.Context, slog.Level) bool { return true }

func (r *records) Handle(_ context.Context, line slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of[line.Level]++
	return nil
}

func (r *records) count(level slog.Level) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.of[level]
}

// maker signs tokens with keys that a fakeIssuer may have.
type maker struct {
	id   string
	priv ed25519.PrivateKey
}

func newMaker(t *testing.T, id string) maker {
	t.Helper()
	_, priv, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return maker{id, priv}
}

func (m maker) key() jose.JSONWebKey {
	return jose.JSONWebKey{Key: m.priv.Public(), KeyID: m.id, Algorithm: "EdDSA", Use: "sig"}
}

func (m maker) token(t *testing.T) string {
	t.Helper()
	return m.tokenUntil(t, time.Unix(99999999999, 0))
}

func (m maker) tokenUntil(t *testing.T, expires time.Time) string {
	t.Helper()
	return m.signed(t, fmt.Sprintf(`{"iss":"https://issuer","aud":"https://orla/mcp","sub":"ann","exp":%d}`, expires.Unix()))
}

// signed returns a token with claims.
func (m maker) signed(t *testing.T, claims string) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: jose.JSONWebKey{Key: m.priv, KeyID: m.id}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign([]byte(claims))
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// within runs a test with a Verifier under a fake clock.
func within(t *testing.T, f *fakeIssuer, test func(t *testing.T, v *Verifier, log *records)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		log := &records{of: map[slog.Level]int{}}
		v := newVerifier(Settings{Issuer: "https://issuer", PublicURL: "https://orla"}, f.fetch, slog.New(log))
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { v.Run(ctx) })
		defer running.Wait()
		defer cancel()
		test(t, v, log)
	})
}

// SPEC N3: an issuer that is down for an hour at the start is asked with pauses; the log has one line; its
// tokens are accepted as soon as it is there.
func TestN3DownAtTheStart(t *testing.T) {
	m := newMaker(t, "a")
	f := &fakeIssuer{keys: []jose.JSONWebKey{m.key()}, down: true}
	within(t, f, func(t *testing.T, v *Verifier, log *records) {
		token := m.token(t)
		for range 60 {
			if _, err := v.Verify(t.Context(), "", token); !errors.Is(err, ErrUnavailable) {
				t.Fatalf("while it is down: %v", err)
			}
			time.Sleep(time.Minute)
		}
		if n := f.count(); n < 60 || n > 140 {
			t.Errorf("it was asked %d times in an hour", n)
		}
		if n := log.count(slog.LevelError); n != 1 {
			t.Errorf("there are %d errors in the log", n)
		}
		f.set(func() { f.down = false })
		time.Sleep(askEvery)
		if _, err := v.Verify(t.Context(), "", token); err != nil {
			t.Errorf("when it is there: %v", err)
		}
		if n := log.count(slog.LevelInfo); n != 1 {
			t.Errorf("the log says %d times that it is there", n)
		}
	})
}

// SPEC N3: the known keys stay in use while the issuer is down, for a week if need be.
func TestN3DownLater(t *testing.T) {
	m, other := newMaker(t, "a"), newMaker(t, "b")
	f := &fakeIssuer{keys: []jose.JSONWebKey{m.key()}}
	within(t, f, func(t *testing.T, v *Verifier, log *records) {
		token, unknown := m.token(t), other.token(t)
		if _, err := v.Verify(t.Context(), "", token); err != nil {
			t.Fatal(err)
		}
		f.set(func() { f.down = true })
		for range 7 * 24 {
			time.Sleep(time.Hour)
			if _, err := v.Verify(t.Context(), "", token); err != nil {
				t.Fatal(err)
			}
			if _, err := v.Verify(t.Context(), "", unknown); !errors.Is(err, ErrUnavailable) {
				t.Fatalf("a key that may be new: %v", err)
			}
		}
		if n := log.count(slog.LevelWarn); n != 1 {
			t.Errorf("there are %d warnings in the log", n)
		}
		f.set(func() { f.down = false })
		time.Sleep(2 * longestPause)
		if _, err := v.Verify(t.Context(), "", unknown); !errors.Is(err, ErrInvalid) {
			t.Errorf("a key that is not the issuer's: %v", err)
		}
	})
}

// SPEC N3: an unknown key id has the keys fetched once, and no more than every ten seconds.
func TestN3UnknownKeysDoNotFlood(t *testing.T) {
	m := newMaker(t, "a")
	f := &fakeIssuer{keys: []jose.JSONWebKey{m.key()}}
	within(t, f, func(t *testing.T, v *Verifier, _ *records) {
		if _, err := v.Verify(t.Context(), "", m.token(t)); err != nil {
			t.Fatal(err)
		}
		young := newMaker(t, "young")
		f.set(func() { f.keys = []jose.JSONWebKey{m.key(), young.key()} })
		time.Sleep(askEvery)
		var asking sync.WaitGroup
		for range 50 {
			asking.Go(func() {
				if _, err := v.Verify(t.Context(), "", young.token(t)); err != nil {
					t.Error(err)
				}
			})
		}
		asking.Wait()
		if n := f.count(); n != 2 {
			t.Errorf("a new key: the issuer was asked %d times", n)
		}
		for range 600 {
			if _, err := v.Verify(t.Context(), "", newMaker(t, "forged").token(t)); !errors.Is(err, ErrInvalid) {
				t.Error(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if n := f.count(); n < 6 || n > 9 {
			t.Errorf("unknown keys for a minute: the issuer was asked %d times", n)
		}
	})
}

// SPEC N3: keys that come between the look for a key and the question for more are used.
func TestN3KeysThatComeMeanwhile(t *testing.T) {
	young := newMaker(t, "young")
	f := &fakeIssuer{keys: []jose.JSONWebKey{newMaker(t, "old").key()}}
	k := newKeys("https://issuer", f.fetch, slog.New(slog.DiscardHandler))
	if err := k.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	payload, refused := k.try(t.Context(), "young", "EdDSA", func(candidates []jose.JSONWebKey) ([]byte, *Refusal) {
		if len(candidates) > 0 {
			return []byte("verified"), nil
		}
		f.set(func() { f.keys = []jose.JSONWebKey{young.key()} })
		if err := k.refresh(t.Context()); err != nil { // for another token
			t.Error(err)
		}
		return nil, nil
	})
	if string(payload) != "verified" {
		t.Errorf("the key is not used: %v", refused)
	}
}

// SPEC N3: a key that the issuer withdraws is not accepted for longer than until the next fetch.
func TestN3WithdrawnKeys(t *testing.T) {
	m := newMaker(t, "a")
	f := &fakeIssuer{keys: []jose.JSONWebKey{m.key()}}
	within(t, f, func(t *testing.T, v *Verifier, _ *records) {
		token := m.token(t)
		if _, err := v.Verify(t.Context(), "", token); err != nil {
			t.Fatal(err)
		}
		f.set(func() { f.keys = []jose.JSONWebKey{newMaker(t, "b").key()} })
		time.Sleep(refreshEvery + time.Second)
		if _, err := v.Verify(t.Context(), "", token); !errors.Is(err, ErrInvalid) {
			t.Errorf("a withdrawn key: %v", err)
		}
	})
}

// SPEC N3: a token that was accepted once is refused when it has expired.
func TestN3AcceptedTokensExpire(t *testing.T) {
	m := newMaker(t, "a")
	f := &fakeIssuer{keys: []jose.JSONWebKey{m.key()}}
	within(t, f, func(t *testing.T, v *Verifier, _ *records) {
		token := m.tokenUntil(t, time.Now().Add(5*time.Minute))
		for range 10 {
			if _, err := v.Verify(t.Context(), "", token); err != nil {
				t.Fatal(err)
			}
			time.Sleep(32900 * time.Millisecond) // in all 5 min 29 s, of which 30 s are the skew
		}
		if _, err := v.Verify(t.Context(), "", token); err != nil {
			t.Errorf("within the skew: %v", err)
		}
		time.Sleep(time.Second)
		if _, err := v.Verify(t.Context(), "", token); !errors.Is(err, ErrInvalid) {
			t.Errorf("an expired token: %v", err)
		}
	})
}

// SPEC N3: which keys of a document are used. The others do no harm.
func TestN3KeysInADocument(t *testing.T) {
	m := newMaker(t, "good")
	raw, err := json.Marshal(m.key())
	if err != nil {
		t.Fatal(err)
	}
	withMore := func(more string) string { return string(raw[:len(raw)-1]) + "," + more + "}" }
	short, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	weak, err := json.Marshal(jose.JSONWebKey{Key: short.Public(), KeyID: "weak"})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		keys string
		want int
	}{
		"one":                   {string(raw), 1},
		"among others":          {`{}, {"kty":"OKP","crv":"Ed448","x":"AA"}, {"kty":"AKP","alg":"x"}, {"kty":1}, ` + string(raw), 1},
		"odd certificates":      {withMore(`"x5c":["AAAA"],"x5t":"x","x5t#S256":"x","x5u":":"`), 1},
		"symmetric":             {`{"kty":"oct","k":"c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0","alg":"HS256"}`, 0},
		"none":                  {``, 0},
		"a short RSA key":       {string(weak), 0},
		"for another algorithm": {`{"kty":"RSA","n":"` + strings.Repeat("v", 342) + `","e":"AQAB","alg":"RSA-OAEP"}`, 0},
		"an RSA key":            {`{"kty":"RSA","n":"` + strings.Repeat("v", 342) + `","e":"AQAB","alg":"RS256"}`, 1},
		"too many":              {strings.Repeat(string(raw)+",", 200) + string(raw), maxKeys},
	} {
		found, err := parseKeys([]byte(`{"keys":[` + test.keys + `]}`))
		if len(found) != test.want || (err == nil) != (test.want > 0) {
			t.Errorf("%s: %d keys, %v, want %d", name, len(found), err, test.want)
		}
	}
	for _, document := range []string{``, `[]`, `{"keys":{}}`, `{"keys":[1]}`, `null`} {
		if found, err := parseKeys([]byte(document)); err == nil {
			t.Errorf("%s: %d keys", document, len(found))
		}
	}
}

// What is remembered of tokens is bounded, and is not of older keys or of another token.
func TestAcceptedTokensAreBounded(t *testing.T) {
	var a accepted
	of := func(n int) [32]byte { return [32]byte{byte(n), byte(n >> 8)} }
	caller := &Caller{Subject: "ann", Expires: time.Now().Add(time.Hour)}
	for n := range 10 * maxAccepted {
		a.add(of(n), 1, caller)
	}
	if len(a.of) > maxAccepted {
		t.Errorf("%d tokens are remembered", len(a.of))
	}
	last := of(10*maxAccepted - 1)
	if a.find(last, 1, time.Now()) != caller || a.find(last, 2, time.Now()) != nil || a.find([32]byte{31: 1}, 1, time.Now()) != nil {
		t.Error("the wrong tokens are found")
	}
}

// SPEC N3: an issuer that does not answer holds a request no longer than the patience, and others not at
// all.
func TestN3AnIssuerThatHangs(t *testing.T) {
	m := newMaker(t, "a")
	f := &fakeIssuer{hangs: true}
	within(t, f, func(t *testing.T, v *Verifier, _ *records) {
		began := time.Now()
		if _, err := v.Verify(t.Context(), "", m.token(t)); !errors.Is(err, ErrUnavailable) {
			t.Error(err)
		}
		if took := time.Since(began); took > fetchPatience {
			t.Errorf("it took %v", took)
		}
		if _, err := v.Verify(t.Context(), "", "x"); !errors.Is(err, ErrInvalid) {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		time.Sleep(2 * time.Second)
		began = time.Now()
		_, _ = v.Verify(ctx, "", m.token(t)) // the client has left
		if took := time.Since(began); took > time.Second {
			t.Errorf("a client that has left was held for %v", took)
		}
	})
}
