package pins

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"reflect"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// Kind is what is defined.
type Kind string

// The kinds.
const (
	Tool   Kind = "tool"
	Prompt Kind = "prompt"
)

// item is one thing that a provider lists, by the provider's own name for it.
type item struct {
	kind Kind
	name string
}

// Digest is the SHA-256 of a definition.
type Digest [sha256.Size]byte

const digestPrefix = "sha256:"

func (d Digest) String() string { return digestPrefix + hex.EncodeToString(d[:]) }

// MarshalText implements encoding.TextMarshaler.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what String returns, and nothing else.
func (d *Digest) UnmarshalText(text []byte) error {
	raw, err := hex.DecodeString(string(bytes.TrimPrefix(text, []byte(digestPrefix))))
	if err != nil || len(raw) != len(d) {
		return errors.New("it is not a digest")
	}
	copy(d[:], raw)
	if d.String() != string(text) {
		return errors.New("it is not a digest")
	}
	return nil
}

// definer makes definitions: the canonical JSON of what clients get of an item, under the provider's own name.
// It can be used again.
type definer struct {
	canonical rawjson.Canonicalizer
	raw, out  []byte
}

func (d *definer) begin() { d.raw = append(d.raw[:0], '{') }

// member adds a member, unless its value is nil.
func (d *definer) member(key string, value []byte) {
	if value == nil {
		return
	}
	if len(d.raw) > 1 {
		d.raw = append(d.raw, ',')
	}
	d.raw = append(append(rawjson.AppendQuote(d.raw, key), ':'), value...)
}

func (d *definer) text(key, value string) {
	if value != "" {
		d.member(key, rawjson.AppendQuote(nil, value))
	}
}

// asSent begins what is hashed of a definition that has no canonical form: it is too large or too deep, or has half
// characters, which all have the same one.
const asSent = "as sent\n"

// definition is what a definer makes. The next one overwrites its text.
type definition struct {
	text      []byte
	canonical bool // else it has no canonical form, and is as it was sent
	digest    Digest
}

func (d *definer) end() definition {
	d.raw = append(d.raw, '}')
	out, ok := d.canonical.Append(d.out[:0], d.raw)
	if d.out = out; !ok || bytes.ContainsRune(out, utf8.RuneError) {
		return definition{d.raw, false, Digest(sha256.Sum256(append([]byte(asSent), d.raw...)))}
	}
	return definition{out, true, Digest(sha256.Sum256(out))}
}

// DigestOf returns the digest of the definition of a tool by the name that it has.
func DigestOf(t *mcp.Tool) Digest {
	var d definer
	return d.tool(t, t.Name).digest
}

// tool returns the definition of a tool.
func (d *definer) tool(t *mcp.Tool, own string) definition {
	d.begin()
	d.member("name", rawjson.AppendQuote(nil, own))
	d.text("title", t.Title)
	d.text("description", t.Description)
	d.member("inputSchema", rawOf(t.InputSchema))
	d.member("outputSchema", rawOf(t.OutputSchema))
	if t.Annotations != nil {
		d.member("annotations", rawOf(t.Annotations))
	}
	return d.end()
}

// prompt returns the definition of a prompt.
func (d *definer) prompt(p *mcp.Prompt, own string) definition {
	d.begin()
	d.member("name", rawjson.AppendQuote(nil, own))
	d.text("title", p.Title)
	d.text("description", p.Description)
	if len(p.Arguments) > 0 {
		d.member("arguments", rawOf(p.Arguments))
	}
	return d.end()
}

// rawOf returns a value as JSON; nil for none.
func rawOf(value any) []byte {
	switch value := value.(type) {
	case nil:
		return nil
	case json.RawMessage:
		return value
	}
	raw, err := rawjson.Encode(value)
	if err != nil { // what was decoded from JSON can be encoded
		return []byte("null")
	}
	return raw
}

// sameTool reports whether two tools have the same definition for certain, but for their names. It is faster than
// their digests.
func sameTool(a, b *mcp.Tool) bool {
	return a == b || a != nil && a.Title == b.Title && a.Description == b.Description && sameRaw(a.InputSchema, b.InputSchema) &&
		sameRaw(a.OutputSchema, b.OutputSchema) && reflect.DeepEqual(a.Annotations, b.Annotations)
}

func sameRaw(a, b any) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	x, isRaw := a.(json.RawMessage)
	y, areRaw := b.(json.RawMessage)
	return isRaw && areRaw && bytes.Equal(x, y)
}

// samePrompt is the same of prompts.
func samePrompt(a, b *mcp.Prompt) bool {
	return a == b || a != nil && a.Title == b.Title && a.Description == b.Description && reflect.DeepEqual(a.Arguments, b.Arguments)
}
