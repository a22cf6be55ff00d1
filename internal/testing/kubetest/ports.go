package kubetest

import (
	"net"
	"strconv"
	"testing"
)

// The ports of clusters are below those that the other tests and the system choose from. Each block has its own subnet
// for Pods (testdata/kube/cluster), of which there are so many.
const (
	firstPort = 16000
	blockSize = 16
	blocks    = 250
)

// holdPorts returns the first port of a block that is free, and keeps it for this test: whoever listens on the last port
// of a block has the block. The kernel frees it if the test is killed.
func holdPorts(t testing.TB) int {
	t.Helper()
	for first := firstPort; first < firstPort+blocks*blockSize; first += blockSize {
		hold, err := listen(first + blockSize - 1)
		if err != nil {
			continue // another test has it
		}
		if !unused(first) {
			_ = hold.Close() // left behind by a test that was killed
			continue
		}
		t.Cleanup(func() { _ = hold.Close() })
		return first
	}
	t.Fatalf("no sixteen ports from %d on are free", firstPort)
	return 0
}

// unused reports whether nothing listens on the ports of a block but the one that holds it.
func unused(first int) bool {
	for port := first; port < first+blockSize-1; port++ {
		l, err := listen(port)
		if err != nil {
			return false
		}
		_ = l.Close()
	}
	return true
}

func listen(port int) (net.Listener, error) {
	return net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))) //nolint:noctx // it does not wait
}
