package logging

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/orla-project/orla/internal/app/systemd"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/internal/observe/history"
)

const (
	// maxEntry is the longest entry of the journal that is read; a byte of a value can take four in it. Longer ones are left out.
	maxEntry = 4 * maxReadLine
	// timeField is the field with the time of the line in the JSON log. The journal's own is later.
	timeField = fieldPrefix + "TIME"
	// unreadable is the message of a line that says why there are no older ones.
	unreadable = "older lines are missing: the journal cannot be read"
)

// ReadJournal returns the lines that q selects of the entries that Orla has written to the journal, and those of kept that the
// journal does not have, about in the order of their times: at most last of them, the newest, or all for 0. Bounds are those of
// ReadBack. If the journal cannot be read, it returns kept, and a line at level warn with the reason.
func ReadJournal(ctx context.Context, q history.Query, last int, kept []history.Line) iter.Seq[history.Line] {
	own := systemd.Own()
	asked := systemd.JournalQuery{Unit: systemd.OwnUnit(), Since: q.Since.Add(-disorder), Newest: last > 0}
	return func(yield func(history.Line) bool) {
		var err error
		entries := func(yield func(history.Line) bool) {
			err = systemd.ReadJournal(ctx, asked, func(r io.Reader) error {
				readEntries(ctx, r, own, func(line history.Line) bool { return !q.Matches(&line) || yield(line) })
				return nil
			})
		}
		newest := func() []history.Line {
			done, ok := count(ctx)
			if !ok {
				return nil
			}
			defer done() // not when they have been taken: that may be slow
			all := slices.Collect(merged(slices.Values(turned(entries, last)), kept))
			return all[max(0, len(all)-last):]
		}
		lines := merged(entries, kept)
		if last > 0 {
			lines = slices.Values(newest())
		}
		for line := range lines {
			if !yield(line) {
				return
			}
		}
		if err != nil && ctx.Err() == nil {
			yield(troubleLine(ctx, err))
		}
	}
}

// turned returns the first lines of an iterator that begins with the newest, as many as may be held, oldest first.
func turned(lines iter.Seq[history.Line], last int) (held []history.Line) {
	size := 0
	for line := range lines {
		if size += len(line.JSON); size > maxHeld {
			break
		}
		if held = append(held, line); len(held) == last {
			break
		}
	}
	slices.Reverse(held)
	return held
}

// troubleLine is a line that says why the journal cannot be read, and what to do.
func troubleLine(ctx context.Context, err error) history.Line {
	hint := "journalctl -u orla shows them"
	if errors.Is(err, systemd.ErrForbidden) {
		hint = "sudo journalctl -u orla shows them; SupplementaryGroups=systemd-journal in the unit lets Orla read them, and its tools, too"
	}
	var line bytes.Buffer
	now := time.Now()
	h := slog.NewJSONHandler(&line, nil)
	r := slog.NewRecord(now, slog.LevelWarn, unreadable, 0)
	r.AddAttrs(slog.Any("err", err), slog.String("hint", hint))
	_ = h.Handle(ctx, r) // a buffer takes all
	return history.Line{Time: now, Level: r.Level, Event: unreadable, JSON: bytes.TrimSuffix(lowerLevel(line.Bytes(), r.Level), []byte("\n"))}
}

// merged joins lines of the journal with lines that are kept, each once, by their times.
func merged(lines iter.Seq[history.Line], kept []history.Line) iter.Seq[history.Line] {
	return func(yield func(history.Line) bool) {
		left := kept
		later, early := map[identity]int{}, map[identity]int{} // kept lines: to be passed on, and passed on before the journal had them
		for i := range left {
			later[identityOf(&left[i])]++
		}
		first := func() bool {
			line := left[0]
			left = left[1:]
			id := identityOf(&line)
			if later[id] == 0 { // the journal had it
				return true
			}
			later[id]--
			early[id]++
			return yield(line)
		}
		for line := range lines {
			for len(left) > 0 && left[0].Time.Before(line.Time) {
				if !first() {
					return
				}
			}
			id := identityOf(&line)
			if early[id] > 0 {
				early[id]--
				continue
			}
			later[id] = max(0, later[id]-1)
			if !yield(line) {
				return
			}
		}
		for len(left) > 0 {
			if !first() {
				return
			}
		}
	}
}

