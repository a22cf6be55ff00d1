// Package logging is Orla's log: JSON lines, lines for people or journal entries, on stderr or in a
// file. A reader that does not read cannot block Orla, and the last lines are kept in a history.
package logging

import (
	"bytes"
	"context"
	"io"
	"log"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"

	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/observe/history"
)

// LevelFatal is the level of errors that end the program.
const LevelFatal = slog.Level(12)

// Levels are the log levels by their names in RFC 1 §6.4.
var Levels = map[string]slog.Level{
	"debug": slog.LevelDebug,
	"info":  slog.LevelInfo,
	"warn":  slog.LevelWarn,
	"error": slog.LevelError,
	"fatal": LevelFatal,
}

// The values of log_format.
const (
	JSON    = "json"
	Pretty  = "pretty"
	Journal = "journald"
)

// Log is the program's log. Its level, format and output may change while the program runs. Its
// history has the last lines, including those that the level hides.
type Log struct {
	*slog.Logger
	handler *recorder // the handler of Logger
	level   slog.LevelVar
	look    atomic.Pointer[look]
	out     *output
	kept    *history.History

	terminal bool // stderr is a terminal, and colours are allowed
}

// look is how lines are shown.
type look struct {
	format string // one of log_format's values
	colour bool
}

// New returns a log on stderr, in JSON and at level info. journal is the path of journald's socket.
func New(stderr io.Writer, journal string) *Log {
	l := &Log{out: newOutput(stderr, journal), kept: history.New(), terminal: terminal.Colourful(stderr)}
	l.look.Store(&look{format: JSON})
	l.handler = newRecorder(l)
	l.Logger = slog.New(l.handler)
	return l
}

// History returns the last lines: all those at info and above, and those that log_level shows.
func (l *Log) History() *history.History { return l.kept }

// Configure sets the log's level (log_level), its format (log_format) and its file, as OpenFile
// returned it for log_file, for all following lines.
func (l *Log) Configure(level, format string, file *os.File) {
	l.level.Set(Levels[level])
	l.look.Store(&look{format: format, colour: l.terminal && file == nil})
	l.out.use(file)
}

// TakeStandard has what Go's own library logs come here, at level debug: a service can make the library's HTTP client write
// a line for each frame that it sends (SPEC S2). It is for the whole process.
func (l *Log) TakeStandard() {
	log.SetFlags(0)                   //nolint:forbidigo // it is what comes here
	log.SetOutput(standard{l.Logger}) //nolint:forbidigo // the same
}

// DropStandard drops what Go's own library logs, in a command whose terminal is for its answers. It is for the whole process.
func DropStandard() { log.SetOutput(io.Discard) } //nolint:forbidigo // nothing else writes there

// standard is a writer of lines of package log.
type standard struct{ to *slog.Logger }

// Write implements io.Writer.
func (s standard) Write(line []byte) (int, error) {
	if s.to.Enabled(context.Background(), slog.LevelDebug) { // string copies the line
		s.to.Debug("Go's library says", "text", string(bytes.TrimSuffix(line, []byte("\n"))))
	}
	return len(line), nil
}

// Flush writes the lines that are buffered.
func (l *Log) Flush() { l.out.flush() }

// Dropped returns how many lines were dropped since the start.
func (l *Log) Dropped() int64 { return l.out.droppedInAll() }

// lowerLevel writes the level in a line of slog in the spelling of the configuration. It may change
// line. A ReplaceAttr function of slog would add a quarter to a line's time.
func lowerLevel(line []byte, level slog.Level) []byte {
	const key = `"` + slog.LevelKey + `":"`
	at := bytes.Index(line, []byte(key)) + len(key) // the level comes before everything that a caller gave
	end := at + bytes.IndexByte(line[at:], '"')
	if level >= LevelFatal {
		return slices.Concat(line[:at], []byte("fatal"), line[end:])
	}
	copy(line[at:end], bytes.ToLower(line[at:end]))
	return line
}
