package results

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/rawjson"
)

const (
	// keepInline is how many bytes of the head and of the tail stay in the answer.
	keepInline = 16 << 10
	// Sixfold is how many times longer text can get in JSON: "\u0001" for one byte.
	Sixfold = 6
	// metaFullSize marks a block of which only head and tail are inline.
	metaFullSize = "full_size"
)

// Bound returns an answer that can be encoded and is small enough for every client. Of a part
// that is too large, head and tail stay in the answer, and the whole part becomes a resource.
// Blocks keep their order. structured says that clients expect structuredContent, and treat an
// answer without it as an error.
func (c *Cutter) Bound(res *mcp.CallToolResult, structured bool) *mcp.CallToolResult {
	res = sendable(res)
	if meta, ok := ordinary(res.Meta); ok && int64(Payload(res)+meta+128*len(res.Content))*Sixfold <= c.budget && plain(res.Content) {
		return res // whatever is in it
	}
	if resultSize(res, c.budget) <= c.budget {
		return res
	}
	c.cutMeta(res)
	c.cutBlocks(res)
	c.cutStructured(res, structured)
	c.cutRest(res)
	return res
}

// plain reports whether all blocks are text.
func plain(content []mcp.Content) bool {
	for _, block := range content {
		if t, ok := block.(*mcp.TextContent); !ok || t.Meta != nil || t.Annotations != nil {
			return false
		}
	}
	return true
}

// sendable replaces what cannot be encoded as JSON: the SDK would send no answer at all.
func sendable(res *mcp.CallToolResult) *mcp.CallToolResult {
	for i, block := range res.Content {
		if t, ok := block.(*mcp.TextContent); ok && t != nil && t.Meta == nil {
			continue
		}
		if !encodes(block) {
			res.Content[i] = &mcp.TextContent{Text: "[a block of the answer has no form in JSON]"}
		}
	}
	switch s := res.StructuredContent.(type) {
	case nil:
	case json.RawMessage:
		if !rawjson.Valid(s) { // which is many times as fast as encoding/json
			res.StructuredContent = nil
		}
	default:
		raw, err := json.Marshal(s)
		res.StructuredContent = json.RawMessage(raw)
		if err != nil {
			res.StructuredContent = nil
		}
	}
	if _, ok := ordinary(res.Meta); ok {
		return res
	}
	if _, err := json.Marshal(res.Meta); err != nil {
		for key, value := range res.Meta {
			if _, err := json.Marshal(value); err != nil {
				delete(res.Meta, key)
			}
		}
	}
	return res
}

// encodes reports whether a block can be sent. A nil one can panic.
func encodes(block mcp.Content) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	if block == nil {
		return false
	}
	light, _, _ := split(block)
	_, err := light.MarshalJSON()
	return err == nil
}

// Cutter removes the parts of one answer that are too large, and keeps them as resources.
type Cutter struct {
	large  *Store
	budget int64  // of the whole answer, as JSON
	keep   int    // of a head or a tail, as text
	by     Keeper // of its call

	// Rest is called between parts of the work, as turns.Account.WorkInParts wants it. If nil, nothing is.
	Rest func()
}

// NewCutter returns a Cutter that makes the answer of a call fit a budget in bytes.
func NewCutter(large *Store, budget int64, by Keeper) Cutter {
	return Cutter{large: large, budget: budget, keep: int(min(keepInline, budget/64)), by: by}
}

// metaOfOrla are the keys that Orla sets in the _meta of a failure.
var metaOfOrla = []string{MetaToolCode, MetaToolReason, MetaRetryable, MetaRetryAfter, MetaAttempts}

