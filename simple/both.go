package simple

import (
	"context"
	"encoding/json"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
)

// both returns the two streams as one object, as text and as structured content. As JSON they may be
// six times as long; so the size of both forms is reserved once per call, before they are made.
func (c *Command) both(ctx context.Context, r *run) (text mcp.Content, object json.RawMessage, err error) {
	stdout, stderr := r.stdout.whole(), r.stderr.whole()
	size := 0
	c.work(ctx, r, func() { join(stdout, stderr, func(part []byte) { size += len(part) }) })
	if err := turns.AccountOf(ctx).Need(ctx, 2*int64(size)); err != nil {
		return nil, nil, fault.From(err)
	}
	c.work(ctx, r, func() {
		object = make(json.RawMessage, 0, size)
		join(stdout, stderr, func(part []byte) { object = append(object, part...) })
		text = &mcp.TextContent{Text: string(object)}
	})
	return text, object, nil
}

// join calls each with the parts of the object that contains both streams.
func join(stdout, stderr []byte, each func(part []byte)) {
	each([]byte(`{"stdout":"`))
	escape(stdout, each)
	each([]byte(`","stderr":"`))
	escape(stderr, each)
	each([]byte(`"}`))
}

// escape calls each with the parts of text as a JSON string without the quotes. A run of bytes that
// are not UTF-8 becomes one U+FFFD.
func escape(text []byte, each func(part []byte)) {
	const hex = "0123456789abcdef"
	short := [...]byte{'\b': 'b', '\t': 't', '\n': 'n', '\f': 'f', '\r': 'r', '"': '"', '\\': '\\'}
	var code [6]byte
	begin := 0 // of the part that needs no escape
	for i := 0; i < len(text); {
		c := text[i]
		if c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\' {
			i++
			continue
		}
		instead, size := code[:0], 1
		switch char, n := utf8.DecodeRune(text[i:]); {
		case c < utf8.RuneSelf && short[c] != 0:
			instead = append(instead, '\\', short[c])
		case c < utf8.RuneSelf:
			instead = append(instead, '\\', 'u', '0', '0', hex[c>>4], hex[c&0xf])
		case char == utf8.RuneError && n == 1:
			instead = utf8.AppendRune(instead, utf8.RuneError)
			for size < len(text)-i && broken(text[i+size:]) {
				size++
			}
		case char == '\u2028' || char == '\u2029': // JavaScript treats them as line ends
			instead, size = append(instead, '\\', 'u', '2', '0', '2', hex[char&0xf]), n
		default:
			i += n
			continue
		}
		each(text[begin:i])
		each(instead)
		i += size
		begin = i
	}
	each(text[begin:])
}

// broken reports whether text begins with a byte that is not UTF-8.
func broken(text []byte) bool {
	char, n := utf8.DecodeRune(text)
	return char == utf8.RuneError && n == 1
}
