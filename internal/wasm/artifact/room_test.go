package artifact_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/internal/wasm/artifact"
)

// hanging is a server that sends so many bytes of a module, and then nothing.
func hanging(t *testing.T, size int) (s *server, arrived chan struct{}) {
	t.Helper()
	arrived = make(chan struct{}, 100)
	part := string(module(strings.Repeat("x", 100)))
	part += strings.Repeat("x", max(0, size-len(part)))
	return newServer(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, part)
		w.(http.Flusher).Flush()
		arrived <- struct{}{}
		<-r.Context().Done()
	}), arrived
}

// begin begins fetches of so many modules of a server that hangs, which end with the test.
func (f *fixture) begin(t *testing.T, s *server, arrived <-chan struct{}, fetches int) {
	t.Helper()
	over := errors.New("the test is over")
	ctx, cancel := context.WithCancelCause(t.Context())
	var wg sync.WaitGroup
	t.Cleanup(func() {
		cancel(over)
		wg.Wait()
	})
	for i := range fetches {
		wg.Go(func() {
			if _, err := f.Fetch(ctx, fmt.Sprintf("%s/%d.wasm", s.URL, i), "", secret.Ref{}); ctx.Err() == nil {
				t.Errorf("a fetch ends with %v", err)
			}
		})
	}
	for range fetches {
		select {
		case <-arrived:
		case <-time.After(10 * time.Second):
			t.Fatal("fetches of a server that hangs keep others waiting")
		}
	}
}

// within fetches what must be there within some time, whoever else hangs.
func (f *fixture) within(t *testing.T, address string, want []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if got, err := f.Fetch(ctx, address, "", secret.Ref{}); err != nil || string(got) != string(want) {
		t.Errorf("got %d bytes and %v, want %d", len(got), err, len(want))
	}
}

// SPEC S2: servers that hang keep no others from being asked, neither for what is new nor
// for what was fetched before.
func TestS2ServersThatHangKeepNobodyWaiting(t *testing.T) {
	bad, arrived := hanging(t, 0)
	good := newServer(t, func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(module(r.URL.Path)) })
	f := newStore(t, artifact.Options{})
	f.want(t, good.URL+"/kept", "", secret.Ref{}, module("/kept"))
	f.age(t)
	f.begin(t, bad, arrived, 8)
	f.within(t, good.URL+"/kept", module("/kept"))
	f.within(t, good.URL+"/new", module("/new"))
}

// SPEC N2: what is read of modules together is bounded, and the modules of one host leave
// room for those of another.
func TestN2ModulesOfOneHostLeaveRoomForOthers(t *testing.T) {
	const size = 1 << 20
	bad, arrived := hanging(t, size-1)
	large := module(strings.Repeat("x", 100))
	large = append(large, make([]byte, size*3/4)...)
	good := newServer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(large) })
	f := newStore(t, artifact.Options{MaxBytes: size})
	all := f.Free()
	f.begin(t, bad, arrived, 16)
	for deadline := time.Now().Add(10 * time.Second); f.Free() > all*2/3; {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes of %d are free: what is read is not counted", f.Free(), all)
		}
		time.Sleep(time.Millisecond)
	}
	f.within(t, good.URL, large)
	if free := f.Free(); free < all/2 {
		t.Errorf("one host leaves %d bytes of %d free", free, all)
	}
}

// What was read is held no longer when its fetch is over.
func TestS2WhatWasFetchedGivesItsRoomBack(t *testing.T) {
	large := append(module("x"), make([]byte, 1<<20)...)
	good := newServer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(large) })
	f := newStore(t, artifact.Options{})
	all := f.Free()
	f.within(t, good.URL, large)
	if free := f.Free(); free != all {
		t.Errorf("%d bytes of %d are free", free, all)
	}
}

// SPEC S2: what is kept is not read before there is room for it either, and counts once.
func TestS2KeptModulesWaitForRoom(t *testing.T) {
	large := append(module("x"), make([]byte, 1<<20)...)
	good := newServer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(large) })
	f := newStore(t, artifact.Options{})
	f.within(t, good.URL, large)
	all := f.Free()
	ctx, release := f.room.Open(t.Context(), turns.Owner{Session: "one"})
	if _, err := f.Store.Fetch(ctx, good.URL, "", secret.Ref{}); err != nil || all-f.Free() < 1<<20-turns.Little || all-f.Free() > 3<<19 {
		t.Errorf("%v; %d bytes are held", err, all-f.Free())
	}
	release()
	var others []func()
	for range 2 { // the second goes beyond the limit
		ctx, release := f.room.Open(t.Context(), turns.Owner{Session: "other"})
		others = append(others, release)
		if err := turns.AccountOf(ctx).Need(ctx, all+turns.Little); err != nil {
			t.Fatal(err)
		}
	}
	waiting, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, fault.New(fault.Timeout, "it waited"))
	defer cancel()
	if _, err := f.Fetch(waiting, good.URL, "", secret.Ref{}); fault.CodeOf(err) != fault.Timeout {
		t.Errorf("got %v without room", err)
	}
	for _, release := range others {
		release()
	}
	f.within(t, good.URL, large)
}

// What is thrown away while its server is asked whether it has changed is fetched by the next call.
func TestT37WhatIsThrownAwayMeanwhileIsFetchedAgain(t *testing.T) {
	var f *fixture
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") != "" {
			if err := os.RemoveAll(filepath.Join(f.dir, "blobs", "sha256")); err != nil {
				t.Error(err)
			}
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("ETag", `"1"`)
		_, _ = w.Write(module("one"))
	})
	f = newStore(t, artifact.Options{})
	f.want(t, s.URL, "", secret.Ref{}, module("one"))
	f.age(t)
	if why := f.refuse(t, s.URL, "", secret.Ref{}, fault.ExecutionFailed, "gone"); !why.Retryable() {
		t.Errorf("%v may not be tried again", &why)
	}
	f.want(t, s.URL, "", secret.Ref{}, module("one"))
}
