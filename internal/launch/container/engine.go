package container

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/launch"
)

const (
	// infoPatience bounds how long an engine may take to answer info.
	infoPatience = 20 * time.Second
	// stepPatience bounds each short command: kill, rm, ps.
	stepPatience = 15 * time.Second
	// answerBytes is how much of a command's output is kept.
	answerBytes = 4 << 20
	// lastLineBytes is how much of a command's stderr an error shows.
	lastLineBytes = 400
)

// EngineOptions configures an Engine.
type EngineOptions struct {
	// Program is podman, docker, or the absolute path of either. If "" or auto, it is the first of the
	// two that answers.
	Program string
	// Local starts the engine's command lines. Required.
	Local *launch.Local
	// Environ is the environment of the command lines, without Orla's own variables. Tools do not get
	// it.
	Environ []string
	// Folder is the tools folder. Containers that another Orla with the same folder left are swept.
	Folder string
	// Prober is a command of this machine, with an absolute path, that calls Probe with its further
	// arguments. If it is nil, or its program is not statically linked, an engine on this machine starts
	// nothing. A remote engine does not have the program; there, images must contain a program named
	// head.
	Prober []string
	// Log receives the containers that cannot be removed, and those that are swept. Required.
	Log *slog.Logger
}

// Engine is podman or docker, and what is known about it. Its methods may be called from any
// goroutine. The engine is not run before it is needed.
type Engine struct {
	opts     EngineOptions
	instance string // a random word that no other Orla has
	folder   string // the label of the tools folder
	owner    string // the label of this process

	engines  memo[*made]
	images   memo[image]
	verdicts memo[verdict]

	ctx    context.Context //nolint:containedctx // cancelled by Close; it belongs to no call
	cancel context.CancelFunc
	work   sync.WaitGroup // background commands, and processes
	swept  sync.Once
	mu     sync.Mutex // guards the field that follows, and work.Add against Close
	dir    string     // see temp; "" before it
}

// NewEngine returns an Engine. The caller must Close it, before Local.
func NewEngine(opts EngineOptions) *Engine {
	digest := sha256.Sum256([]byte(opts.Folder))
	ctx, cancel := context.WithCancel(context.Background())
	return &Engine{
		opts:     opts,
		instance: strings.ToLower(rand.Text()[:10]),
		folder:   hex.EncodeToString(digest[:8]),
		owner:    thisProcess().String(),
		engines:  memo[*made]{good: 5 * time.Minute, bad: 15 * time.Second},
		images:   memo[image]{good: 10 * time.Minute, bad: 15 * time.Second},
		verdicts: memo[verdict]{good: 10 * time.Minute, bad: 15 * time.Second},
		ctx:      ctx,
		cancel:   cancel,
	}
}

// Close waits for the processes and their containers, and cancels background work. It does not stop
// processes: their owners do.
func (e *Engine) Close() {
	e.mu.Lock()
	e.cancel()
	e.mu.Unlock()
	e.work.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.dir != "" { // it may have been made since
		_ = os.RemoveAll(e.dir) // only Orla uses it
	}
}

// enter adds the caller to the work that Close waits for.
func (e *Engine) enter() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ctx.Err() != nil {
		return fault.New(fault.StartFailed, "Orla is stopping; no new container is started")
	}
	e.work.Add(1)
	return nil
}

