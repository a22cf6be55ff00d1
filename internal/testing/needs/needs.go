// Package needs finds what tests need of the machine that they run on: programs,
// and the clients and servers of others that scripts/clients installs. Only
// tests import it.
//
// A test whose needs are not met is skipped with the reason, unless
// ORLA_TEST_CLIENTS=require: where CI runs, it fails.
package needs

import (
	"os"
	"os/exec"
	"strconv"
	"testing"
)

// Programs returns if all of them are in PATH.
func Programs(t testing.TB, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			Missing(t, "there is no %s", program)
		}
	}
}

// Root returns if the test runs as root; why says what only root can.
func Root(t testing.TB, why string) {
	t.Helper()
	if os.Geteuid() != 0 {
		Missing(t, "only root can %s", why)
	}
}

// Time skips the test if only the quick ones are to be run; why says what takes long.
func Time(t testing.TB, why string) {
	t.Helper()
	if testing.Short() {
		t.Skipf("SKIPPED: it %s", why)
	}
}

// Rounds returns how often a test repeats what is random: usual, or quick if only the quick
// tests are to be run. ORLA_TEST_ROUNDS says how many times as often as usual.
func Rounds(quick, usual int) int {
	if testing.Short() {
		return quick
	}
	return times() * usual
}

// More reports whether ORLA_TEST_ROUNDS asks for more than the usual run has: what costs much
// and is hardly ever the only test to fail is tested then.
func More() bool { return times() > 1 }

func times() int {
	n, err := strconv.Atoi(os.Getenv("ORLA_TEST_ROUNDS"))
	if err != nil {
		return 1
	}
	return max(n, 1)
}

// Missing ends a test because something is not there.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("ORLA_TEST_CLIENTS") == "require" {
		t.Fatalf(format, args...)
	}
	t.Skipf("SKIPPED: "+format, args...)
}