// cutMeta keeps only the keys of Orla of a _meta that is too large.
func (c *Cutter) cutMeta(res *mcp.CallToolResult) {
	if sizeOf(res.Meta) <= c.budget/16 {
		return
	}
	raw, err := json.Marshal(res.Meta)
	if err != nil {
		return // sendable has seen to it
	}
	kept := mcp.Meta{}
	for _, key := range metaOfOrla {
		if value, has := res.Meta[key]; has && sizeOf(value) <= c.budget/64 {
			kept[key] = value
		}
	}
	res.Meta = kept
	res.Content = append(res.Content, c.part(Large{text: string(raw), mime: "application/json"}, "_meta"))
}

// cutBlocks cuts the blocks that are too large by themselves.
func (c *Cutter) cutBlocks(res *mcp.CallToolResult) {
	content := make([]mcp.Content, 0, len(res.Content)+4)
	for i, block := range res.Content {
		if most := int64(2*Sixfold*c.keep + 1024); blockSize(block, most) <= most {
			content = append(content, block)
			continue
		}
		content = append(content, c.cut(block, fmt.Sprintf("block %d", i+1))...)
	}
	res.Content = content
}

// cut keeps one block as a resource, and returns the blocks that replace it.
func (c *Cutter) cut(block mcp.Content, name string) []mcp.Content {
	switch block := block.(type) {
	case *mcp.TextContent:
		text := validText(block.Text)
		if len(text) <= 2*c.keep { // the block's _meta is large
			raw, err := json.Marshal(block)
			if err != nil {
				return nil // sendable has seen to it
			}
			return []mcp.Content{&mcp.TextContent{Text: text}, c.part(Large{text: string(raw), mime: "application/json"}, name+" as JSON")}
		}
		link := c.link(Large{text: text, mime: "text/plain"}, name)
		head, tail := cutText(text, c.keep)
		return link.behind(&mcp.TextContent{
			Meta: mcp.Meta{metaFullSize: len(text)},
			Text: fmt.Sprintf("%s\n\n[… %d bytes are left out here; all %d are %s …]\n\n%s",
				head, len(text)-len(head)-len(tail), len(text), link.where(), tail),
		})
	case *mcp.EmbeddedResource:
		if r := block.Resource; len(r.Text) > 0 || len(r.Blob) > 0 {
			return []mcp.Content{c.part(Large{text: validText(r.Text), blob: r.Blob, mime: r.MIMEType}, name)}
		}
	case *mcp.ImageContent:
		return []mcp.Content{c.part(Large{blob: block.Data, mime: block.MIMEType}, name)}
	case *mcp.AudioContent:
		return []mcp.Content{c.part(Large{blob: block.Data, mime: block.MIMEType}, name)}
	}
	raw, err := block.MarshalJSON()
	if err != nil {
		return nil // sendable has seen to it
	}
	return []mcp.Content{c.part(Large{text: string(raw), mime: "application/json"}, name+" as JSON")}
}

// cutStructured keeps structuredContent that is too large as a resource.
func (c *Cutter) cutStructured(res *mcp.CallToolResult, expected bool) {
	raw, _ := res.StructuredContent.(json.RawMessage)
	if rawSize(raw, c.budget/4) <= c.budget/4 {
		return
	}
	link := c.link(Large{text: rawjson.View(raw), mime: "application/json"}, "structured content")
	note := fmt.Sprintf("[the structured content of %d bytes is too large to be inline; it is %s]", len(raw), link.where())
	res.StructuredContent = nil
	res.Content = append(res.Content, link.behind(&mcp.TextContent{Text: note})...)
	if expected && !res.IsError {
		res.IsError = true
		setDefault(res, MetaToolCode, string(fault.ExecutionFailed))
		setDefault(res, MetaToolReason, note)
		setDefault(res, MetaRetryable, false)
	}
}

