package remote

import (
	"context"
	"testing"

	"github.com/orla-project/orla/internal/call/turns"
)

// SPEC S2, N2: what waits to be told to a server that takes nothing is bounded in bytes, and
// shared by caller: one that answers at length does not keep another's answer out.
func TestS2BytesThatWaitToBeToldAreBounded(t *testing.T) {
	s := &session{shares: newShares(0)}
	s.Listen(func([]byte, int) {}, func(any) {})
	for id, who := range map[string]string{`"a"`: "ann", `"b"`: "bob"} {
		s.asked.add([]byte(id), turns.Owner{Caller: who, Session: who})
	}
	ctx, cancel := context.WithCancel(t.Context())
	never := make(chan struct{})
	answer := func(id string, size int) {
		s.later(ctx, ctx, message{text: make([]byte, size), id: []byte(id)}, never)
	}
	for range 64 {
		answer(`"a"`, 4<<20)
	}
	waits := s.untoldBytes.Taken()
	if waits > leastUntoldBytes {
		t.Errorf("%d MiB wait to be told", waits>>20)
	}
	answer(`"b"`, 4<<20)
	if s.untoldBytes.Taken() != waits+(4<<20) {
		t.Error("another caller's answer is dropped")
	}
	cancel()
	s.work.Wait()
	if n, bytes := s.untold.Taken(), s.untoldBytes.Taken(); n != 0 || bytes != 0 {
		t.Errorf("%d messages of %d bytes count when none waits", n, bytes)
	}
}
