package history

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

const (
	// cutKey is the member that says how many bytes were cut.
	cutKey = "cut_bytes"
	// cutRoom is the largest size of `,"cut_bytes":N}`.
	cutRoom = 40
	// ellipsis ends a text that was cut.
	ellipsis = "…"
)

// shortened returns a line, a JSON object, with at most limit bytes: it cuts long strings, leaves
// out what does not fit, and adds cut_bytes. It keeps the order of the members.
func shortened(line []byte, limit int) []byte {
	if len(line) <= limit {
		return line
	}
	short := make([]byte, 0, limit)
	short = append(short, '{')
	d := json.NewDecoder(bytes.NewReader(line))
	if open, err := d.Token(); err == nil && open == json.Delim('{') {
		short = shortMembers(short, d, limit-cutRoom)
	}
	if len(short) > 1 {
		short = append(short, ',')
	}
	short = append(short, '"')
	short = append(short, cutKey...)
	short = append(short, '"', ':')
	short = strconv.AppendInt(short, int64(len(line)-len(short)), 10)
	return append(short, '}')
}

// shortMembers appends the members that d reads, within limit.
func shortMembers(short []byte, d *json.Decoder, limit int) []byte {
	for d.More() {
		token, err := d.Token()
		key, _ := token.(string) // a member begins with its key
		var value json.RawMessage
		if err == nil {
			err = d.Decode(&value)
		}
		if err != nil {
			return short // not JSON, so not a line of the log
		}
		name, _ := json.Marshal(key) // encoding a string cannot fail
		room := limit - len(short) - len(name) - len(",:")
		if len(value) > room {
			value = shortText(value, room)
		}
		if value == nil {
			continue
		}
		if len(short) > 1 {
			short = append(short, ',')
		}
		short = append(append(append(short, name...), ':'), value...)
	}
	return short
}

// shortText cuts a JSON string to at most room bytes. It returns nil for any other value, and if
// room is too small.
func shortText(value []byte, room int) []byte {
	end := room - len(ellipsis) - len(`"`)
	if value[0] != '"' || end < len(`"`)+1 {
		return nil
	}
	at := 1
	for {
		size := 1
		switch {
		case value[at] == '\\' && value[at+1] == 'u':
			size = len(`\u0000`)
		case value[at] == '\\':
			size = len(`\n`)
		case value[at] >= utf8.RuneSelf:
			_, size = utf8.DecodeRune(value[at:])
		}
		if at+size > end {
			return append(append(value[:at:at], ellipsis...), '"')
		}
		at += size
	}
}
