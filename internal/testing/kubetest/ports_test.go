package kubetest

import (
	"net"
	"sync"
	"testing"
)

// Clusters that start at the same time have ports of their own, and none has a port that is in use.
func TestBlocksOfPortsAreHeld(t *testing.T) {
	t.Parallel()
	const n = 8
	var all sync.WaitGroup
	got := make([]int, n)
	for i := range n {
		all.Go(func() { got[i] = holdPorts(t) })
	}
	all.Wait()
	seen := map[int]bool{}
	for _, first := range got {
		if first == 0 || first%blockSize != 0 || seen[first] {
			t.Errorf("blocks %v", got)
		}
		seen[first] = true
	}
	t.Run("in use", func(t *testing.T) {
		var busy, next int
		var l net.Listener
		for l == nil { // another program may take the block in between
			t.Run("held", func(t *testing.T) { busy = holdPorts(t) })
			l, _ = listen(busy + 3) // as a cluster does that outlived its test
		}
		defer func() { _ = l.Close() }()
		t.Run("next", func(t *testing.T) { next = holdPorts(t) })
		if next == busy {
			t.Errorf("block %d again", busy)
		}
	})
}
