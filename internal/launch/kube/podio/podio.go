// Package podio carries the standard streams of the process of a Pod: stdin and stdout on one connection, stderr on
// another one, so that a slow reader of one of them does not hold up the other (docs/decisions/0052).
//
// A connection lacks what the process has said before it. The Pod's log has that, and says not from which stream it is:
// package joint puts the two together at the begin of each connection.
//
// What is promised: the bytes of stdout and stderr arrive once and in order, as long as the process writes lines and
// the log still has those that no connection brought. If a connection breaks, Run connects again, for at most Patience;
// it goes on if nothing can be lost. It gives up if something was being sent at that moment, since nobody knows
// whether the process got it, or if the log does not have what is missing.
package podio

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/cluster/kubeapi"
)

const (
	// Patience is how long Run tries to connect again.
	Patience = 30 * time.Second
	// lastWords is how long streams may take to end after their container.
	lastWords = 2 * time.Second
	// firstPause and lastPause are the shortest and the longest pause between two attempts to connect.
	firstPause, lastPause = 100 * time.Millisecond, 2 * time.Second
	// dialTime bounds one attempt to connect.
	dialTime = 10 * time.Second
)

// Options says what Run carries. All fields are required.
type Options struct {
	// Attach connects to streams of the container.
	Attach func(ctx context.Context, streams ...kubeapi.Stream) (*kubeapi.Attachment, error)
	// Log reads the log, with a time before each line.
	Log func(ctx context.Context, q Query) (io.ReadCloser, error)
	// Ended is closed when the container has ended.
	Ended <-chan struct{}
	// Stdin is read, and Stdout and Stderr are written. They stay the caller's to close.
	Stdin          *os.File
	Stdout, Stderr io.Writer
	Problems       *slog.Logger
}

// run is one Run.
type run struct {
	Options

	tracks [2]track
	began  time.Time
	sent   atomic.Int64 // when something was last sent, in nanoseconds since then: the time of day may jump
}

// isSent notes that something is sent.
func (r *run) isSent() { r.sent.Store(max(1, int64(time.Since(r.began)))) }

// justSent reports whether something that was sent may be on its way to the process.
func (r *run) justSent() bool {
	at := time.Duration(r.sent.Load())
	return at > 0 && time.Since(r.began)-at < onItsWay
}

// Run carries the streams until they have ended, or ctx has. It returns nil if all that the process has said was
// written.
func Run(ctx context.Context, opts Options) error {
	r := &run{Options: opts, began: time.Now()}
	r.tracks[out].to, r.tracks[text].to = opts.Stdout, opts.Stderr
	var away time.Time // since when there is no connection that lasts; zero if there is one
	var broke error
	for first := true; ; first = false {
		s, err := r.connect(ctx, away, broke)
		if err != nil {
			return err
		}
		began := time.Now()
		again, err := s.live(ctx, first)
		if err != nil || !again {
			return err
		}
		if r.justSent() && !r.endsSoon(ctx) {
			return errors.New("the connection to the Pod broke while data was sent to the process, and it is not known whether the process received it")
		}
		if broke = s.broke; away.IsZero() || time.Since(began) > Patience/2 {
			away = time.Now()
			r.Problems.Info("the connection to a Pod broke; connecting again", "err", broke)
		}
	}
}

// endsSoon waits a moment for the container's end, and reports whether it is known: that is why most connections end.
func (r *run) endsSoon(ctx context.Context) bool {
	select {
	case <-r.Ended:
		return true
	case <-time.After(lastWords):
	case <-ctx.Done():
	}
	return false
}

// connect connects both streams. After the end of the container it returns a spell without connections. away is since
// when there is no connection that lasts, and err why.
func (r *run) connect(ctx context.Context, away time.Time, err error) (*spell, error) {
	if away.IsZero() {
		away = time.Now()
	}
	limit, cancel := context.WithDeadline(ctx, away.Add(Patience))
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		if err == nil || pause > firstPause {
			var s *spell
			if s, err = r.attach(limit); err == nil {
				return s, nil
			}
		}
		select {
		case <-r.Ended:
			return newSpell(r), nil
		case <-time.After(pause):
		case <-limit.Done():
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			return nil, fmt.Errorf("the connection to the Pod could not be made within %s: %w", Patience, err)
		}
	}
}

