package daemon

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/listen"
	"github.com/orla-project/orla/internal/app/version"
	"github.com/orla-project/orla/internal/app/wiring"
	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/carry"
	"github.com/orla-project/orla/internal/observe/brief"
)

// stateVersion is the version of the document that one program gives to the next (docs/decisions/0051). Fields may be
// added to a version; any other change makes a new one, and this release has to read the one before as well.
const stateVersion = 1

// CheckCommand is the hidden command by which a new binary says whether it can go on. Orla's own arguments follow.
const CheckCommand = "__upgrade"

// checkPatience bounds the check.
const checkPatience = 10 * time.Second

// document is what one program gives to the next one in the same process.
type document struct {
	Version  int            `json:"version"`
	From     string         `json:"from"`            // the version of the Orla that wrote it
	Number   int            `json:"number"`          // of upgrades in this process, with this one
	Ended    bool           `json:"ended,omitempty"` // a signal has come that ends Orla
	Failed   string         `json:"failed,omitempty"`
	Open     []int          `json:"open,omitempty"` // the descriptors that are given
	Parts    *wiring.Given  `json:"parts,omitempty"`
	HTTP     *listen.State  `json:"http,omitempty"`
	Control  *control.State `json:"control,omitempty"`
	Executes target         `json:"executes"`
}

// target is the binary that is executed.
type target struct {
	Path string   `json:"path"`
	Argv []string `json:"argv"`
}

// readDocument reads the document of the program before.
func readDocument(raw []byte) (*document, error) {
	var d document
	if err := json.Unmarshal(raw, &d); err != nil {
		return nil, fmt.Errorf("the state of the program before: %w", err)
	}
	if d.Version != stateVersion {
		return nil, fmt.Errorf("the state of the program before has version %d; this is Orla %s, which reads version %d", d.Version, version.Version(), stateVersion)
	}
	return &d, nil
}

// received returns the document of the program before; nil if there is none.
func received() (*document, error) {
	raw, err := carry.Received()
	if err != nil || raw == nil {
		return nil, err
	}
	d, err := readDocument(raw)
	if err != nil {
		return nil, err
	}
	carry.Receive(d.Open)
	return d, nil
}

// execute executes the new binary with a document. It returns only if that fails, with the document to go on with.
func (d *document) execute() *document {
	d.Open = carry.Given()
	raw, err := json.Marshal(d)
	if err == nil {
		var sealed *os.File
		if sealed, err = carry.Seal(raw); err == nil {
			signal.Ignore(syscall.SIGHUP, syscall.SIGUSR1) // until they are handled again; the configuration is read anyway
			err = carry.Exec(d.Executes.Path, d.Executes.Argv, sealed)
			_ = sealed.Close() // only written
		}
	}
	d.Failed = err.Error()
	d.Number--
	return d
}

// checkKey is the key of a context in which Serve only checks whether it could serve.
type checkKey struct{}

// Checking returns a context with which Serve reads the configuration, and does nothing else.
func Checking(ctx context.Context) context.Context { return context.WithValue(ctx, checkKey{}, true) }

// checked is what a new binary says.
type checked struct {
	Understands int    `json:"understands"` // the version of the document
	Version     string `json:"version"`     // of Orla
}

// Check reads the head of a document from a descriptor, and returns the line with which a binary says that it can go
// on with such a document.
func Check(f *os.File) (line []byte, err error) {
	raw, err := carry.Read(f)
	if err != nil {
		return nil, err
	}
	d, err := readDocument(raw)
	if err != nil {
		return nil, err
	}
	return json.Marshal(checked{d.Version, version.Version()})
}

// upgrades are the upgrades of this process.
type upgrades struct {
	program own
	asked   chan *document // holds one that is to be made

	busy   sync.Mutex // held during a check
	mu     sync.Mutex // guards the fields that follow
	number int        // that were made
	failed string     // why the last one was not; "" if it was
	next   *document  // what is executed when all has stopped; nil for nothing
}

// own is the file that this program was started from.
type own struct {
	path string
	was  os.FileInfo // at the start; nil if it is not known
}

