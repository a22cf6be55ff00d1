package program

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/orla-project/orla/internal/app/systemd"
)

// SPEC K1: a program whose stderr is the journal's stream, as systemd says,
// speaks to journald unless told otherwise.
func TestK1StderrThatIsTheJournal(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(systemd.JournalSocket); err == nil {
		t.Skip("a journald runs here, and would get the lines; the test with a real systemd looks there")
	}
	for _, c := range []struct {
		name, stream string // stream is added to the socket's own
		args         []string
		prefix       string
	}{
		{"the journal", "", nil, "<6>{"},
		{"the journal, and a format of one's own", "", []string{"--log-format", "json"}, "{"},
		{"another stream", "1", nil, "{"},
	} {
		t.Run(c.name, func(t *testing.T) {
			fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
			defer func() { _ = ours.Close() }()
			var stat syscall.Stat_t
			if err := syscall.Fstat(fds[1], &stat); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(orlaBinary(t), append(c.args, "--port", "0", "--tools-dir", t.TempDir())...)
			cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), fmt.Sprintf("JOURNAL_STREAM=%d:%d%s", stat.Dev, stat.Ino, c.stream))
			cmd.Stderr = theirs
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			_ = theirs.Close()
			lines := bufio.NewScanner(ours)
			for lines.Scan() && !strings.Contains(lines.Text(), `"msg":"serving"`) {
			}
			if !strings.HasPrefix(lines.Text(), c.prefix) {
				t.Errorf("stderr has %q; want it to begin with %s", lines.Text(), c.prefix)
			}
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Error(err)
			}
			for lines.Scan() { // to its end
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// SPEC I2: where stderr is the journal, a start that fails is there once.
func TestI2StartThatFailsIsInTheJournalOnce(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	defer func() { _ = ours.Close() }()
	var stat syscall.Stat_t
	if err := syscall.Fstat(fds[1], &stat); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(orlaBinary(t), "--listen", taken.Addr().String(), "--tools-dir", t.TempDir())
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), fmt.Sprintf("JOURNAL_STREAM=%d:%d", stat.Dev, stat.Ino))
	cmd.Stderr = theirs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = theirs.Close()
	text, err := io.ReadAll(ours)
	if err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil || strings.Count(string(text), "in use") != 1 || !strings.Contains(string(text), "orla: ") {
		t.Errorf("%v, with\n%s", err, text)
	}
}