func (r *run) attach(ctx context.Context) (*spell, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	s := newSpell(r)
	var errs [2]error
	s.links[out], errs[out] = r.Attach(ctx, kubeapi.Stdin, kubeapi.Stdout)
	if errs[out] == nil {
		s.links[text], errs[text] = r.Attach(ctx, kubeapi.Stderr)
	}
	if err := errors.Join(errs[:]...); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// errPanicked is why a connection is given up during which Orla panicked.
var errPanicked = errors.New("this failed inside Orla; its log has the details")

// spell is the time of one pair of connections.
type spell struct {
	*run

	links  [2]*kubeapi.Attachment // nil after the end of the container
	pieces chan piece
	direct chan struct{} // closed when connections write by themselves
	over   [2]chan struct{}
	broken chan struct{} // closed when a connection broke, and broke is why
	once   sync.Once
	broke  error
}

// piece is a line, or a part of one, that a connection has brought.
type piece struct {
	side side
	line []byte
	part bool // it has no newline
}

func newSpell(r *run) *spell {
	s := &spell{run: r, pieces: make(chan piece), direct: make(chan struct{}), broken: make(chan struct{})}
	for i := range s.over {
		s.over[i] = make(chan struct{})
	}
	return s
}

func (s *spell) close() {
	for _, link := range s.links {
		if link != nil {
			link.Close()
		}
	}
}

func (s *spell) breaks(err error) {
	s.once.Do(func() {
		s.broke = err
		close(s.broken)
	})
}

// live carries the streams until they have ended. It reports again if a connection broke.
func (s *spell) live(ctx context.Context, first bool) (again bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var parts sync.WaitGroup
	defer func() {
		cancel()
		s.close()
		_ = s.Stdin.SetReadDeadline(time.Unix(1, 0)) // ends forward
		parts.Wait()
		_ = s.Stdin.SetReadDeadline(time.Time{})
	}()
	start := func(f func(ctx context.Context)) {
		parts.Go(func() {
			defer recovered.To(s.Problems, "carry the streams of a Pod", func(any) { s.breaks(errPanicked) })
			f(ctx)
		})
	}
	for _, c := range []side{out, text} {
		if s.links[c] == nil {
			close(s.over[c])
			continue
		}
		start(func(ctx context.Context) { s.copy(ctx, c) })
	}
	if s.links[out] != nil {
		start(s.forward)
	}
	if err := s.join(ctx, first); err != nil {
		return false, err
	}
	if closed(s.broken) { // what is held is in the log
		return true, nil
	}
	close(s.direct)
	return s.rest(ctx)
}

// rest waits for the end of both streams, once connections write by themselves.
func (s *spell) rest(ctx context.Context) (again bool, err error) {
	ended := s.Ended
	var late <-chan time.Time
	for _, over := range s.over {
		for done := false; !done; {
			select {
			case <-over:
				done = true
			case <-s.broken:
				return true, nil
			case <-ended:
				ended, late = nil, time.After(lastWords)
			case <-late:
				return false, nil
			case <-ctx.Done():
				return false, context.Cause(ctx)
			}
		}
	}
	return false, nil
}

var streams = [...]kubeapi.Stream{out: kubeapi.Stdout, text: kubeapi.Stderr}

// copy copies what a connection brings.
func (s *spell) copy(ctx context.Context, c side) {
	w := &joining{spell: s, ctx: ctx, side: c}
	err := s.links[c].Copy(ctx, streams[c], w)
	w.end()
	if err != nil {
		s.breaks(err)
		return
	}
	close(s.over[c])
}

// joining hands over what a connection brings, in lines, until it may write by itself.
type joining struct {
	*spell
	ctx   context.Context //nolint:containedctx // of the one Copy that writes to it
	side  side
	begin []byte // of a line
}

// maxLine bounds a line that is kept until it is whole: it is more than a message may have.
const maxLine = 17 << 20

// Write implements io.Writer.
func (w *joining) Write(p []byte) (int, error) {
	size := len(p)
	for len(p) > 0 {
		if closed(w.direct) {
			if err := w.raw(p); err != nil {
				return 0, err
			}
			break
		}
		line, rest, whole := bytes.Cut(p, []byte("\n"))
		line, p = append(w.begin, line...), rest
		w.begin = nil
		switch {
		case line == nil:
			line = []byte{} // an empty line: nil would be one that the log has not whole
		case !whole && len(line) < maxLine:
			w.begin = line
			return size, nil
		}
		if err := w.give(piece{w.side, line, !whole}); err != nil {
			return 0, err
		}
	}
	return size, nil
}

// raw writes without a joint.
func (w *joining) raw(p []byte) error {
	if len(w.begin) > 0 {
		p = append(w.begin, p...)
		w.begin = nil
	}
	_, err := w.tracks[w.side].Write(p)
	return err
}

func (w *joining) give(p piece) error {
	select {
	case w.pieces <- p:
		return nil
	case <-w.direct:
		if !p.part {
			p.line = append(p.line, '\n')
		}
		return w.raw(p.line)
	case <-w.ctx.Done():
		return context.Cause(w.ctx)
	}
}

// end hands over a line that did not end.
func (w *joining) end() {
	if len(w.begin) > 0 {
		begin := w.begin
		w.begin = nil
		_ = w.give(piece{w.side, begin, true}) // nothing follows
	}
}

// forward sends what is written to stdin.
func (s *spell) forward(ctx context.Context) {
	buf := make([]byte, 32<<10)
	for {
		n, err := s.Stdin.Read(buf)
		if n > 0 {
			s.isSent()
			if err := s.links[out].Write(ctx, buf[:n]); err != nil {
				s.breaks(err)
				return
			}
			s.isSent()
		}
		if err != nil {
			return // Orla has closed it, which ends the Pod too, or the spell is over
		}
	}
}

// onItsWay is how long what was sent may be on its way to the process.
const onItsWay = 2 * time.Second

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
