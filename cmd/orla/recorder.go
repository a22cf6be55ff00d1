package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/lmittmann/tint"

	"github.com/orla-project/orla/internal/fault"
	"github.com/orla-project/orla/internal/history"
)

// recorder is the handler of the log. Each record becomes JSON once: that line
// goes to the history, and to the output where it is to show JSON.
type recorder struct {
	log      *logging
	tool     string                       // of the attributes that the logger was given; "" for none
	grouped  bool                         // the attributes of records are in a group
	toJSON   func(io.Writer) slog.Handler // with these attributes
	encoders *sync.Pool                   // of *encoder
	toText   slog.Handler                 // for people
}

// encoder makes JSON of one record at a time.
type encoder struct {
	slog.Handler
	line bytes.Buffer
}

// maxSpareLine bounds the memory that an encoder keeps for the next line.
const maxSpareLine = 64 << 10

func newRecorder(log *logging, noColor bool) *recorder {
	return (&recorder{
		log:    log,
		toText: tint.NewTextHandler(log.out, &tint.Options{Level: slog.LevelDebug, TimeFormat: time.TimeOnly, NoColor: noColor}),
	}).with(func(w io.Writer) slog.Handler {
		return slog.NewJSONHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: lowerLevel})
	})
}

// with makes JSON in another way from now on.
func (h *recorder) with(toJSON func(io.Writer) slog.Handler) *recorder {
	h.toJSON = toJSON
	h.encoders = &sync.Pool{New: func() any {
		e := &encoder{}
		e.Handler = toJSON(&e.line)
		return e
	}}
	return h
}

// Enabled reports whether a record is worth making: the history has all from
// info on.
func (h *recorder) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || level >= h.log.level.Level()
}

// Handle writes a record, after word of those that were lost before it.
func (h *recorder) Handle(ctx context.Context, r slog.Record) error {
	if n := h.log.out.lost(); n > 0 {
		gap := slog.NewRecord(r.Time, slog.LevelWarn, "log lines were dropped: nobody read them", 0)
		gap.AddAttrs(slog.Int("lines", n))
		if err := h.write(ctx, gap); err != nil {
			return err
		}
	}
	return h.write(ctx, r)
}

func (h *recorder) write(ctx context.Context, r slog.Record) error {
	r.Message = printable(r.Message) // tint writes it as it is
	e, _ := h.encoders.Get().(*encoder)
	defer func() {
		if e.line.Cap() <= maxSpareLine {
			e.line.Reset()
			h.encoders.Put(e)
		}
	}()
	if err := e.Handle(ctx, r); err != nil {
		return err
	}
	line := plain(e.line.Bytes())
	h.log.kept.Add(history.Line{
		Time: r.Time, Level: r.Level, Tool: h.toolOf(r), Event: r.Message,
		JSON: bytes.TrimSuffix(line, []byte("\n")),
	})
	switch {
	case r.Level < h.log.level.Level():
		return nil
	case h.log.pretty.Load():
		return h.toText.Handle(ctx, r)
	}
	_, err := h.log.out.Write(line)
	return err
}

// plain escapes what slog leaves in a line of JSON although some terminals obey
// it: the control characters from U+0080 to U+009F.
func plain(line []byte) []byte {
	const lead = 0xC2 // of their UTF-8, and that of the 32 characters after them
	for from := 0; ; {
		i := bytes.IndexByte(line[from:], lead)
		if i < 0 || from+i+1 == len(line) {
			return line
		}
		from += i
		if c := line[from+1]; c < 0xA0 {
			line = slices.Replace(line, from, from+2, fmt.Appendf(nil, `\u%04x`, c)...)
		}
		from++
	}
}

// toolOf is the tool that a record is about. One that there is not, but in a
// client's call, is none: whoever calls could push out the history of others.
func (h *recorder) toolOf(r slog.Record) string {
	tool := h.tool
	if h.grouped {
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

// WithAttrs is of slog.Handler.
func (h *recorder) WithAttrs(attrs []slog.Attr) slog.Handler {
	own := *h
	for _, a := range attrs {
		if a.Key == "tool" && !h.grouped {
			own.tool = a.Value.String()
		}
	}
	own.toText = h.toText.WithAttrs(attrs)
	return own.with(func(w io.Writer) slog.Handler { return h.toJSON(w).WithAttrs(attrs) })
}

// WithGroup is of slog.Handler.
func (h *recorder) WithGroup(name string) slog.Handler {
	own := *h
	own.grouped = true
	own.toText = h.toText.WithGroup(name)
	return own.with(func(w io.Writer) slog.Handler { return h.toJSON(w).WithGroup(name) })
}
