package supervisor_test

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/orla-project/orla/internal/testing/testkit"
	"github.com/orla-project/orla/supervisor"
)

// SPEC S1: many peers that change at the same time have one new catalog, and not each its own.
func TestS1ChangesAtTheSameTimeMakeOneCatalog(t *testing.T) {
	var made atomic.Int32
	begun, goOn := make(chan struct{}), make(chan struct{})
	s := supervisor.New(supervisor.Options{
		Log: slog.New(slog.DiscardHandler),
		Published: func(*supervisor.Catalog) {
			if made.Add(1) == 2 { // the first one is that of New
				close(begun)
				<-goOn
			}
		},
	})
	const peers = 50
	var all sync.WaitGroup
	all.Go(s.Refresh)
	<-begun
	before := s.Asked()
	for range peers {
		all.Go(s.Refresh)
	}
	testkit.Eventually(t, "all peers have asked", func() bool { return s.Asked() == before+peers })
	close(goOn)
	all.Wait()
	if got := made.Load(); got != 3 {
		t.Errorf("%d catalogs were made, not the first one, the one that was under way, and one for all %d peers", got, peers)
	}
}
