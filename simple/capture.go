package simple

import (
	"slices"
	"unicode/utf8"

	"github.com/orla-project/orla/internal/service/secret"
)

// capture keeps the first bytes of a stream and counts the rest (SPEC C5).
type capture struct {
	limit   int64
	kept    []byte
	dropped int64
	torn    bool // the process was killed, maybe in the middle of a rune

	need func(n int64) error // reserves n more bytes, and may wait for that; nil if not needed
}

func (c *capture) write(p []byte) {
	room := int(min(int64(len(p)), c.limit-int64(len(c.kept))))
	if c.need != nil && room > 0 && c.need(int64(room)) != nil {
		c.limit, room = int64(len(c.kept)), 0 // the call is over
	}
	if more := len(c.kept) + room; more > cap(c.kept) { // append would copy a large output many more times
		c.kept = slices.Grow(c.kept, max(room, int(min(int64(2*cap(c.kept)), c.limit))-len(c.kept)))
	}
	c.kept = append(c.kept, p[:room]...)
	c.dropped += int64(len(p) - room)
}

// redact removes secrets from what was kept. If the rest of the stream was dropped, it also removes
// the beginning of a secret at the end (SPEC-TOOLS 5.3).
func (c *capture) redact(r *secret.Redactor) {
	c.kept = r.RedactBytes(c.kept)
	if c.dropped > 0 {
		whole := len(c.kept)
		c.kept = r.TrimBytes(c.kept)
		c.dropped += int64(whole - len(c.kept))
	}
}

// text returns what was kept as text; false if it is not text.
func (c *capture) text() (string, bool) {
	kept := c.whole()
	return string(kept), utf8.Valid(kept)
}

// whole returns what was kept, without a rune that was cut by the limit or the end of the process.
func (c *capture) whole() []byte {
	kept := c.kept
	if c.dropped > 0 || c.torn {
		for i := 1; i < utf8.UTFMax && i <= len(kept); i++ {
			if tail := kept[len(kept)-i:]; utf8.RuneStart(tail[0]) {
				if !utf8.FullRune(tail) {
					kept = kept[:len(kept)-i]
				}
				break
			}
		}
	}
	return kept
}