// ownProgram finds the file by whose name this program was started. A link in its place stays one, so that it may
// lead to a newer program later.
func ownProgram() own {
	running, err := os.Executable()
	if err != nil {
		return own{}
	}
	path := running
	if found, err := exec.LookPath(os.Args[0]); err == nil {
		if found, err = filepath.Abs(found); err == nil && sameFile(found, "/proc/self/exe") {
			path = found
		}
	}
	info, err := os.Stat(path)
	if err != nil || !sameFile(path, "/proc/self/exe") {
		return own{path: path}
	}
	return own{path, info}
}

func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

// replaced reports whether there is another program now under the name that this one was started by.
func (o own) replaced() bool {
	if o.was == nil {
		return false
	}
	now, err := os.Stat(o.path)
	return err == nil && (!os.SameFile(now, o.was) || now.Size() != o.was.Size() || !now.ModTime().Equal(o.was.ModTime()))
}

// refusedUpgrade is the error of an upgrade that changed nothing.
func refusedUpgrade(format string, args ...any) error {
	return &control.Error{Code: control.CodeRefused, Message: fmt.Sprintf(format, args...), Hint: "nothing was changed; this Orla serves on"}
}

// Upgrade implements control.Backend.
func (o operations) Upgrade(ctx context.Context, binary string) (control.Upgrade, error) {
	return o.prepareUpgrade(ctx, binary)
}

// prepareUpgrade checks a binary, and has it executed soon. "" is the file that this program was started from.
func (s *server) prepareUpgrade(ctx context.Context, binary string) (control.Upgrade, error) {
	if !s.upgrades.busy.TryLock() {
		return control.Upgrade{}, refusedUpgrade("an upgrade is under way already")
	}
	defer s.upgrades.busy.Unlock()
	next, said, err := s.checkBinary(ctx, binary)
	if err == nil && len(s.upgrades.asked) > 0 {
		err = errors.New("an upgrade is under way already")
	}
	if err != nil {
		s.upgrades.mu.Lock()
		s.upgrades.failed = err.Error()
		s.upgrades.mu.Unlock()
		s.log.Error("not upgraded; this program serves on", "binary", cmp.Or(binary, s.upgrades.program.path), "err", err)
		return control.Upgrade{}, refusedUpgrade("%v", err)
	}
	s.upgrades.mu.Lock()
	s.upgrades.failed = ""
	s.upgrades.mu.Unlock()
	s.upgrades.asked <- next // it has room
	return control.Upgrade{Version: said.Version, Number: next.Number}, nil
}

// checkBinary asks a binary whether it can go on from here, and returns the begin of the document for it.
func (s *server) checkBinary(ctx context.Context, binary string) (*document, checked, error) {
	var said checked
	cfg := s.current()
	if err := carry.Possible(); err != nil {
		return nil, said, fmt.Errorf("this process cannot execute another binary: %w", err)
	}
	switch {
	case s.http == nil:
		return nil, said, errors.New("an Orla on stdin and stdout cannot be upgraded: its client would have to begin again")
	case cfg.Only != "":
		return nil, said, errors.New("orla dev cannot be upgraded; start it again")
	case binary != "" && !filepath.IsAbs(binary):
		return nil, said, fmt.Errorf("%s is not an absolute path", binary)
	}
	argv := os.Args
	if binary != "" {
		argv = append([]string{binary}, os.Args[1:]...) // by this name the next upgrade finds it
	}
	s.upgrades.mu.Lock()
	next := &document{Version: stateVersion, From: version.Version(), Number: s.upgrades.number + 1}
	s.upgrades.mu.Unlock()
	next.Executes = target{cmp.Or(binary, s.upgrades.program.path), argv}
	said, err := s.ask(ctx, next)
	return next, said, err
}