// bounded returns a context that also ends at Close.
func (e *Engine) bounded(ctx context.Context, patience time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	stop := context.AfterFunc(e.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// program returns the path of a command.
func (e *Engine) program(name string) (string, error) {
	if filepath.IsAbs(name) {
		if _, err := os.Stat(name); err != nil {
			return "", fmt.Errorf("there is no %s", name)
		}
		return name, nil
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("there is no %s in PATH", name)
	}
	return filepath.Abs(path)
}

// candidates are the programs to try, in order.
func (e *Engine) candidates() []string {
	if p := cmp.Or(e.opts.Program, "auto"); p != "auto" {
		return []string{p}
	}
	return []string{"podman", "docker"}
}

// found returns the engine.
func (e *Engine) found(ctx context.Context) (*made, error) {
	return e.engines.get(ctx, e, "", infoPatience, func(ctx context.Context) (*made, error) {
		var reasons []string
		for _, name := range e.candidates() {
			path, err := e.program(name)
			if err == nil {
				var m *made
				if m, err = e.ask(ctx, path); err == nil {
					return m, nil
				}
			}
			reasons = append(reasons, err.Error())
		}
		return nil, fault.New(fault.IsolationUnavailable, "no container engine can be used: %s; install podman, start docker, or name one with tool_container_engine", strings.Join(reasons, "; "))
	})
}

// spec is a command line of the engine. It is not Whole: processes that rootless podman leaves for
// the next command have to go on.
func (e *Engine) spec(args []string) launch.Spec {
	return launch.Spec{Path: args[0], Argv: args, Env: slices.Clone(e.opts.Environ), Dir: "/", Untagged: true}
}

// local starts a command line. A failure to run the engine's program is reported as the engine's,
// not as the tool's.
func (e *Engine) local(ctx context.Context, spec launch.Spec) (*launch.LocalProcess, error) {
	p, err := e.opts.Local.Start(ctx, spec)
	if f := fault.From(err); f != nil && f.Code == fault.UnsupportedTool {
		e.engines.forget("")
		return nil, fault.Wrap(fault.IsolationUnavailable, err, "the container engine cannot be run: %s", f.Reason)
	}
	return p, err
}

// errCommand is how a command of the engine failed.
type errCommand struct {
	verb, said string
	code       int
}

func (e *errCommand) Error() string {
	return fmt.Sprintf("%s: exit code %d: %s", e.verb, e.code, e.said)
}

// order has what a command of the engine gets in addition to its arguments.
type order struct {
	extra []string // environment variables
	input []byte   // its stdin
	most  int      // bytes that it may print to each of stdout and stderr
}

// command runs the engine and returns its stdout. The error is an *errCommand if the engine has
// refused.
func (e *Engine) command(ctx context.Context, extra []string, args ...string) ([]byte, error) {
	return e.run(ctx, order{extra: extra, most: answerBytes}, args...)
}

// run is command with an order. A command that prints more than order.most is ended, and run returns
// nothing of its output.
func (e *Engine) run(ctx context.Context, o order, args ...string) ([]byte, error) {
	spec := e.spec(args)
	spec.Env = append(slices.DeleteFunc(spec.Env, func(kv string) bool { // of two, engines take the first
		name, _, _ := strings.Cut(kv, "=")
		return slices.ContainsFunc(o.extra, func(other string) bool { return strings.HasPrefix(other, name+"=") })
	}), o.extra...)
	spec.Input = append([]byte{}, o.input...)
	p, err := e.local(ctx, spec)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over := func() { cancel(errTooMuch) }
	out, said := kept{most: o.most, limit: o.most, over: over}, kept{most: 4096, last: true, limit: o.most, over: over}
	var streams sync.WaitGroup
	streams.Go(func() { _, _ = io.Copy(&out, p.Stdout) })  // an error ends it, too
	streams.Go(func() { _, _ = io.Copy(&said, p.Stderr) }) // an error ends it, too
	select {
	case <-p.Exited():
	case <-ctx.Done():
		p.Kill()
		<-p.Gone() // SIGKILL ends it
	}
	for _, f := range []*os.File{p.Stdout, p.Stderr} {
		_ = f.SetReadDeadline(time.Now().Add(relayPatience)) // a descendant may hold the other end
	}
	streams.Wait()
	_, _ = p.Stdout.Close(), p.Stderr.Close() // only read
	switch {
	case errors.Is(context.Cause(ctx), errTooMuch):
		return nil, fmt.Errorf("%s: it prints more than %d bytes", args[1], o.most)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s: no answer in time", args[1])
	}
	if exit := p.Exit(); exit.Code != 0 {
		return out.bytes(), &errCommand{verb: filepath.Base(args[0]) + " " + args[1], said: reasonIn(said.bytes()), code: exit.Code}
	}
	return out.bytes(), nil
}

// errTooMuch stops the copying to a kept that is full, and ends the command.
var errTooMuch = errors.New("too much is printed")

// kept is a writer that keeps a limited number of bytes: the first or the last ones.
type kept struct {
	most  int
	last  bool
	limit int        // bytes that may be written; 0 means any number
	over  func()     // called when more are written
	mu    sync.Mutex // guards the fields that follow
	buf   []byte
	all   int // bytes written
}

func (k *kept) Write(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.all += len(p); k.limit > 0 && k.all > k.limit {
		k.over()
		return 0, errTooMuch
	}
	if k.last {
		k.buf = append(k.buf, p...)
		k.buf = slices.Delete(k.buf, 0, max(0, len(k.buf)-k.most))
	} else {
		k.buf = append(k.buf, p[:min(len(p), k.most-len(k.buf))]...)
	}
	return len(p), nil
}

func (k *kept) bytes() []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.buf)
}

// lastLine returns the last line of text, without unprintable characters.
func lastLine(text []byte) string {
	text = bytes.TrimSpace(text)
	if i := bytes.LastIndexByte(text, '\n'); i >= 0 {
		text = text[i+1:]
	}
	return cmp.Or(printable(string(text), lastLineBytes), "it says nothing")
}

// printable returns the beginning of a text as one line without invisible characters, with at most
// most bytes.
func printable(text string, most int) string {
	line := strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t':
			return ' '
		case r == '\ufffd' || !unicode.IsPrint(r):
			return -1
		}
		return r
	}, strings.Clone(text[:min(len(text), most)]))
	return strings.TrimSpace(line)
}

// saidBy returns the last line that a failed command printed.
func saidBy(err error) string {
	if c, ok := errors.AsType[*errCommand](err); ok {
		return c.said
	}
	return err.Error()
}
