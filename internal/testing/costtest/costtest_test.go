//go:build linux

package costtest_test

import (
	"os"
	"slices"
	"testing"

	"github.com/orla-project/orla/internal/testing/costtest"
)

var sink int

// Work in proportion passes.
func TestS1ProportionalWorkPasses(t *testing.T) {
	costtest.Check(t, 10_000, func(n int) func() {
		return func() {
			for i := range n {
				sink += i % 7
			}
			sink += len(slices.Repeat([]int{1}, n))
		}
	})
}

// A process's CPU time can be read from outside.
func TestCPUOfAProcess(t *testing.T) {
	if costtest.CPU(os.Getpid()) <= 0 {
		t.Error("this process has used no CPU time")
	}
	if costtest.CPU(1<<22+1) != 0 {
		t.Error("a process that does not exist has used CPU time")
	}
}
