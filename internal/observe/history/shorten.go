package history

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

const (
	// cutKey tells how many bytes a line had more.
	cutKey = "cut_bytes"
	// cutRoom is what `,"cut_bytes":N}` takes at most.
	cutRoom = 40
	// ellipsis ends a text that was cut.
	ellipsis = "…"
)

// shortened returns a line, a JSON object, that is no longer than limit: texts
// that do not fit are cut, what then does not fit is left out, and cut_bytes
// says how much that is. It keeps the order of the members.
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

// shortMembers appends the members that d has, as far as there is room up to limit.
func shortMembers(short []byte, d *json.Decoder, limit int) []byte {
	for d.More() {
		token, err := d.Token()
		key, _ := token.(string) // a member begins with its name
		var value json.RawMessage
		if err == nil {
			err = d.Decode(&value)
		}
		if err != nil {
			return short // no JSON, and no line of the log
		}
		name, _ := json.Marshal(key) // a string always can be
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

// shortText cuts a JSON string to at most room bytes. It returns nil for any
// other value, and where there is no room for a start.
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
