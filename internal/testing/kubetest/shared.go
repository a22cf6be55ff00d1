package kubetest

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
)

var (
	sharing sync.Mutex // guards the variables that follow, also while the shared cluster starts
	shared  *Cluster
	sharer  *keeper
)

// Shared is like Start, but returns the same cluster to all tests of a package, with what prepare has put into it once.
// Their TestMain calls Release. Each test keeps to namespaces of its own. One that ends or stops a process of the
// cluster starts a cluster of its own.
func Shared(t testing.TB, prepare func(*Cluster)) *Cluster {
	t.Helper()
	sharing.Lock()
	defer sharing.Unlock()
	if shared == nil {
		k := &keeper{TB: t}
		ready := false
		defer func() {
			if !ready {
				k.release()
			}
		}()
		c := start(k)
		prepare(c.of(t))
		ready = true
		shared, sharer = c, k
	}
	return shared.of(t)
}

// of returns the cluster for one test, which fails where its methods do.
func (c *Cluster) of(t testing.TB) *Cluster {
	one := *c
	one.t = t
	return &one
}

// Release ends the cluster that Shared has started. No test may use it any more.
func Release() {
	sharing.Lock()
	defer sharing.Unlock()
	if shared != nil {
		sharer.over = true
		sharer.release()
	}
	shared, sharer = nil, nil
}

// keeper stands for the test that starts what outlives it.
type keeper struct {
	testing.TB
	over bool // the test has ended: it can be told nothing
	last []func()
}

// Cleanup has f called by release.
func (k *keeper) Cleanup(f func()) { k.last = append(k.last, f) }

func (k *keeper) release() {
	for _, f := range slices.Backward(k.last) {
		f()
	}
}

func (k *keeper) Helper() {
	if !k.over {
		k.TB.Helper()
	}
}

func (k *keeper) Error(args ...any) {
	if k.over {
		_, _ = fmt.Fprintln(os.Stderr, args...)
		return
	}
	k.TB.Error(args...)
}

func (k *keeper) Errorf(format string, args ...any) { k.Error(fmt.Sprintf(format, args...)) }
