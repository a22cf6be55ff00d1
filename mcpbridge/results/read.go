package results

import (
	"encoding/base64"
	"encoding/json"
	"sync/atomic"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/file/memfile"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// Kept is an answer in a Store, or a part of one. Its bytes are outside of the heap, and are read in portions. A read of
// what was dropped since Get fails with memfile.ErrGone.
type Kept struct {
	bytes    *memfile.Bytes
	from, to int
	blob     bool // it is not text
	mime     string
	encoded  *atomic.Int64 // what EncodedSize has returned; 0 before. It is nil for a part.

	// Rest is called between portions that are read, as turns.Account.WorkInParts wants it. If nil, nothing is.
	Rest func()
}

// put keeps the bytes of an answer.
func (l *Store) put(a Large) Kept {
	k := Kept{to: a.Size(), blob: a.blob != nil, mime: a.mime, encoded: new(atomic.Int64)}
	if k.blob {
		k.bytes = memfile.Keep(&l.area, a.blob, a.rest)
	} else {
		k.bytes = memfile.Keep(&l.area, a.text, a.rest)
	}
	return k
}

// Size returns its size in bytes.
func (k Kept) Size() int { return k.to - k.from }

// EncodedSize returns its size as JSON, in bytes: the most that it can be.
func (k Kept) EncodedSize() (int64, error) {
	if k.encoded != nil && k.encoded.Load() > 0 {
		return k.encoded.Load(), nil
	}
	size := int64(len(`""`))
	if k.blob {
		size += int64(base64.StdEncoding.EncodedLen(k.Size()))
	} else if err := k.portions(func(p []byte) { size += jsonSize(rawjson.View(p)) - int64(len(`""`)) }); err != nil {
		return 0, err
	}
	if k.encoded != nil {
		k.encoded.Store(size)
	}
	return size, nil
}

// portion is how many bytes are read at once. Three of them are four of base64.
const portion = 48 << 10

// portions calls each with the bytes in order, until they end. What it gets is good until it returns, and does not end
// within a rune of a text.
func (k Kept) portions(each func([]byte)) error {
	buf := make([]byte, min(portion, k.Size()))
	for at := k.from; at < k.to; {
		n, err := k.bytes.Read(buf[:min(len(buf), k.to-at)], at)
		if err != nil {
			return err
		}
		if !k.blob && at+n < k.to {
			n = wholeRunes(buf[:n])
		}
		each(buf[:n])
		if at += n; k.Rest != nil && at < k.to {
			k.Rest()
		}
	}
	return nil
}

// wholeRunes returns how many bytes there are without a rune at the end that goes on behind it.
func wholeRunes(p []byte) int {
	for i := len(p) - 1; i > 0 && i > len(p)-utf8.UTFMax; i-- {
		if utf8.RuneStart(p[i]) {
			if !utf8.FullRune(p[i:]) {
				return i
			}
			break
		}
	}
	return len(p)
}

// Read returns the answer as the result of a resources/read. size is EncodedSize. self is the server's Implementation
// as JSON in the stateless era; nil in the others.
func (k Kept) Read(uri string, size int64, self json.RawMessage) (wire.Parts, error) {
	head := append([]byte(`{"contents":[{"uri":`), rawjson.Quote(uri)...)
	if k.mime != "" {
		head = append(append(head, `,"mimeType":`...), rawjson.Quote(k.mime)...)
	}
	whole := append(make([]byte, 0, size), '"')
	var err error
	if k.blob {
		head = append(head, `,"blob":`...)
		err = k.portions(func(p []byte) { whole = base64.StdEncoding.AppendEncode(whole, p) })
	} else {
		head = append(head, `,"text":`...)
		err = k.portions(func(p []byte) {
			last := len(whole) - 1 // the quote before this portion
			before := whole[last]
			whole = rawjson.AppendQuote(whole[:last], rawjson.View(p))
			whole[last], whole = before, whole[:len(whole)-1]
		})
	}
	if err != nil {
		return nil, err
	}
	whole = append(whole, '"')
	if self == nil {
		return wire.Parts{head, whole, []byte("}]}")}, nil
	}
	const era = `}],"resultType":"complete","ttlMs":0,"cacheScope":"private","_meta":{"` + mcp.MetaKeyServerInfo + `":`
	return wire.Parts{head, whole, []byte(era), self, []byte("}}")}, nil
}

// Part returns up to most bytes, from an offset on. Both ends of a text are moved back to the
// beginning of a rune, so that consecutive parts neither overlap nor leave a gap.
func (k Kept) Part(from, most int) (Kept, error) {
	k.encoded = nil
	size := k.Size()
	from = min(from, size)
	to := from + min(most, size-from)
	from, err := k.runeStart(from)
	if err == nil {
		to, err = k.runeStart(to)
	}
	k.from, k.to = k.from+from, k.from+to
	return k, err
}

// runeStart returns where the rune begins that the byte with an index belongs to. A part of a text that is not UTF-8
// begins where it was asked for.
func (k Kept) runeStart(i int) (int, error) {
	if k.blob || i == 0 || i >= k.Size() {
		return i, nil
	}
	var near [utf8.UTFMax]byte
	first := max(i-utf8.UTFMax+1, 0)
	n, err := k.bytes.Read(near[:i-first+1], k.from+first)
	for at := n - 1; at >= 0; at-- {
		if utf8.RuneStart(near[at]) {
			return first + at, err
		}
	}
	return i, err
}
