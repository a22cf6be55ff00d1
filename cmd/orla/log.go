package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lmittmann/tint"
	"golang.org/x/term"
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
// while it runs.
type logging struct {
	*slog.Logger
	level  slog.LevelVar
	pretty atomic.Bool
	out    *logFile
}

// newLogging returns a log on stderr at level info.
func newLogging(stderr io.Writer) *logging {
	reader := newSteady(stderr)
	l := &logging{out: &logFile{fallback: reader}}
	jsonHandler := slog.NewJSONHandler(l.out, &slog.HandlerOptions{Level: &l.level, ReplaceAttr: lowerLevel})
	prettyHandler := tint.NewTextHandler(l.out, &tint.Options{
		Level:      &l.level,
		TimeFormat: time.TimeOnly,
		NoColor:    !colourful(stderr),
	})
	l.Logger = slog.New(&eitherHandler{lost: reader.lost, pretty: &l.pretty, ifPretty: prettyHandler, ifNot: jsonHandler})
	return l
}

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

// eitherHandler writes by one of two handlers, as a switch says at that moment.
type eitherHandler struct {
	lost            func() int // lines that were dropped and have not been told of
	pretty          *atomic.Bool
	ifPretty, ifNot slog.Handler
}

func (h *eitherHandler) now() slog.Handler {
	if h.pretty.Load() {
		return h.ifPretty
	}
	return h.ifNot
}

func (h *eitherHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.ifNot.Enabled(ctx, level) // both share one level
}

func (h *eitherHandler) Handle(ctx context.Context, r slog.Record) error {
	if n := h.lost(); n > 0 {
		gap := slog.NewRecord(r.Time, slog.LevelWarn, "log lines were dropped: nobody read them", 0)
		gap.AddAttrs(slog.Int("lines", n))
		if err := h.now().Handle(ctx, gap); err != nil {
			return err
		}
	}
	return h.now().Handle(ctx, r)
}

func (h *eitherHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &eitherHandler{h.lost, h.pretty, h.ifPretty.WithAttrs(attrs), h.ifNot.WithAttrs(attrs)}
}

func (h *eitherHandler) WithGroup(name string) slog.Handler {
	return &eitherHandler{h.lost, h.pretty, h.ifPretty.WithGroup(name), h.ifNot.WithGroup(name)}
}

// logFile writes to a file that can be opened anew, as logrotate wants it, or
// to a fallback while there is none.
type logFile struct {
	fallback io.Writer

	mu   sync.Mutex // guards file
	file *os.File
}

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
