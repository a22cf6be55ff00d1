package systemd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"strconv"
	"strings"
	"time"
)

const (
	// maxSaid bounds what is kept of journalctl's messages.
	maxSaid = 4 << 10
	// lookTime is how long one reading of the journal may take.
	lookTime = 2 * time.Minute
)

// The errors of reading the journal.
var (
	ErrNoJournalctl = errors.New("journalctl is not installed")
	ErrForbidden    = errors.New("the user that runs Orla may not read the journal")
)

// JournalQuery selects entries of the journal.
type JournalQuery struct {
	// Unit is the unit that wrote them, as OwnUnit returns it; none stands for this process.
	Unit Unit
	// Since is the time of the first one; entries of up to a second before may come, too.
	Since time.Time
	// Newest begins with the newest entry.
	Newest bool
}

// Unit is a unit of systemd. The zero value is none.
type Unit struct {
	Name string
	User bool // it is one of a user's own systemd
}

// OwnUnit returns the service that this process belongs to.
func OwnUnit() Unit {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil { // without /proc there is no systemd
		return Unit{}
	}
	return unitOf(string(text))
}

// unitOf returns the service in the text of /proc/PID/cgroup: the innermost unit, if it is a service of its own. Neither a
// scope is one, nor the service in which all of a user's units are: others are there, too.
func unitOf(text string) (u Unit) {
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 || parts[0] != "0" && parts[1] != "name=systemd" {
			continue
		}
		for dir := parts[2]; dir != "/" && dir != "."; dir = path.Dir(dir) {
			name := path.Base(dir)
			switch {
			case !isUnit(name):
			case u.Name == "" && (strings.HasSuffix(name, ".scope") || strings.HasPrefix(name, "user@")):
				return Unit{}
			case u.Name == "":
				u.Name = name
			case strings.HasPrefix(name, "user@"):
				u.User = true
			}
		}
	}
	return u
}

// args are the arguments of journalctl for a query.
func (q *JournalQuery) args() []string {
	args := []string{"--output=json", "--all", "--no-pager", "--since=@" + strconv.FormatInt(q.Since.Unix(), 10), "SYSLOG_IDENTIFIER=orla"}
	switch {
	case q.Unit.Name == "":
		args = append(args, "_PID="+strconv.Itoa(os.Getpid()))
	case q.Unit.User:
		args = append(args, "_SYSTEMD_USER_UNIT="+q.Unit.Name, "_UID="+strconv.Itoa(os.Getuid()))
	default:
		args = append(args, "_SYSTEMD_UNIT="+q.Unit.Name)
	}
	if q.Newest {
		args = append([]string{"--reverse"}, args...)
	}
	return args
}

// ReadJournal calls read with the entries of Orla that q selects, each as one line of JSON, as journalctl writes it. read need
// not read all of it. The error is read's, or says why the journal cannot be read: ErrNoJournalctl, ErrForbidden, or what
// journalctl says.
func ReadJournal(ctx context.Context, q JournalQuery, read func(io.Reader) error) error {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	said := &firstBytes{left: maxSaid}
	cmd := exec.CommandContext(ctx, "journalctl", q.args()...) //nolint:gosec // without a shell; a unit's name is one argument
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "SYSTEMD_COLORS=0", "SYSTEMD_LESSCHARSET=utf-8"}
	cmd.Stderr, cmd.WaitDelay = said, time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("journalctl: %w", err)
	}
	if err := cmd.Start(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return ErrNoJournalctl
		}
		return fmt.Errorf("journalctl: %w", err)
	}
	readErr := read(out)
	_, more := io.ReadFull(out, make([]byte, 1)) // whether read has left something
	if more == nil {
		cancel()
	}
	err = cmd.Wait()
	switch {
	case readErr != nil || more == nil:
		return readErr
	case said.has("insufficient permissions"), said.has("not seeing messages from other users"):
		return ErrForbidden
	case ctx.Err() != nil:
		return fmt.Errorf("journalctl: %w", context.Cause(ctx))
	case err != nil:
		return fmt.Errorf("journalctl: %w: %s", err, bytes.TrimSpace(said.bytes))
	}
	return nil
}

// firstBytes keeps the first bytes that are written.
type firstBytes struct {
	bytes []byte
	left  int
}

// Write implements io.Writer.
func (f *firstBytes) Write(p []byte) (int, error) {
	n := min(len(p), f.left)
	f.bytes, f.left = append(f.bytes, p[:n]...), f.left-n
	return len(p), nil
}

func (f *firstBytes) has(text string) bool { return bytes.Contains(f.bytes, []byte(text)) }
