// Package leaks fails the tests of a package that leave goroutines behind. Only tests
// import it.
package leaks

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long what ends may take to: a connection that was closed, say, on
// a busy machine. goleak alone waits for less than half a second.
const patience = 30 * time.Second

// Main runs the tests of a package and exits. It is what TestMain calls.
func Main(m *testing.M) { goleak.VerifyTestMain(patient{m}) }

// patient are tests that are over when their goroutines are, or should be.
type patient struct{ *testing.M }

// Run implements goleak.TestingM.
func (p patient) Run() int {
	code := p.M.Run()
	for began := time.Now(); code == 0 && goleak.Find() != nil && time.Since(began) < patience; {
		continue // it has waited
	}
	return code
}
