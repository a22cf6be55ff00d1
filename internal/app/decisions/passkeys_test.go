package decisions

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/approvals/passkey"
)

// SPEC-TOOLS 8.7: somebody may agree to a passkey for ten minutes, of each session to the newest one, and of all to 16.
func TestT87WhatWaitsForAgreementIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w wishes
		add := func(owner, session, key string) bool {
			now := time.Now()
			return w.add(wish{passkey.Key{Owner: owner, Public: passkey.Bytes(key)}, session, now.Add(wishLife)}, now) == nil
		}
		for i := range maxWishes {
			if !add("bob", fmt.Sprint(i), fmt.Sprint("key ", i)) {
				t.Fatalf("number %d is refused", i)
			}
		}
		if add("bob", "another", "a key") {
			t.Error("more wait than may")
		}
		if !add("bob", "3", "a newer key") || len(w.list(time.Now())) != maxWishes {
			t.Error("a session has no new one in place of the one it had")
		}
		if add("bob", "4", "a newer key") || add("ann", "a session", "a newer key") {
			t.Error("the same key waits twice")
		}
		waits := func(owner string) (n int) {
			for _, one := range w.list(time.Now()) {
				if one.key.Owner == owner {
					n++
				}
			}
			return n
		}
		for i := range maxWishes {
			add("ann", fmt.Sprint("ann ", i), fmt.Sprint("key of ann ", i))
		}
		if a, b := waits("ann"), waits("bob"); a != maxWishes/2 || b != maxWishes/2 {
			t.Errorf("of two who ask for as much as they can, one has %d and the other %d", a, b)
		}
		old := w.list(time.Now())[0]
		if !w.take(&old) || w.take(&old) {
			t.Error("one is taken never, or twice")
		}
		time.Sleep(wishLife + time.Second)
		if n := len(w.list(time.Now())); n != 0 {
			t.Errorf("after ten minutes %d wait", n)
		}
		if !add("bob", "another", "a key") {
			t.Error("there is no place after ten minutes")
		}
	})
}
