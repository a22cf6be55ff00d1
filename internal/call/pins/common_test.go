package pins_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/pins"
	"github.com/orla-project/orla/internal/cluster/documents"
	"github.com/orla-project/orla/internal/cluster/replicas"
	"github.com/orla-project/orla/internal/testing/kubetest"
	"github.com/orla-project/orla/manifest"
)

// share makes a Store a replica's.
func share(t *testing.T, s *pins.Store, api *kubetest.Objects, review func(string)) {
	t.Helper()
	s.Share(documents.New(documents.Options{
		Client: kubetest.Client(t, api), Namespace: "ops", Group: "orla", Part: "pins", Log: slog.New(slog.DiscardHandler),
		Key: func(context.Context) (*replicas.Box, error) { return replicas.NewBox(bytes.Repeat([]byte{1}, 32)) },
	}), review)
	t.Cleanup(s.Close)
}

// newReplica is a world of a replica, whose folder of tools is its own. review compares the last list again.
func newReplica(t *testing.T, api *kubetest.Objects, reviewed func()) *world {
	t.Helper()
	w := newWorld(t, manifest.PinHold)
	w.dir = ""
	w.Store = pins.NewStore("", slog.New(slog.DiscardHandler))
	share(t, w.Store, api, func(of string) {
		if of == w.tool.Name {
			reviewed()
		}
	})
	w.of = w.Of(w.tool)
	return w
}

// SPEC N4, P4: of several replicas one accepts the first list, and the others compare with that. What is accepted at one
// is accepted at all, which are told.
func TestP4AllReplicasAcceptTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := new(kubetest.Objects)
		var told [2]int
		a := newReplica(t, api, func() { told[0]++ })
		b := newReplica(t, api, func() { told[1]++ })
		synctest.Wait()
		var held [2]states
		var both sync.WaitGroup
		both.Go(func() { held[0] = a.list(texts{"add": "a"}) })
		both.Go(func() { held[1] = b.list(texts{"add": "b"}) })
		both.Wait()
		if (held[0]["add"] == pins.Changed) == (held[1]["add"] == pins.Changed) || len(held[0])+len(held[1]) != 1 || len(api.All()) != 1 {
			t.Fatalf("held at the two: %v; %d objects", held, len(api.All()))
		}
		synctest.Wait()
		told = [2]int{}
		a.holds("one of both", texts{"add": "c"}, states{"add": pins.Changed})
		b.holds("one of both", texts{"add": "c"}, states{"add": pins.Changed})
		if _, err := a.Approve("notes", "", "uid 1"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if told[1] == 0 {
			t.Error("the other replica was not told")
		}
		b.holds("accepted elsewhere", texts{"add": "c", "more": "m"}, states{"more": pins.New})
		if view := b.All(nil); len(view) != 1 || view[0].Items[0].By != "uid 1" {
			t.Errorf("it was accepted by %+v", view)
		}
		api.Away(true)
		if _, err := b.Approve("notes", "", "uid 1"); err == nil {
			t.Error("accepted without the API server")
		}
		b.holds("without the API server", texts{"add": "c", "more": "m"}, states{"more": pins.New})
		late := newReplica(t, api, func() {})
		late.list(texts{"add": "c"})
		if held := late.of.Compare(nil, nil); held.Unusable() == nil || !strings.Contains(held.Unusable().Error(), "API server") {
			t.Errorf("a replica that starts without the API server: %v", held.Unusable())
		}
		api.Away(false)
		time.Sleep(time.Minute)
		late.holds("when it is back", texts{"add": "c", "more": "m"}, states{"more": pins.New})
	})
}

// SPEC P4: pins that are too large for an object are kept without their definitions.
func TestP4ManyPinsFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := new(kubetest.Objects)
		a := newReplica(t, api, func() {})
		b := newReplica(t, api, func() {})
		many := texts{}
		for i := range 4000 {
			many[fmt.Sprint("tool", i)] = strings.Repeat(fmt.Sprint(i*i), 1+i%300)
		}
		a.holds("the first list", many, states{})
		synctest.Wait()
		b.holds("the same", many, states{})
		many["tool7"] = "other"
		b.holds("one has changed", many, states{"tool7": pins.Changed})
	})
}
