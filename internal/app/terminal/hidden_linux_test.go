package terminal

import (
	"context"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/orla-project/orla/internal/testing/testkit"
)

// pty returns both ends of a terminal.
func pty(t *testing.T) (keyboard, screen *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("SKIPPED: no terminals here: %v", err)
	}
	t.Cleanup(func() { _ = keyboard.Close() })
	n, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	screen, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("SKIPPED: no terminals here: %v", err)
	}
	t.Cleanup(func() { _ = screen.Close() })
	return keyboard, screen
}

// SPEC M3: a secret that somebody types is not on the screen, and the terminal is afterwards as it was.
func TestM3SecretsAreNotShown(t *testing.T) {
	t.Parallel()
	keyboard, screen := pty(t)
	shows := func() bool {
		state, err := unix.IoctlGetTermios(int(screen.Fd()), unix.TCGETS)
		return err == nil && state.Lflag&unix.ECHO != 0
	}
	ctx, cancel := context.WithCancel(t.Context())
	type answer struct {
		line string
		ok   bool
	}
	said := make(chan answer, 1)
	ask := func() {
		line, ok := Hidden(ctx, screen)
		said <- answer{line, ok}
	}
	go ask()
	testkit.Eventually(t, "the terminal shows nothing", func() bool { return !shows() })
	if _, err := keyboard.WriteString("s3cret\n"); err != nil {
		t.Fatal(err)
	}
	if got := <-said; got != (answer{"s3cret", true}) || !shows() {
		t.Errorf("it is %+v, and the terminal shows: %v", got, shows())
	}
	go ask()
	testkit.Eventually(t, "the terminal shows nothing", func() bool { return !shows() })
	cancel()
	if got := <-said; got.ok || !shows() {
		t.Errorf("after its end it is %+v, and the terminal shows: %v", got, shows())
	}
	_, _ = keyboard.WriteString("\n") // ends the reader
}
