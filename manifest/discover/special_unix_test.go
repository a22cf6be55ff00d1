//go:build unix

package discover_test

import (
	"syscall"
	"testing"

	"github.com/orla-project/orla/internal/testing/manifesttest"
)

// fifo makes a FIFO. Opening it for reading waits for a writer that never comes.
func fifo(t *testing.T, file string) {
	t.Helper()
	if i := len(file) - len("/tool.yaml"); i > 0 && file[i:] == "/tool.yaml" {
		manifesttest.Write(t, file[:i], "run.sh", "#!/bin/sh\n", 0o755)
	}
	if err := syscall.Mkfifo(file, 0o755); err != nil {
		t.Fatal(err)
	}
}