// readEntries passes on the entries of the journal in r, which journalctl has printed, if Orla has written them, until
// yield reports false.
func readEntries(ctx context.Context, r io.Reader, own systemd.Writer, yield func(history.Line) bool) {
	r, end := turns.Pieces(ctx, r)
	defer end()
	in := bufio.NewReaderSize(io.LimitReader(r, maxUnpacked), maxEntry)
	for ctx.Err() == nil {
		raw, err := nextLine(in)
		if err != nil {
			return
		}
		if line, ok := entryLine(raw, own); ok && !yield(line) {
			return
		}
	}
}

// entryLine returns the line of the JSON log that an entry of the journal stands for, if Orla has written it.
func entryLine(raw []byte, own systemd.Writer) (history.Line, bool) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return history.Line{}, false
	}
	if !own.Wrote(func(name string) string { return fieldText(fields[name]) }) {
		return history.Line{}, false
	}
	event := fieldText(fields[fieldPrefix+"MSG"])
	if event == "" { // it may be a line of the JSON log that went to stderr
		text := fieldText(fields["MESSAGE"])
		if !strings.HasPrefix(text, "{") {
			return history.Line{}, false
		}
		return parsed([]byte(text))
	}
	at, err := time.Parse(time.RFC3339Nano, fieldText(fields[timeField]))
	if err != nil {
		from := cmp.Or(fieldText(fields["_SOURCE_REALTIME_TIMESTAMP"]), fieldText(fields["__REALTIME_TIMESTAMP"]))
		micros, err := strconv.ParseInt(from, 10, 64)
		if err != nil {
			return history.Line{}, false
		}
		at = time.UnixMicro(micros).UTC()
	}
	line := []byte(`{"` + slog.TimeKey + `":` + jsonText(at.Format(time.RFC3339Nano)) + `,"` + slog.LevelKey + `":` + jsonText(levelOf(fieldText(fields["PRIORITY"]))) + `,"` + slog.MessageKey + `":` + jsonText(event))
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		key, own := strings.CutPrefix(name, fieldPrefix)
		if key = strings.ToLower(key); own && key != slog.MessageKey && key != slog.TimeKey {
			line = append(line, `,`+jsonText(key)+`:`+valueOf(key, fieldText(fields[name]))...)
		}
	}
	return parsed(terminal.EscapedJSON(append(line, '}')))
}

// fieldText returns the value of a field: journalctl writes one that is not text as the numbers of its bytes, and several of the
// same name as a list.
func fieldText(raw json.RawMessage) string {
	var text string
	var list []json.RawMessage
	switch {
	case len(raw) == 0:
	case raw[0] == '"':
		_ = json.Unmarshal(raw, &text) // it was checked as a part of the entry
	case raw[0] == '[' && json.Unmarshal(raw, &list) == nil && len(list) > 0:
		if list[0][0] == '"' || list[0][0] == '[' {
			return fieldText(list[0])
		}
		value := make([]byte, len(list))
		for i, one := range list {
			n, err := strconv.ParseUint(string(one), 10, 8)
			if err != nil {
				return ""
			}
			value[i] = byte(n)
		}
		return strings.ToValidUTF8(string(value), "\ufffd")
	}
	return text
}

// texts are the keys whose values are texts, also if they look like something else.
var texts = []string{"text", "stderr", "err", "reason", "tool", "caller", "name", "session", "id", "call_id", "version"}

// valueOf returns the value of a key as the JSON log has it: the journal has numbers, lists and objects as texts.
func valueOf(key, text string) string {
	if text != "" && !slices.Contains(texts, key) && strings.Contains("-0123456789tf[{", text[:1]) && json.Valid([]byte(text)) {
		return text
	}
	return jsonText(text)
}

// jsonText returns a text as JSON.
func jsonText(text string) string {
	raw, _ := rawjson.Encode(text) // a text can be encoded
	return string(raw)
}

// levelOf returns the name of the level of a syslog priority.
func levelOf(priority string) string {
	for _, level := range []slog.Level{LevelFatal, slog.LevelError, slog.LevelWarn, slog.LevelInfo} {
		if priority == strconv.Itoa(priorityOf(level)) {
			if level == LevelFatal {
				return "fatal"
			}
			return strings.ToLower(level.String())
		}
	}
	return "debug"
}
