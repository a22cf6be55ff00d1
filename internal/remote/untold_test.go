package remote

import (
	"context"
	"io"
	"net"
	"testing"

	"github.com/orla-project/orla/internal/turns"
)

// SPEC S2, N2: what waits to be told to a server that takes nothing is bounded in bytes, and
// shared by caller: one that answers at length does not keep another's answer out.
func TestS2BytesThatWaitToBeToldAreBounded(t *testing.T) {
	ours, theirs := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, theirs) }()
	defer func() { _, _ = ours.Close(), theirs.Close() }()
	s := &session{
		err: ours, tells: turns.NewShares(2 * maxTells), untold: turns.NewShares(2 * maxUntold),
		untoldBytes: turns.NewShares(leastUntoldBytes),
	}
	for id, who := range map[string]string{`"a"`: "ann", `"b"`: "bob"} {
		s.asked.add([]byte(id), turns.Line{Caller: who, Session: who})
	}
	ctx, cancel := context.WithCancel(t.Context())
	never := make(chan struct{})
	answer := func(id string, size int) {
		s.later(ctx, ctx, message{line: make([]byte, size), id: []byte(id)}, never)
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
