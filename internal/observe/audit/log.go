package audit

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/orla-project/orla/internal/app/systemd"
)

const (
	// linger is how long a line may wait for others, to be written together. If Orla is killed, it loses
	// the lines of so much time. Waking up for each write costs more than the lines do.
	linger = 25 * time.Millisecond
	// A head is signed after headLines lines, and headEvery after the first line that no head has covered.
	headLines = 16384
	headEvery = time.Minute
	// maxPending bounds the lines that wait to be written, in bytes.
	maxPending = 4 << 20
	// maxWrite is after how many bytes lines are written while others are made: so much stays in a cache.
	maxWrite = 128 << 10
	// stuck is the time after which a write is not waited for any more: no call is made until it has ended.
	stuck = 10 * time.Second
	// retryAfter is the pause after a write that failed.
	retryAfter = time.Second
)

// Options configures a Log.
type Options struct {
	Path     string // the absolute path of a file, or Journal
	StateDir string // for the key and the newest head
	Full     bool   // write the arguments, and not only their hash
	Journal  string // the path of journald's socket
	// Log is required.
	Log *slog.Logger
}

// Log is an audit log that is being written. Its methods may be called from any goroutine.
type Log struct {
	opts   Options
	state  state
	key    signer
	unlock func()      // of the state
	full   atomic.Bool // see Options.Full
	health
	queue

	soon  *time.Timer       // fires when lines are to be written; reset under mu
	asked chan chan<- error // a Reopen
	quit  chan struct{}     // closed by Close
	ended chan struct{}     // closed when serve has returned
	writer
}

// signer is the key of heads.
type signer struct {
	note.Signer
	public string // its other half
}

// health says whether lines can be written.
type health struct {
	trouble atomic.Pointer[error]   // why they cannot; nil if they can
	opened  time.Time               // measures began, and when calls ended: the clock of the machine may jump
	began   atomic.Int64            // when the write that is under way began, in nanoseconds since opened; 0 for none
	refused atomic.Int64            // calls that were refused because of trouble, and are not in the log yet
	file    atomic.Pointer[logFile] // that is written; nil for the journal
}

// writer is owned by serve.
type writer struct {
	to       sink
	chain    link        // the last line
	pending  []byte      // lines that are not written yet
	unsigned int         // lines after the last head
	unmade   int         // lines of a batch that is being written that are not made yet
	maker                // of lines
	used     batch       // room for lines that wait
	spare    []byte      // room for pending
	heads    *time.Timer // fires when a head is due
	headSoon bool        // heads is running
	gone     bool        // lines are lost, and nothing more is written

	elsewhere bool // the file is not at the path any more, and the log has said so
}

var errClosed = errors.New("it is closed")

// Open opens an audit log, and begins with a line that says so.
func Open(opts Options) (*Log, error) {
	l := newLog(opts)
	if err := l.open(); err != nil {
		return nil, fmt.Errorf("audit_log: %w", err)
	}
	go l.serve()
	return l, nil
}

func newLog(opts Options) *Log {
	l := &Log{
		opts: opts, state: stateOf(opts.StateDir, opts.Path),
		soon: time.NewTimer(time.Hour), asked: make(chan chan<- error), quit: make(chan struct{}), ended: make(chan struct{}),
		health: health{opened: time.Now()}, queue: queue{emptied: make(chan struct{})}, writer: writer{heads: time.NewTimer(time.Hour)},
	}
	l.soon.Stop()
	l.heads.Stop()
	l.full.Store(opts.Full)
	return l
}

func (l *Log) open() (err error) {
	if l.opts.StateDir == "" {
		return errors.New("it needs a state_dir, for the key that signs it")
	}
	if l.unlock, err = lock(l.state.lockFile(), lockWait); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			l.unlock()
		}
	}()
	if l.key, err = l.state.signer(); err != nil {
		return err
	}
	var end ending
	if l.opts.Path == Journal {
		l.to = journal{systemd.NewJournal(l.opts.Journal)}
	} else if l.to, end, err = l.openFile(); err != nil {
		return err
	}
	head, err := LastHead(l.opts.StateDir, l.opts.Path)
	if err == nil {
		err = l.resume(end, head)
	}
	if err == nil {
		err = l.writeNow()
	}
	if err != nil {
		_ = l.to.close() // err is more useful
	}
	return err
}

// Now returns the time for Call.Ended, which costs half of what time.Now does.
func (l *Log) Now() time.Duration { return time.Since(l.opened) }

// End notes in a call for how long it took since it began; 0 if it ends now, which needs one more look at the clock.
func (l *Log) End(c *Call, began time.Time, took time.Duration) {
	if took <= 0 {
		took = time.Since(began)
	}
	c.Took, c.Ended = took, began.Sub(l.opened)+took
}

// Path returns where the log is; "" for a nil Log.
func (l *Log) Path() string {
	if l == nil {
		return ""
	}
	return l.opts.Path
}

