package mcpbridge_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/supervisor"
)

// slowCatalog is a catalog that takes a while to be looked at.
type slowCatalog struct {
	*catalog
	takes         atomic.Int64 // a time.Duration
	looks         atomic.Int32
	atOnce, worst atomic.Int32
}

func (c *slowCatalog) Catalog() *supervisor.Catalog {
	c.looks.Add(1)
	c.worst.Store(max(c.worst.Load(), c.atOnce.Add(1)))
	time.Sleep(time.Duration(c.takes.Load())) // in a bubble
	c.atOnce.Add(-1)
	return c.catalog.Catalog()
}

// SPEC S2, N2: where a capsule changes what it offers again and again, what clients follow is
// looked at one after the other, for a tenth of the time at most, and no longer than the
// bridge is served.
func TestS2NewCatalogsCostLittleOfWhatClientsFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &slowCatalog{catalog: newCatalog()}
		c.request(func(peer.Request) error { return nil })
		bridge := mcpbridge.New(c, mcpbridge.Options{Log: slog.New(slog.DiscardHandler)})
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = bridge.Serve(ctx)
		}()
		const followed, seconds = 200, 100
		for i := range followed {
			if err := bridge.Follow(t.Context(), fmt.Sprint("mem://", i)); err != nil {
				t.Fatal(err)
			}
		}
		c.takes.Store(int64(10 * time.Millisecond))
		c.looks.Store(0)
		for range seconds {
			c.set()
			time.Sleep(time.Second) // in a bubble
		}
		const others = 5 * seconds // looks for lists and levels
		if looks := c.looks.Load(); looks < 2*followed || looks > seconds*100/10*3/2+others {
			t.Errorf("%d looks of 10 ms in %d s", looks, seconds)
		}
		if worst := c.worst.Load(); worst > 3 {
			t.Errorf("%d looks at once", worst)
		}
		time.Sleep(time.Minute) // in a bubble
		c.set()
		time.Sleep(time.Second) // in a bubble: half of a look at all
		began := time.Now()
		end()
		<-ended
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("the bridge ended after %v", took)
		}
	})
}
