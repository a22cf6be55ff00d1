// Package upgrade is how the running process executes another binary (SPEC Q1, docs/decisions/0051): what the one
// program gives to the next, and how that is asked first whether it can go on.
package upgrade

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/orla-project/orla/internal/app/control/unixsocket"
	"github.com/orla-project/orla/internal/app/listen"
	"github.com/orla-project/orla/internal/app/version"
	"github.com/orla-project/orla/internal/app/wiring"
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

// Document is what one program gives to the next one in the same process.
type Document struct {
	Version  int               `json:"version"`
	From     string            `json:"from"`            // the version of the Orla that wrote it
	Number   int               `json:"number"`          // of upgrades in this process, with this one
	Ended    bool              `json:"ended,omitempty"` // a signal has come that ends Orla
	Failed   string            `json:"failed,omitempty"`
	Open     []int             `json:"open,omitempty"` // the descriptors that are given
	Parts    *wiring.Given     `json:"parts,omitempty"`
	HTTP     *listen.State     `json:"http,omitempty"`
	Control  *unixsocket.State `json:"control,omitempty"`
	StateKey []byte            `json:"state_key,omitempty"` // of mcpbridge.Bridge
	Kept     map[string]int    `json:"kept,omitempty"`      // descriptors, of what Keep has
	Executes Target            `json:"executes"`
}

// Target is the binary that is executed.
type Target struct {
	Path string   `json:"path"`
	Argv []string `json:"argv"`
}

// read reads the document of the program before.
func read(raw []byte) (*Document, error) {
	var d Document
	if err := json.Unmarshal(raw, &d); err != nil {
		return nil, fmt.Errorf("the state of the program before: %w", err)
	}
	if d.Version != stateVersion {
		return nil, fmt.Errorf("the state of the program before has version %d; this is Orla %s, which reads version %d", d.Version, version.Version(), stateVersion)
	}
	return &d, nil
}

// Received returns the document of the program before; nil if there is none.
func Received() (*Document, error) {
	raw, err := carry.Received()
	if err != nil || raw == nil {
		return nil, err
	}
	d, err := read(raw)
	if err != nil {
		return nil, err
	}
	carry.Receive(d.Open)
	return d, nil
}

// IgnoreSignals ignores, until they are handled again, signals that would end the process between two programs. What
// SIGHUP asks for is done by the next program in any case.
func IgnoreSignals() { signal.Ignore(syscall.SIGHUP, syscall.SIGUSR1) }

// Execute executes the new binary with a document. It returns only if that fails, with the document to go on with.
func (d *Document) Execute() *Document {
	d.Open = carry.Given()
	raw, err := json.Marshal(d)
	if err == nil {
		var sealed *os.File
		if sealed, err = carry.Seal(raw); err == nil {
			err = carry.Exec(d.Executes.Path, d.Executes.Argv, sealed)
			_ = sealed.Close() // only written
		}
	}
	d.Failed = err.Error()
	d.Number--
	return d
}

// checkKey is the key of a context of Checking.
type checkKey struct{}

// Checking returns a context in which Orla reads its configuration as if it were to serve, and does nothing else.
func Checking(ctx context.Context) context.Context { return context.WithValue(ctx, checkKey{}, true) }

// IsCheck reports whether a context is one of Checking.
func IsCheck(ctx context.Context) bool { return ctx.Value(checkKey{}) != nil }

// Answer is what a new binary says.
type Answer struct {
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
	d, err := read(raw)
	if err != nil {
		return nil, err
	}
	return json.Marshal(Answer{d.Version, version.Version()})
}

// Program is the file that this program was started from.
type Program struct {
	Path string
	was  os.FileInfo // at the start; nil if it is not known
}

// Own finds the file by whose name this program was started. A link in its place stays one, so that it may
// lead to a newer program later.
func Own() Program {
	running, err := os.Executable()
	if err != nil {
		return Program{}
	}
	path := running
	if found, err := exec.LookPath(os.Args[0]); err == nil {
		if found, err = filepath.Abs(found); err == nil && sameFile(found, "/proc/self/exe") {
			path = found
		}
	}
	info, err := os.Stat(path)
	if err != nil || !sameFile(path, "/proc/self/exe") {
		return Program{Path: path}
	}
	return Program{path, info}
}

func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

// Replaced reports whether there is another program now under the name that this one was started by.
func (o Program) Replaced() bool {
	if o.was == nil {
		return false
	}
	now, err := os.Stat(o.Path)
	return err == nil && (!os.SameFile(now, o.was) || now.Size() != o.was.Size() || !now.ModTime().Equal(o.was.ModTime()))
}

// Ask starts the binary with the head of the document, and returns what it says.
func (d *Document) Ask(ctx context.Context, l launch.Launcher) (said Answer, err error) {
	raw, err := json.Marshal(d)
	if err != nil { // strings and numbers
		return said, err
	}
	head, err := carry.Seal(raw)
	if err != nil {
		return said, err
	}
	defer func() { _ = head.Close() }() // only written
	path := d.Executes.Path
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	var out, problem bytes.Buffer
	const enough = 64 << 10
	take := func(to *bytes.Buffer) func([]byte) {
		return func(p []byte) { to.Write(p[:min(len(p), enough-to.Len())]) }
	}
	ran, err := launch.Run(ctx, l, launch.Spec{
		Path: path, Argv: append([]string{d.Executes.Argv[0], CheckCommand}, d.Executes.Argv[1:]...),
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

// ForParts returns the parts that answer calls; nil without them. The document may be nil, here and below.
func (d *Document) ForParts() *wiring.Given {
	if d == nil {
		return nil
	}
	return d.Parts
}

// ForControl returns the part of the control socket; nil without one.
func (d *Document) ForControl() *unixsocket.State {
	if d == nil {
		return nil
	}
	return d.Control
}

// ForBridge returns the key of states; nil without one.
func (d *Document) ForBridge() []byte {
	if d == nil {
		return nil
	}
	return d.StateKey
}

// Sockets returns the sockets that systemd has given to the first program in this process.
func (d *Document) Sockets(log *slog.Logger) []net.Listener {
	given, err := d.HTTP.Sockets()
	if err != nil {
		log.Warn("not all sockets of the program before can be used", "err", err)
	}
	return given
}

// New returns the begin of the document with a number, for a binary; "" is that of program.
func New(number int, program Program, binary string) *Document {
	argv := os.Args
	if binary != "" {
		argv = append([]string{binary}, os.Args[1:]...) // by this name the next upgrade finds it
	}
	return &Document{Version: stateVersion, From: version.Version(), Number: number, Executes: Target{cmp.Or(binary, program.Path), argv}}
}
