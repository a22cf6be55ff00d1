package logging

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"slices"
	"sync"

	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/observe/history"
)

// recorder is the handler of the log. It makes JSON from each record once, for the history and, if
// that shows JSON, for the output.
type recorder struct {
	log      *Log
	given    []slog.Attr                  // attributes of the logger, in their groups
	group    string                       // of the attributes of records, with a dot at its end; "" for none
	toJSON   func(io.Writer) slog.Handler // makes a JSON handler with these attributes
	encoders *sync.Pool                   // of *encoder
	coloured slog.Handler                 // for a terminal with colours
	plain    slog.Handler                 // for people, without colours
}

// encoder makes the JSON of one record at a time, and a journal entry.
type encoder struct {
	slog.Handler
	line  bytes.Buffer
	plain []byte // in place of line
	entry []byte
}

// maxSpareLine bounds the memory that an encoder keeps for the next line.
const maxSpareLine = 64 << 10

func newRecorder(log *Log) *recorder {
	return (&recorder{log: log, coloured: newPeopleHandler(log.out, false), plain: newPeopleHandler(log.out, true)}).with(func(w io.Writer) slog.Handler {
		return slog.NewJSONHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug})
	})
}

// with changes the JSON handler.
func (h *recorder) with(toJSON func(io.Writer) slog.Handler) *recorder {
	h.toJSON = toJSON
	h.encoders = &sync.Pool{New: func() any {
		e := &encoder{}
		e.Handler = toJSON(&e.line)
		return e
	}}
	return h
}

// Enabled reports whether a record is needed: the history has all from info on.
func (h *recorder) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || level >= h.log.level.Level()
}

// Handle writes a record, after records about lines that were lost before it.
func (h *recorder) Handle(ctx context.Context, r slog.Record) error {
	for _, news := range h.log.out.news(r.Time) {
		if err := h.log.handler.write(ctx, news); err != nil {
			return err
		}
	}
	return h.write(ctx, r)
}

func (h *recorder) write(ctx context.Context, r slog.Record) error {
	r.Message = terminal.Printable(r.Message) // tint does not escape the message
	e, _ := h.encoders.Get().(*encoder)
	defer func() {
		if e.line.Cap()+cap(e.plain)+cap(e.entry) <= maxSpareLine {
			e.line.Reset()
			h.encoders.Put(e)
		}
	}()
	line, err := h.encode(ctx, e, r)
	if err != nil {
		return err
	}
	h.log.kept.Add(history.Line{
		Time: r.Time, Level: r.Level, Tool: h.toolOf(r), Event: r.Message,
		JSON: bytes.TrimSuffix(line, []byte("\n")),
	})
	look := h.log.look.Load()
	switch {
	case r.Level < h.log.level.Level(), history.IsOnly(ctx):
		return nil
	case look.format == Journal:
		e.entry = appendEntry(e.entry[:0], r, h.given, h.group)
		return h.log.out.record(e.entry, line, priorityOf(r.Level))
	case look.format == Pretty && look.colour:
		return h.toPeople(ctx, r, h.coloured)
	case look.format == Pretty:
		return h.toPeople(ctx, r, h.plain)
	}
	if r.Message == history.CallEvent {
		return h.log.out.writeSoon(line)
	}
	_, err = h.log.out.Write(line)
	return err
}

// encode returns the JSON of a record, which e holds.
func (h *recorder) encode(ctx context.Context, e *encoder, r slog.Record) ([]byte, error) {
	if len(h.given) == 0 && h.group == "" {
		var plain bool
		if e.plain, plain = appendPlain(e.plain[:0], r); plain {
			return e.plain, nil
		}
	}
	if err := e.Handle(ctx, r); err != nil {
		return nil, err
	}
	return terminal.EscapedJSON(lowerLevel(e.line.Bytes(), r.Level)), nil
}

// toolOf returns the tool that a record is about. A name that is not the name of a tool does not
// count, unless a call has it: otherwise clients could push out the history of real tools.
func (h *recorder) toolOf(r slog.Record) string {
	tool := ""
	for _, a := range h.given {
		if a.Key == "tool" {
			tool = a.Value.String()
		}
	}
	if h.group != "" {
		return tool
	}
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "tool":
			tool = a.Value.String()
		case "code":
			if a.Value.String() == string(fault.UnsupportedTool) {
				tool = ""
			}
		}
		return true
	})
	return tool
}

// WithAttrs implements slog.Handler.
func (h *recorder) WithAttrs(attrs []slog.Attr) slog.Handler {
	own := *h
	own.given = slices.Clone(h.given)
	for _, a := range attrs {
		a.Key = h.group + a.Key
		own.given = append(own.given, a)
	}
	own.coloured, own.plain = h.coloured.WithAttrs(attrs), h.plain.WithAttrs(attrs)
	return own.with(func(w io.Writer) slog.Handler { return h.toJSON(w).WithAttrs(attrs) })
}

// WithGroup implements slog.Handler.
func (h *recorder) WithGroup(name string) slog.Handler {
	own := *h
	own.group += name + "."
	own.coloured, own.plain = h.coloured.WithGroup(name), h.plain.WithGroup(name)
	return own.with(func(w io.Writer) slog.Handler { return h.toJSON(w).WithGroup(name) })
}
