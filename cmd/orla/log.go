package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/term"

	"github.com/orla-project/orla/internal/history"
)

// levelFatal is for what ends the program.
const levelFatal = slog.Level(12)

// levels are the names of RFC 1 §6.4.
var levels = map[string]slog.Level{
	"debug": slog.LevelDebug,
	"info":  slog.LevelInfo,
	"warn":  slog.LevelWarn,
	"error": slog.LevelError,
	"fatal": levelFatal,
}

// logging is the program's log: where it goes and what it shows may change
// while it runs. What was said last is in its history, shown or not.
type logging struct {
	*slog.Logger
	level slog.LevelVar
	out   *logFile
	kept  *history.History

	pretty atomic.Bool
}

// newLogging returns a log on stderr at level info.
func newLogging(stderr io.Writer) *logging {
	l := &logging{out: &logFile{fallback: newSteady(stderr)}, kept: history.New()}
	l.Logger = slog.New(newRecorder(l, !colourful(stderr)))
	return l
}

// history is what the log said last: every line at info and above, and those
// that log_level shows.
func (l *logging) history() *history.History { return l.kept }

// configure makes the log what cfg says, from the next line on, with file as
// openLog returned it for cfg.LogFile.
func (l *logging) configure(cfg *Config, file *os.File) {
	l.level.Set(levels[cfg.LogLevel])
	l.pretty.Store(cfg.LogFormat == "pretty")
	l.out.use(file)
}

// lowerLevel writes levels as the configuration names them.
func lowerLevel(groups []string, a slog.Attr) slog.Attr {
	if len(groups) > 0 || a.Key != slog.LevelKey {
		return a
	}
	level, ok := a.Value.Any().(slog.Level)
	if !ok {
		return a
	}
	if level >= levelFatal {
		return slog.String(slog.LevelKey, "fatal")
	}
	return slog.String(slog.LevelKey, strings.ToLower(level.String()))
}

// colourful reports whether w is a terminal whose user did not refuse colours.
func colourful(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && os.Getenv("NO_COLOR") == "" && term.IsTerminal(int(f.Fd()))
}

// logFile writes to a file that can be opened anew, as logrotate wants it, or
// to a fallback while there is none.
type logFile struct {
	fallback *steady

	mu   sync.Mutex // guards file
	file *os.File
}

// lost returns how many lines the fallback dropped, once.
func (f *logFile) lost() int { return f.fallback.lost() }

// openLog opens log_file for appending. It returns nil for an empty path, which
// is the fallback.
func openLog(path string) (*os.File, error) {
	if path == "" {
		return nil, nil
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY|syscall.O_NONBLOCK, 0o640) // opening a FIFO does not wait
	if err != nil {
		return nil, fmt.Errorf("log_file: %w", err)
	}
	return file, nil
}

// use writes to file, or to the fallback for nil, in place of what was open.
func (f *logFile) use(file *os.File) {
	f.mu.Lock()
	old := f.file
	f.file = file
	f.mu.Unlock()
	if old != nil {
		_ = old.Close() // each line has been written by itself
	}
}

func (f *logFile) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file != nil {
		return f.file.Write(p)
	}
	return f.fallback.Write(p)
}