// Elsewhere returns an error if the file at the path is not the one that is written, as if somebody had rotated it without a
// SIGHUP; else nil. A nil Log is written nowhere.
func (l *Log) Elsewhere() error {
	if l == nil {
		return nil
	}
	if f := l.file.Load(); f != nil && f.moved(l.opts.Path) {
		return errors.New("the audit log was moved, removed or replaced, and its lines go to the file that was there: move that back, or have the log continue here with orla reload")
	}
	return nil
}

func (l *Log) openFile() (sink, ending, error) {
	if err := os.MkdirAll(filepath.Dir(l.opts.Path), 0o700); err != nil {
		return nil, ending{}, err
	}
	f, end, err := openFile(l.opts.Path, lockWait)
	if err != nil {
		return nil, end, err
	}
	l.file.Store(f)
	return f, end, nil
}

// resume continues the chain of a file that ends with end. head is the newest head in the state folder; nil
// for none.
func (l *Log) resume(end ending, head []byte) error {
	var signed link
	if head != nil {
		var err error
		if signed, err = linkOf(head); err == nil {
			err = checkHead(head, verifierOf(l.key.public))
		}
		if err != nil {
			return fmt.Errorf("%s: %w; move it away if you know why, and Orla begins a new chain", l.state.headFile(), err)
		}
	}
	l.chain = signed
	gap := ""
	if end.last != nil {
		last, err := linkOf(end.last)
		if err != nil {
			return fmt.Errorf("%s: the last line: %w; move the file away", l.opts.Path, err)
		}
		switch {
		case head == nil:
		case last.seq < signed.seq:
			gap = fmt.Sprintf("lines %d to %d are missing: Orla had signed line %d", last.seq+1, signed.seq, signed.seq)
		default:
			if gap, err = end.changed(signed, last); err != nil {
				return fmt.Errorf("%s: %w", l.opts.Path, err)
			}
		}
		l.chain = last
	}
	now := time.Now()
	if len(end.fragment) > 0 {
		l.opts.Log.Warn("the audit log ends with a line that was cut; a new line says so", "path", l.opts.Path, "bytes", len(end.fragment))
		l.pending = append(l.pending, '\n')
		sum := hash(sha256.Sum256(end.fragment))
		body := strconv.AppendInt(append(appendBegin(nil, now, eventTorn), `,"bytes":`...), int64(len(end.fragment)), 10)
		body = append(appendHex(append(body, `,"sha256":"`...), sum), `"}`...)
		l.add(body)
	}
	if gap != "" {
		l.opts.Log.Error("the audit log was changed while Orla did not run", "path", l.opts.Path, "err", gap)
		l.add(append(appendText(append(appendBegin(nil, now, eventGap), `,"why":`...), gap), '}'))
	}
	if end.size == 0 && l.opts.Path != Journal {
		l.start(whyNew)
	} else {
		l.start(whyStart)
	}
	return nil
}

// start appends the line that says that Orla begins to write.
func (l *Log) start(why string) {
	body := appendText(append(appendBegin(nil, time.Now(), eventStart), `,"why":`...), why)
	body = appendText(append(body, `,"key":`...), l.key.public)
	body = strconv.AppendInt(append(body, `,"pid":`...), int64(os.Getpid()), 10)
	l.add(append(body, '}'))
}

// add appends a line to those that are to be written.
func (l *Log) add(body []byte) { l.link(append(l.begun(), body...)) }

// begun returns what is to be written with the begin of one more line: its seq and prev.
func (l *Log) begun() []byte { return appendPlace(l.pending, l.chain.seq+1, l.chain.hash) }

// link makes a line, that begun has begun, the last one of the chain.
func (l *Log) link(pending []byte) {
	l.chain = link{l.chain.seq + 1, sha256.Sum256(pending[len(l.pending):])}
	l.pending = append(pending, '\n')
	l.unsigned++
}

// sign appends a head.
func (l *Log) sign(why string) error {
	now := time.Now()
	signed, err := note.Sign(&note.Note{Text: headText(l.chain.seq+1, l.chain.hash, now, why)}, l.key)
	if err != nil {
		return err
	}
	l.add(headBody(now, why, signed))
	l.unsigned = 0
	return nil
}

// SetFull sets Options.Full for the calls that follow. A nil Log ignores it.
func (l *Log) SetFull(full bool) {
	if l != nil {
		l.full.Store(full)
	}
}

// Err returns why calls cannot be recorded now, and must not be made; nil if they can. A nil Log records
// nothing, and has no error.
func (l *Log) Err() error {
	if l == nil {
		return nil
	}
	if why := l.trouble.Load(); why != nil {
		return *why
	}
	if began := l.began.Load(); began != 0 && time.Since(l.opened)-time.Duration(began) > stuck {
		return fmt.Errorf("a write has not ended within %s", stuck)
	}
	return nil
}

// Refused counts a call that was refused because of Err. A line tells their number when lines can be written
// again: each of them could fill what room is left.
func (l *Log) Refused() { l.refused.Add(1) }
