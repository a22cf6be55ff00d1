package testkit_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/orla-project/orla/internal/testing/testkit"
)

// A program that was just written runs, whatever else forks meanwhile.
func TestWriteProgram(t *testing.T) {
	dir := t.TempDir()
	var work sync.WaitGroup
	for i := range 8 {
		work.Go(func() {
			for j := range 40 {
				path := filepath.Join(dir, fmt.Sprintf("%d-%d", i, j))
				if err := testkit.WriteProgram(path, []byte("#!/bin/sh\n")); err != nil {
					t.Error(err)
				}
				if err := exec.Command(path).Run(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
}
