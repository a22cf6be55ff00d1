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
		add := func(session, key string) bool {
			now := time.Now()
			return w.add(wish{passkey.Key{Public: passkey.Bytes(key)}, session, now.Add(wishLife)}, now)
		}
		for i := range maxWishes {
			if !add(fmt.Sprint(i), "a key") {
				t.Fatalf("number %d is refused", i)
			}
		}
		if add("another", "a key") {
			t.Error("more wait than may")
		}
		if !add("3", "a newer key") || len(w.list(time.Now())) != maxWishes {
			t.Error("a session has no new one in place of the one it had")
		}
		old := w.list(time.Now())[0]
		if !w.take(&old) || w.take(&old) {
			t.Error("one is taken never, or twice")
		}
		time.Sleep(wishLife + time.Second)
		if n := len(w.list(time.Now())); n != 0 {
			t.Errorf("after ten minutes %d wait", n)
		}
		if !add("another", "a key") {
			t.Error("there is no place after ten minutes")
		}
	})
}
