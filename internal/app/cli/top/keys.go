package top

import (
	"bytes"
	"unicode/utf8"
)

// Keys that are not characters. Others are the character itself.
const (
	keyUp        = "up"
	keyDown      = "down"
	keyPageUp    = "page up"
	keyPageDown  = "page down"
	keyHome      = "home"
	keyEnd       = "end"
	keyEnter     = "enter"
	keyEscape    = "escape"
	keyBackspace = "backspace"
	keyInterrupt = "interrupt"
)

// sequences are what terminals send for keys.
var sequences = []struct{ sent, key string }{
	{"\x1b[A", keyUp},
	{"\x1bOA", keyUp},
	{"\x1b[B", keyDown},
	{"\x1bOB", keyDown},
	{"\x1b[5~", keyPageUp},
	{"\x1b[6~", keyPageDown},
	{"\x1b[H", keyHome},
	{"\x1bOH", keyHome},
	{"\x1b[1~", keyHome},
	{"\x1b[F", keyEnd},
	{"\x1bOF", keyEnd},
	{"\x1b[4~", keyEnd},
	{"\r", keyEnter},
	{"\n", keyEnter},
	{"\x7f", keyBackspace},
	{"\b", keyBackspace},
	{"\x03", keyInterrupt},
	{"\x04", keyInterrupt},
}

// keysIn returns the keys in what a terminal sent at once. It leaves out sequences that it does not know.
func keysIn(sent []byte) (keys []string) {
next:
	for len(sent) > 0 {
		for _, s := range sequences {
			if bytes.HasPrefix(sent, []byte(s.sent)) {
				keys = append(keys, s.key)
				sent = sent[len(s.sent):]
				continue next
			}
		}
		if sent[0] == '\x1b' {
			if len(sent) == 1 {
				return append(keys, keyEscape)
			}
			sent = sent[lengthOf(sent):]
			continue
		}
		r, size := utf8.DecodeRune(sent)
		if r >= ' ' && r != utf8.RuneError {
			keys = append(keys, string(sent[:size]))
		}
		sent = sent[size:]
	}
	return keys
}

// lengthOf returns the length of a control sequence that begins with ESC (ECMA-48, 5.4).
func lengthOf(sent []byte) int {
	if sent[1] != '[' && sent[1] != 'O' {
		return 2
	}
	for i := 2; i < len(sent); i++ {
		if sent[i] >= 0x40 && sent[i] <= 0x7e {
			return i + 1
		}
	}
	return len(sent)
}
