package sealed

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/cluster/documents"
	"github.com/orla-project/orla/internal/testing/kubetest"
	"github.com/orla-project/orla/mcpbridge/sessionlog"
)

// serve has a replica write what its clients set, until stop is called.
func serve(s *Sessions) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.Serve(ctx)
	}()
	return func() {
		cancel()
		<-over
	}
}

// set fails the test if a replica finds something else to be set in a session.
func set(t *testing.T, s *Sessions, id, level string, follows ...string) {
	t.Helper()
	var got sessionlog.Record
	s.Set(t.Context(), id, &got)
	if uris := slices.Sorted(maps.Keys(got.Follows)); got.Level != level || !slices.Equal(uris, follows) {
		t.Errorf("the level is %q, and it follows %q; want %q and %q", got.Level, uris, level, follows)
	}
}

func begun(s *Sessions) (id string) {
	return s.ID(&sessionlog.Record{Says: json.RawMessage(`{"protocolVersion":"2025-11-25"}`)})
}

// SPEC P4, Q2: another replica that goes on with a session knows its level and what it follows, and what the client sets there
// is known to the next one. The end of the session removes it. A session that sets nothing costs nothing.
func TestQ2AnotherReplicaKnowsWhatWasSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := new(kubetest.Objects)
		a, b := pair(t, api)
		stop := serve(a)
		id, other := begun(a), begun(a)
		a.SetLevel(id, "debug")
		a.Follow(id, "mem://a")
		a.Follow(id, "mem://b")
		a.Unfollow(id, "mem://a")
		synctest.Wait()
		if n := len(api.All()); n != 1 {
			t.Errorf("%d objects; want one", n)
		}
		set(t, b, other, "")
		set(t, b, id, "debug", "mem://b")
		stop()
		defer serve(b)()
		b.Follow(id, "mem://c")
		synctest.Wait()
		set(t, a, id, "debug", "mem://b") // it had it
		c, d := pair(t, api)
		set(t, c, id, "debug", "mem://b", "mem://c")
		b.Ended(id)
		b.Ended(other)
		synctest.Wait()
		set(t, d, id, "")
		if n := len(api.All()); n != 0 {
			t.Errorf("%d objects are left", n)
		}
	})
}

// SPEC P4: what is set while the API server is away is written when it is back, and what is set just before a stop at the stop.
// What another replica has written meanwhile is replaced: the session is here.
func TestP4WhatIsSetWhileTheAPIServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := new(kubetest.Objects)
		a, b := pair(t, api)
		id := begun(a)
		stopA, stopB := serve(a), serve(b)
		api.Away(true)
		a.SetLevel(id, "debug")
		time.Sleep(time.Minute)
		api.Away(false)
		time.Sleep(time.Minute)
		set(t, b, id, "debug")
		b.SetLevel(id, "error")
		synctest.Wait()
		a.SetLevel(id, "info")
		stopA()
		c, _ := pair(t, api)
		set(t, c, id, "info")
		stopB()
	})
}

// SPEC P4: a session that its client ended at a replica that has never had it leaves nothing.
func TestP4TheEndOfASessionOfAnotherReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := new(kubetest.Objects)
		a, b := pair(t, api)
		id := begun(a)
		a.Follow(id, "mem://a")
		serve(a)() // it is written at the stop
		if n := len(api.All()); n != 1 {
			t.Fatalf("%d objects; want one", n)
		}
		defer serve(b)()
		b.Ended(id)
		synctest.Wait()
		if n := len(api.All()); n != 0 {
			t.Errorf("%d objects are left", n)
		}
	})
}

// SPEC P4: a session that is ended once more, or in which something is set, while its end is being written leaves nothing, and
// ends nothing else.
func TestP4AChangeWhileTheEndIsWritten(t *testing.T) {
	api := new(kubetest.Objects)
	a, _ := pair(t, api)
	id := begun(a)
	a.Follow(id, "mem://a")
	serve(a)() // it is written at the stop
	a.Ended(id)
	again := sync.OnceFunc(func() {
		a.Ended(id)
		a.SetLevel(id, "debug")
	})
	for range 3 {
		err := a.wishes.writeFirst(t.Context(), func(string) documents.Owner {
			again()
			return documents.Owner{}
		})
		if err != nil {
			t.Error(err)
		}
	}
	if n := len(api.All()); n != 0 {
		t.Errorf("%d objects are left", n)
	}
	if a.wishes.known(id) || a.wishes.left() > 0 {
		t.Error("the session is remembered")
	}
}
