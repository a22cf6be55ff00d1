package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// patience bounds every wait for something that must come. The machine may be a
// small one and busy; nothing waits for so long unless something is wrong.
const patience = 60 * time.Second

// life is one process of Orla, from its start to its end.
type life struct {
	cmd  *exec.Cmd
	book *book
	url  string        // of /mcp, without a path; set before the life is handed out
	over chan struct{} // closed when it has ended and its log is read
	base *level        // what it held after its first storm; of the goroutine of the rounds
	err  error         // how it ended; set before over is closed

	file *logFile // that it logs to; nil for stderr

	mu        sync.Mutex // guards what follows
	apart     []timed    // lines of two ways that are not judged yet; only with file
	history   *histories
	last      []string        // lines of its log
	noise     bool            // inside what the race detector or a panic prints
	unwatched map[string]bool // capsules whose changes came too often to count (SPEC E3), at least for a while
}

// startLife starts Orla and waits until it serves.
// It logs to file, if that is not "", and else to stderr.
func startLife(ctx context.Context, o options, b *book, number int, file string) (*life, error) {
	l := &life{book: b, over: make(chan struct{}), history: newHistories(), unwatched: map[string]bool{}}
	if file != "" {
		l.file = &logFile{path: file, done: make(chan struct{})}
	}
	l.cmd = exec.CommandContext(context.WithoutCancel(ctx), o.orla, "--config", filepath.Join(o.dir, "orla.yaml"))
	l.cmd.Dir = o.dir
	l.cmd.Env = l.environ(o)
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	l.cmd.Stderr = in
	err = l.cmd.Start()
	_ = in.Close() // Orla has its own
	if err != nil {
		_ = out.Close() // it was not read
		return nil, err
	}
	kept, err := os.Create(filepath.Join(o.dir, "log", fmt.Sprintf("orla-%03d.log", number)))
	if err != nil {
		return nil, err
	}
	serving := make(chan string, 1)
	go l.attend(out, kept, serving)
	select {
	case l.url = <-serving:
		b.event("Orla %d serves at %s", l.cmd.Process.Pid, l.url)
		return l, nil
	case <-l.over:
		return nil, fmt.Errorf("it ended at its start: %w; it said:\n%s", l.err, strings.Join(l.tail(20), "\n"))
	case <-time.After(patience):
		return nil, fmt.Errorf("it does not serve after %s; it said:\n%s", patience, strings.Join(l.tail(20), "\n"))
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *life) environ(o options) []string {
	return append(os.Environ(),
		"HOME="+filepath.Join(o.dir, "home"), "XDG_RUNTIME_DIR="+filepath.Join(o.dir, "run"), "TMPDIR="+filepath.Join(o.dir, "tmp"),
		"XDG_STATE_HOME="+filepath.Join(o.dir, "state"), envJournal+"="+filepath.Join(o.dir, "journal"))
}

// attend reads the log to its end by both ways, keeps it in one file, and judges
// every line.
func (l *life) attend(stderr, kept *os.File, serving chan<- string) {
	defer close(l.over)
	take := func(raw []byte, filed bool) {
		_, _ = kept.Write(append(raw, '\n')) // it is for people
		l.take(raw, filed, serving)
	}
	var reader sync.WaitGroup
	if l.file != nil {
		reader.Go(func() { l.file.follow(func(raw []byte) { take(raw, true) }) })
	}
	in := bufio.NewReaderSize(stderr, 1<<20)
	for {
		raw, err := in.ReadBytes('\n')
		if raw = bytes.TrimSpace(raw); len(raw) > 0 {
			take(raw, false)
		}
		if err != nil {
			break
		}
	}
	l.err = l.cmd.Wait()
	if l.file != nil {
		close(l.file.done)
		reader.Wait()
		_ = l.file.close() // it was only read
		l.judgeApart()
	}
	_, _ = stderr.Close(), kept.Close() // all is read, and written
}

// judgeApart judges what came by two ways and is whole now.
func (l *life) judgeApart() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range inTurn(l.apart) {
		l.judge(t.line)
	}
	l.apart = nil
}

// judge judges a line in its turn. The caller holds mu.
func (l *life) judge(line map[string]any) {
	l.book.count(l.book.moves, text(line, "from")+" to "+text(line, "to"), 1)
	for _, f := range l.history.read(line) {
		l.book.violated("D1", "%s: %v", f, line)
	}
}

// take takes one line; filed says that it is from the file.
func (l *life) take(raw []byte, filed bool, serving chan<- string) {
	var line map[string]any
	l.mu.Lock()
	defer l.mu.Unlock()
	if json.Unmarshal(raw, &line) != nil {
		l.remember(string(raw))
		if filed {
			return // the disk was full; the line is on stderr as a whole
		}
		// A line that is not JSON comes from the Go runtime or from nobody.
		if !l.noise {
			l.noise = true
			l.book.violated("log", "Orla printed something that is not a log line: %.500s", raw)
		}
		return
	}
	if line["msg"] != "call" {
		l.remember(string(raw))
	}
	if url, ok := line["url"].(string); ok && line["msg"] == "serving" {
		select {
		case serving <- strings.TrimSuffix(url, "/mcp"):
		default: // it is known
		}
	}
	switch msg := text(line, "msg"); {
	case strings.Contains(msg, "panic"):
		l.book.violated("panic", "%.2000s", raw)
	case strings.HasPrefix(msg, "one file has made the capsule reload too often"):
		l.unwatched[text(line, "tool")] = true
	}
	switch {
	case line["msg"] != "state":
	case l.file != nil:
		at, err := time.Parse(time.RFC3339Nano, text(line, "time"))
		if err != nil {
			l.book.violated("log", "%v: %.300s", err, raw)
		}
		l.apart = append(l.apart, timed{at, line})
	default:
		l.judge(line)
	}
}

func (l *life) remember(line string) {
	l.last = append(l.last, line)
	l.last = l.last[max(0, len(l.last)-200):]
}

func (l *life) tail(n int) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last[max(0, len(l.last)-n):]
}

// isUnwatched reports whether a capsule may not reload by itself when it is saved.
func (l *life) isUnwatched(tool string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unwatched[tool]
}

func (l *life) pid() int { return l.cmd.Process.Pid }

func (l *life) signal(sig syscall.Signal) { _ = l.cmd.Process.Signal(sig) } // it may be over

// isOver reports whether it has ended.
func (l *life) isOver() bool {
	select {
	case <-l.over:
		return true
	default:
		return false
	}
}

// command runs one of the operator's commands, and returns its exit code.
func (l *life) command(ctx context.Context, o options, args ...string) (code int, text string) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, o.orla, append([]string{"--config", filepath.Join(o.dir, "orla.yaml")}, args...)...)
	cmd.Dir, cmd.Env = o.dir, l.environ(o)
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), string(out)
	}
	if err != nil {
		return -1, err.Error()
	}
	return 0, string(out)
}