// ask starts a binary with the head of its document, and returns what it says.
func (s *server) ask(ctx context.Context, next *document) (said checked, err error) {
	raw, err := json.Marshal(next)
	if err != nil { // strings and numbers
		return said, err
	}
	head, err := carry.Seal(raw)
	if err != nil {
		return said, err
	}
	defer func() { _ = head.Close() }() // only written
	path := next.Executes.Path
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	var out, problem bytes.Buffer
	const enough = 64 << 10
	take := func(to *bytes.Buffer) func([]byte) {
		return func(p []byte) { to.Write(p[:min(len(p), enough-to.Len())]) }
	}
	ran, err := launch.Run(ctx, s.Launcher.Launcher(), launch.Spec{
		Path: path, Argv: append([]string{next.Executes.Argv[0], CheckCommand}, next.Executes.Argv[1:]...),
		Env: os.Environ(), Input: []byte{}, Whole: true, Grace: time.Second, Files: []*os.File{head},
	}, take(&out), take(&problem))
	if err != nil {
		return said, err
	}
	const most = 1 << 10
	text := brief.Cut(strings.TrimSpace(problem.String()), most)
	switch lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n")); {
	case ran.Stopped:
		return said, fmt.Errorf("%s did not answer within %s", path, checkPatience)
	case ran.Code != 0:
		return said, fmt.Errorf("%s ended with %d: %s", path, ran.Code, cmp.Or(text, "it said nothing"))
	case json.Unmarshal(lines[len(lines)-1], &said) != nil || said.Understands != stateVersion:
		return said, fmt.Errorf("%s does not say that it can go on: %s", path, cmp.Or(text, "it said nothing of it"))
	}
	return said, nil
}

// follow is an upgrade as the reason of an end.
type follow struct{ *document }

func (f follow) Error() string { return "an upgrade to " + f.Executes.Path }

const (
	quietPause = 2 * time.Millisecond
	// givePatience bounds the time in which capsules are given.
	givePatience = 10 * time.Second
	// lastPatience bounds the time in which connections whose answer was written end.
	lastPatience = time.Second
)

// leave is runHTTP's end before another program is executed: what can go on without this one is given to it, and all
// else ends as at a stop. It reports false if nothing was begun.
func (s *server) leave(ctx context.Context, signals *signals, stop func(), next *document) bool {
	began := time.Now()
	lasting := context.WithoutCancel(ctx)
	grace := time.Duration(s.current().ShutdownGrace)
	s.notifier.Reloading()
	s.notifier.Extend(grace + givePatience + 10*time.Second)
	if err := s.web.Pause(); err != nil {
		s.log.Error("not upgraded; this program serves on", "binary", next.Executes.Path, "err", err)
		return false
	}
	s.log.Info("upgrading", "binary", next.Executes.Path, "in_flight", s.Supervisor.InFlight(), "grace_ms", grace.Milliseconds())
	s.web.Hold()
	limited, cancel := context.WithTimeout(lasting, grace)
	defer cancel()
	for (s.web.Asking() > 0 || s.http.Answering() || s.Supervisor.InFlight() > 0) && pace.Sleep(limited, quietPause) {
	}
	s.Supervisor.Drain(limited)
	s.http.CloseSessions()
	last, cancel := context.WithTimeout(lasting, lastPatience)
	defer cancel()
	for s.web.Open() > 0 && pace.Sleep(last, quietPause) {
	}
	s.web.Shutdown(lasting)
	next.HTTP = s.web.Give()
	giving, cancel := context.WithTimeout(lasting, givePatience)
	defer cancel()
	s.capsules = s.Supervisor.Give(giving)
	s.control.Leave()
	stop()
	next.Control = s.control.Given()
	next.Ended = len(signals.end) > 0
	s.upgrades.next = next
	s.log.Info("executing", "binary", next.Executes.Path, "capsules", len(s.capsules), "connections", len(next.HTTP.Conns),
		"paused_ms", time.Since(began).Milliseconds())
	return true
}

// tellBefore logs how this program came to run, if another one has run in this process.
func (s *server) tellBefore(d *document) {
	if d == nil {
		return
	}
	s.upgrades.number, s.upgrades.failed = d.Number, d.Failed
	if d.Failed != "" {
		s.log.Error("not upgraded; this program serves on", "binary", d.Executes.Path, "err", d.Failed)
		return
	}
	s.log.Info("upgraded", "from", d.From, "version", version.Version(), "number", d.Number)
}

// parts, control and sockets return parts of a document, which may be nil.
func (d *document) parts() *wiring.Given {
	if d == nil {
		return nil
	}
	return d.Parts
}

func (d *document) control() *control.State {
	if d == nil {
		return nil
	}
	return d.Control
}

// sockets returns the sockets that systemd has given to the first program in this process.
func (d *document) sockets(log *slog.Logger) []net.Listener {
	given, err := d.HTTP.Sockets()
	if err != nil {
		log.Warn("not all sockets of the program before can be used", "err", err)
	}
	return given
}