// cutRest leaves as many blocks as fit in the answer, from the first on, and also the last one
// if it is small, which usually says how the call ended. The rest becomes one resource.
func (c *Cutter) cutRest(res *mcp.CallToolResult) {
	if resultSize(res, c.budget) <= c.budget {
		return
	}
	var used int64
	fit := 0
	for ; fit < len(res.Content); fit++ {
		if used += blockSize(res.Content[fit], c.budget/2-used); used > c.budget/2 {
			break
		}
	}
	rest := res.Content[fit:]
	if len(rest) == 0 {
		return
	}
	raw, err := json.Marshal(rest)
	if err != nil {
		return // sendable has seen to it
	}
	link := c.link(Large{text: string(raw), mime: "application/json"}, "more blocks as JSON")
	note := &mcp.TextContent{Text: fmt.Sprintf("[… %d more blocks, %d bytes of JSON, are %s …]", len(rest), len(raw), link.whole())}
	kept := append(res.Content[:fit:fit], link.behind(note)...)
	if last := rest[len(rest)-1]; blockSize(last, c.budget/16) <= c.budget/16 {
		kept = append(kept, last)
	}
	res.Content = kept
}

// keptPart is a part of an answer that was too large to be inline.
type keptPart struct {
	link *mcp.ResourceLink // nil if it is not kept
	why  string            // it is not kept
}

// whole says where the part is, after "are".
func (k keptPart) whole() string {
	if k.link == nil {
		return k.why
	}
	return "at " + k.link.URI
}

// where is like whole, and says how to read the part in smaller ones.
func (k keptPart) where() string {
	if k.link == nil {
		return k.why
	}
	return "at " + k.link.URI + ", in parts at " + k.link.URI + "/OFFSET/LENGTH"
}

// behind returns a block that says where the part is, and the link to it.
func (k keptPart) behind(note mcp.Content) []mcp.Content {
	if k.link == nil {
		return []mcp.Content{note}
	}
	return []mcp.Content{note, k.link}
}

// part keeps a part of an answer and returns the block that replaces it.
func (c *Cutter) part(a Large, name string) mcp.Content {
	size := a.Size()
	k := c.link(a, name)
	if k.link == nil {
		return &mcp.TextContent{Text: fmt.Sprintf("[%s of %d bytes is %s]", name, size, k.why)}
	}
	return k.link
}

// link keeps a part of an answer.
func (c *Cutter) link(a Large, name string) keptPart {
	const longest = 127 // bytes of each half of a media type, RFC 6838
	if len(a.mime) > 2*longest+1 || strings.ContainsFunc(a.mime, func(r rune) bool { return r <= ' ' || r > '~' }) {
		a.mime = "application/octet-stream"
	}
	size := int64(a.Size())
	a.rest = c.Rest
	uri, most, ok := c.large.keep(a, c.by)
	if !ok {
		return keptPart{why: fmt.Sprintf("not kept, since %s may have %d bytes of answers kept", c.by.Caller, most)}
	}
	return keptPart{link: &mcp.ResourceLink{URI: uri, Name: name + " of call " + c.by.Call, MIMEType: a.mime, Size: &size}}
}

// cutText returns the first and the last n bytes of text, cut between runes.
func cutText(text string, n int) (head, tail string) {
	start := len(text) - n
	for start < len(text) && !utf8.RuneStart(text[start]) {
		start++
	}
	return text[:runeStart(text, n)], text[start:]
}

// Payload returns how many bytes of text and data an answer has. Parts that a tool wrote as
// JSON (output: mcp) count as JSON.
func Payload(res *mcp.CallToolResult) int {
	if res == nil {
		return 0
	}
	raw, _ := res.StructuredContent.(json.RawMessage)
	size := len(raw)
	for _, block := range res.Content {
		switch block.(type) {
		case *mcp.TextContent, *mcp.ImageContent, *mcp.AudioContent, *mcp.EmbeddedResource:
			_, text, data := split(block)
			size += len(text) + len(data)
		default:
			if raw, err := block.MarshalJSON(); err == nil {
				size += len(raw)
			}
		}
	}
	return size
}

