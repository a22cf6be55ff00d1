package logging

import (
	"context"
	"log/slog"
	"time"

	"github.com/lmittmann/tint"

	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/observe/history"
)

// newPeopleHandler returns the handler that formats a line for people.
func newPeopleHandler(out *output, noColor bool) slog.Handler {
	return tint.NewTextHandler(out, &tint.Options{
		Level: slog.LevelDebug, TimeFormat: time.TimeOnly, NoColor: noColor,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			const brightRed = 9
			if level, ok := a.Value.Any().(slog.Level); ok && len(groups) == 0 && a.Key == slog.LevelKey && level >= LevelFatal {
				return tint.Attr(brightRed, slog.String(slog.LevelKey, "FTL"))
			}
			return a
		},
	})
}

// toPeople writes a record for people. A tool's stderr is shown once, as it was written, and not
// again with the following state or call.
func (h *recorder) toPeople(ctx context.Context, r slog.Record, handler slog.Handler) error {
	switch r.Message {
	case history.StderrEvent:
		text, ok := lineOfStderr(r)
		if !ok {
			break
		}
		_, err := h.log.out.Write([]byte(terminal.Labelled(h.toolOf(r), text) + "\n"))
		return err
	case stateEvent:
		shown, stderr := h.stateForPeople(r)
		if err := handler.Handle(ctx, shown); err != nil || stderr == "" {
			return err
		}
		_, err := h.log.out.Write([]byte(terminal.Labelled(h.toolOf(r), stderr) + "\n"))
		return err
	case history.CallEvent, history.AttemptEvent:
		r = mapped(r, func(a slog.Attr) (slog.Attr, bool) {
			if a.Key == "reason" {
				a.Value = slog.StringValue(terminal.OneLine(a.Value.String()))
			}
			return a, true
		})
	}
	return handler.Handle(ctx, r)
}

// stateEvent is the msg of a capsule's change of state.
const stateEvent = "state"

// crashed is the message for people about a capsule that is STOPPED because of its failures. Only a
// change of its files or an operator starts it again.
const crashed = "crashed; waiting for a change"

// stateForPeople returns the record of a change of state for people, and the lines of stderr to show
// below it: none if they were shown when the tool wrote them.
func (h *recorder) stateForPeople(r slog.Record) (shown slog.Record, stderr string) {
	stopped, due := false, false
	r.Attrs(func(a slog.Attr) bool {
		stopped = stopped || a.Key == "to" && a.Value.String() == "STOPPED"
		due = due || a.Key == "next_start_ms"
		return true
	})
	failed := stopped && !due && r.Level >= slog.LevelWarn
	shown = mapped(r, func(a slog.Attr) (slog.Attr, bool) {
		switch a.Key {
		case "stderr":
			if h.log.level.Level() > slog.LevelInfo {
				stderr = a.Value.String()
			}
			return a, false
		case "from", "lasted_ms":
			return a, !failed
		case "pid":
			return a, a.Value.String() != "0" // there is no process
		}
		return a, true
	})
	if failed {
		shown.Message = crashed
	}
	return shown, stderr
}

// mapped returns a record with the attributes that change returns; it leaves out those for which
// change returns false.
func mapped(r slog.Record, change func(slog.Attr) (slog.Attr, bool)) slog.Record {
	other := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if a, keep := change(a); keep {
			other.AddAttrs(a)
		}
		return true
	})
	return other
}

// lineOfStderr returns the text of a record about a line of stderr.
func lineOfStderr(r slog.Record) (text string, ok bool) {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "text" {
			text, ok = a.Value.String(), true
		}
		return !ok
	})
	return text, ok
}
