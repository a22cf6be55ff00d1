package oauth

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// N2, S2: tokens are checked in the turns of the networks that they come from, a few at once and for half of the time.
func TestN2TokensAreCheckedInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecks(4)
		began := time.Now()
		check := func(network string) *Refusal {
			return c.inTurn(t.Context(), network, func() { time.Sleep(100 * time.Millisecond) })
		}
		var checking sync.WaitGroup
		for range 10 {
			checking.Go(func() {
				if refused := check("192.0.2.1"); refused != nil {
					t.Error(refused)
				}
			})
		}
		synctest.Wait()
		if refused := check("192.0.2.2"); refused != nil || time.Since(began) > 400*time.Millisecond {
			t.Errorf("another network waited %v: %v", time.Since(began), refused)
		}
		checking.Wait()
		if took := time.Since(began); took < time.Second {
			t.Errorf("11 checks of 100 ms took %v: two at once, for half of the time, take 1.1 s", took)
		}
	})
}

// N2: who has shown a good token does not wait for the tokens of strangers again, unless the issuer has other keys: a stranger can make
// Orla ask for them.
func TestN2AcceptedTokensStayAcceptedByTheSameKeys(t *testing.T) {
	m := newMaker(t, "a")
	keys := []jose.JSONWebKey{m.key(), newMaker(t, "other").key()}
	f := &fakeIssuer{keys: keys}
	within(t, f, func(t *testing.T, v *Verifier, _ *records) {
		synctest.Wait()
		token := m.token(t)
		if _, err := v.Verify(t.Context(), "192.0.2.2:1", token); err != nil {
			t.Fatal(err)
		}
		for n := range 3 {
			keys = []jose.JSONWebKey{keys[1], keys[0]} // in another order
			f.set(func() { f.keys = keys })
			time.Sleep(2 * askEvery)
			if _, err := v.Verify(t.Context(), "192.0.2.1:1", newMaker(t, fmt.Sprint(n)).token(t)); !errors.Is(err, ErrInvalid) {
				t.Error(err)
			}
		}
		if f.count() < 4 {
			t.Fatalf("the keys were fetched %d times", f.count())
		}
		time.Sleep(time.Second) // the places of the checks before are given back
		occupy(t, v)            // whoever has to wait waits for good
		if _, err := v.Verify(t.Context(), "192.0.2.2:1", token); err != nil {
			t.Errorf("a token that is known waits: %v", err)
		}
		f.set(func() { f.keys = []jose.JSONWebKey{newMaker(t, "b").key()} })
		v.checks = newChecks(1)
		time.Sleep(2 * refreshEvery)
		if _, err := v.Verify(t.Context(), "192.0.2.2:1", token); !errors.Is(err, ErrInvalid) {
			t.Errorf("its key is gone: %v", err)
		}
	})
}

// N2: a caller with many tokens, or with many spellings of one, makes no other one's be checked again.
func TestN2ManyTokensOfOneCallerForgetNobodyElses(t *testing.T) {
	var a accepted
	now := time.Now()
	of := func(n int) [32]byte { return [32]byte{byte(n), byte(n >> 8)} }
	ann, bob := &Caller{Subject: "ann", Expires: now.Add(time.Minute)}, &Caller{Subject: "bob", Expires: now.Add(time.Hour)}
	a.add([32]byte{31: 1}, 1, ann)
	for n := range 3 * maxAccepted {
		a.add(of(n), 1, bob)
	}
	if a.find([32]byte{31: 1}, 1, now) != ann {
		t.Error("the token of another caller was forgotten")
	}
	if a.find([32]byte{31: 1}, 1, now.Add(time.Hour)) != nil || len(a.of) != maxAccepted-1 || a.have["bob"] != len(a.of) || len(a.have) != 1 {
		t.Errorf("%d tokens are remembered, of %v", len(a.of), a.have)
	}
}

// N3: what cannot be checked in time is not said to be wrong.
func TestN3ABusyCheckIsNoRefusal(t *testing.T) {
	m := newMaker(t, "a")
	f := &fakeIssuer{keys: []jose.JSONWebKey{m.key()}}
	within(t, f, func(t *testing.T, v *Verifier, _ *records) {
		synctest.Wait()
		occupy(t, v)
		began := time.Now()
		if _, err := v.Verify(t.Context(), "", m.token(t)); !errors.Is(err, ErrUnavailable) || time.Since(began) != turnPatience {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// occupy takes all places of a Verifier's checks.
func occupy(t *testing.T, v *Verifier) {
	v.checks = newChecks(1)
	if !v.checks.door.Enter(t.Context(), "busy") {
		t.Fatal("there is no place")
	}
}