// split returns a copy of a block without its payload, and the payload.
func split(block mcp.Content) (light mcp.Content, text string, data []byte) {
	switch c := block.(type) {
	case *mcp.TextContent:
		return &mcp.TextContent{Meta: c.Meta, Annotations: c.Annotations}, c.Text, nil
	case *mcp.ImageContent:
		return &mcp.ImageContent{Meta: c.Meta, Annotations: c.Annotations, MIMEType: c.MIMEType}, "", c.Data
	case *mcp.AudioContent:
		return &mcp.AudioContent{Meta: c.Meta, Annotations: c.Annotations, MIMEType: c.MIMEType}, "", c.Data
	case *mcp.EmbeddedResource:
		if c.Resource == nil {
			return c, "", nil
		}
		r := *c.Resource
		text, data = r.Text, r.Blob
		r.Text, r.Blob = "", nil
		return &mcp.EmbeddedResource{Resource: &r, Meta: c.Meta, Annotations: c.Annotations}, text, data
	}
	return block, "", nil
}

// validText returns text with U+FFFD in place of bytes that are not UTF-8.
func validText(text string) string {
	if utf8.ValidString(text) { // which is much faster
		return text
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// resultSize returns an upper bound for the size of an answer as JSON; for one over most, any size over most. It
// looks at no more of the answer than that takes: it may be many times as large.
func resultSize(res *mcp.CallToolResult, most int64) int64 {
	raw, _ := res.StructuredContent.(json.RawMessage)
	size := int64(128) + rawSize(raw, most) + sizeOf(res.Meta)
	for _, block := range res.Content {
		if size > most {
			break
		}
		size += blockSize(block, most-size) + 1
	}
	return size
}

// blockSize is resultSize for a block.
func blockSize(block mcp.Content, most int64) int64 {
	const members = 32 // `"text":"",` and the like, where light has none
	light, text, data := split(block)
	size := jsonSizeTo(text, most) + int64(base64.StdEncoding.EncodedLen(len(data))) + members
	if t, ok := light.(*mcp.TextContent); ok && t.Meta == nil && t.Annotations == nil {
		return size + members
	}
	raw, err := light.MarshalJSON()
	if err != nil {
		return size // sendable has seen to it
	}
	return size + int64(len(raw))
}

// sizeOf returns the size of a value as JSON. The value is usually small.
func sizeOf(value any) int64 {
	if m, ok := value.(mcp.Meta); ok && len(m) == 0 {
		return 0
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return 0 // sendable has seen to it
	}
	return int64(len(raw))
}

// rawSize returns an upper bound for the size of JSON after encoding/json has rewritten it; for one over most, any
// size over most.
func rawSize(raw json.RawMessage, most int64) int64 {
	size := int64(len(raw))
	for i := 0; i < len(raw) && size <= most; i++ {
		switch c := raw[i]; {
		case c == '<' || c == '>' || c == '&':
			size += Sixfold - 1
		case c == 0xE2 && i+2 < len(raw) && raw[i+1] == 0x80 && raw[i+2]&^1 == 0xA8: // U+2028, U+2029
			size += Sixfold - 3
		}
	}
	return size
}

// jsonSize returns an upper bound for the size of text as a JSON string.
func jsonSize(text string) int64 { return jsonSizeTo(text, math.MaxInt64) }

// jsonSizeTo is jsonSize; for a size over most, it is any size over most.
func jsonSizeTo(text string, most int64) int64 {
	size := int64(len(text)) + 2
	for i := 0; i < len(text) && size <= most; {
		c := text[i]
		if c < utf8.RuneSelf {
			i++
			switch {
			case c == '"' || c == '\\':
				size++
			case c < 0x20 || c == 0x7f || c == '<' || c == '>' || c == '&':
				size += Sixfold - 1
			}
			continue
		}
		r, n := utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError && n == 1 || r == '\u2028' || r == '\u2029' {
			size += int64(Sixfold - n)
		}
		i += n
	}
	return size
}
