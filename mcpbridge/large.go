package mcpbridge

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// DefaultMaxInline is the size in bytes from which an answer is kept as a
	// resource: clients drop the connection at 8 to 10 MiB (SPEC G5a).
	DefaultMaxInline = 4 << 20
	// keepInline is how much of the head and of the tail stay in the answer.
	keepInline = 16 << 10
	// largeTTL is how long a large answer can be read.
	largeTTL = 10 * time.Minute
	// largeBudget bounds all kept answers together in bytes; the oldest go first.
	largeBudget = 256 << 20
	// metaTruncated marks a block of which only head and tail are inline.
	metaTruncated = "full_size"
)

var (
	largeTemplate = &mcp.ResourceTemplate{
		Name:        "large-answer",
		Title:       "An answer too large to be inline",
		Description: "The whole of an answer of which a call returned head and tail.",
		URITemplate: "orla://answers/{id}",
	}
	largePartTemplate = &mcp.ResourceTemplate{
		Name:        "large-answer-part",
		Title:       "A part of an answer too large to be inline",
		Description: "Bytes from offset on, length at most, of such an answer.",
		URITemplate: "orla://answers/{id}/{offset}/{length}",
	}
)

// largeAnswers keeps what was too large to send, for a while.
type largeAnswers struct {
	mu    sync.Mutex // guards what follows
	kept  map[string]largeAnswer
	order []string // ids, oldest first
	size  int64
	sweep *time.Timer // set while something is kept
}

type largeAnswer struct {
	text  string // non-empty, or
	blob  []byte
	mime  string
	until time.Time
}

func (a largeAnswer) size() int64 { return int64(len(a.text) + len(a.blob)) }

func newLargeAnswers() *largeAnswers { return &largeAnswers{kept: map[string]largeAnswer{}} }

// keep stores a and returns the unguessable URI it can be read at.
func (l *largeAnswers) keep(a largeAnswer) string {
	id := rand.Text()
	a.until = time.Now().Add(largeTTL)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept[id] = a
	l.order = append(l.order, id)
	l.size += a.size()
	for l.size > largeBudget && len(l.order) > 1 {
		l.dropOldestLocked()
	}
	if l.sweep == nil {
		l.sweep = time.AfterFunc(largeTTL, l.expire)
	}
	return "orla://answers/" + id
}

// expire forgets what is over, and comes again while there is more.
func (l *largeAnswers) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for len(l.order) > 0 && !l.kept[l.order[0]].until.After(now) {
		l.dropOldestLocked()
	}
	if len(l.order) == 0 {
		l.sweep = nil
		return
	}
	l.sweep = time.AfterFunc(l.kept[l.order[0]].until.Sub(now), l.expire)
}

func (l *largeAnswers) dropOldestLocked() {
	id := l.order[0]
	l.order = slices.Delete(l.order, 0, 1)
	l.size -= l.kept[id].size()
	delete(l.kept, id)
}

func (l *largeAnswers) get(id string) (largeAnswer, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a, ok := l.kept[id]
	return a, ok && a.until.After(time.Now())
}

func (l *largeAnswers) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sweep != nil {
		l.sweep.Stop()
	}
}

// readLarge answers resources/read for an answer or a part of it.
func (b *Bridge) readLarge(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	uri := req.Params.URI
	notFound := mcp.ResourceNotFoundError(uri)
	u, err := url.Parse(uri)
	if err != nil {
		return nil, notFound
	}
	id, part, inParts := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	a, ok := b.large.get(id)
	if !ok {
		return nil, notFound
	}
	if inParts {
		offset, length, _ := strings.Cut(part, "/")
		from, err1 := strconv.Atoi(offset)
		most, err2 := strconv.Atoi(length)
		if err1 != nil || err2 != nil || from < 0 || most < 0 {
			return nil, notFound
		}
		a = a.part(from, most)
	}
	contents := &mcp.ResourceContents{URI: uri, MIMEType: a.mime, Text: a.text, Blob: a.blob}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{contents}}, nil
}

// part returns the bytes from on, most at most; text is cut between runes.
func (a largeAnswer) part(from, most int) largeAnswer {
	if a.blob != nil {
		from = min(from, len(a.blob))
		a.blob = a.blob[from : from+min(most, len(a.blob)-from)]
		return a
	}
	from = min(from, len(a.text))
	a.text = strings.ToValidUTF8(a.text[from:from+min(most, len(a.text)-from)], "")
	return a
}

// bound makes an answer small enough for every client: what is too large keeps
// its head and tail inline and becomes a resource.
func (b *Bridge) bound(res *mcp.CallToolResult, callID string) *mcp.CallToolResult {
	most := b.maxInline.Load()
	if contentSize(res) <= most {
		return res
	}
	var content []mcp.Content
	for i, block := range res.Content {
		if blockSize(block) <= keepInline*4 {
			content = append(content, block)
			continue
		}
		content = append(content, b.replace(block, callID, i)...)
	}
	res.Content = content
	if structured := structuredSize(res); structured > most/2 {
		raw, err := json.Marshal(res.StructuredContent)
		if err == nil {
			uri := b.large.keep(largeAnswer{text: string(raw), mime: "application/json"})
			res.StructuredContent = nil
			res.Content = append(res.Content, link(uri, "structured content", "application/json", int64(len(raw))))
			if len(res.Content) == 1 {
				res.Content = append(res.Content, &mcp.TextContent{Text: "[the structured content is too large to be inline]"})
			}
		}
	}
	return res
}

// replace keeps one block and returns what stands for it.
func (b *Bridge) replace(block mcp.Content, callID string, i int) []mcp.Content {
	name := fmt.Sprintf("block %d of call %s", i+1, callID)
	if text, ok := block.(*mcp.TextContent); ok {
		uri := b.large.keep(largeAnswer{text: text.Text, mime: "text/plain"})
		meta := mcp.Meta{metaTruncated: len(text.Text)}
		for k, v := range text.Meta {
			meta[k] = v
		}
		head, tail := cutText(text.Text, keepInline)
		return []mcp.Content{
			&mcp.TextContent{Meta: meta, Text: fmt.Sprintf(
				"%s\n\n[… %d bytes are left out here; all %d are at %s, in parts at %s/OFFSET/LENGTH …]\n\n%s",
				head, len(text.Text)-len(head)-len(tail), len(text.Text), uri, uri, tail)},
			link(uri, name, "text/plain", int64(len(text.Text))),
		}
	}
	if blob, ok := block.(*mcp.EmbeddedResource); ok && blob.Resource != nil {
		r := blob.Resource
		uri := b.large.keep(largeAnswer{text: r.Text, blob: r.Blob, mime: r.MIMEType})
		return []mcp.Content{link(uri, name, r.MIMEType, int64(len(r.Text)+len(r.Blob)))}
	}
	raw, err := block.MarshalJSON()
	if err != nil {
		return []mcp.Content{&mcp.TextContent{Text: "[a block that could not be encoded is left out]"}}
	}
	uri := b.large.keep(largeAnswer{text: string(raw), mime: "application/json"})
	return []mcp.Content{link(uri, name+" as JSON", "application/json", int64(len(raw)))}
}

func link(uri, name, mime string, size int64) *mcp.ResourceLink {
	return &mcp.ResourceLink{URI: uri, Name: name, MIMEType: mime, Size: &size}
}

// cutText returns the first and the last n bytes of text, cut between runes.
func cutText(text string, n int) (head, tail string) {
	end, start := n, len(text)-n
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	for start < len(text) && !utf8.RuneStart(text[start]) {
		start++
	}
	return text[:end], text[start:]
}

// contentSize is about the size of an answer as JSON, in bytes.
func contentSize(res *mcp.CallToolResult) int64 {
	if res == nil {
		return 0
	}
	size := structuredSize(res)
	for _, block := range res.Content {
		size += blockSize(block)
	}
	return size
}

func structuredSize(res *mcp.CallToolResult) int64 {
	switch s := res.StructuredContent.(type) {
	case nil:
		return 0
	case json.RawMessage:
		return int64(len(s))
	default:
		raw, err := json.Marshal(s)
		if err != nil {
			return 0
		}
		return int64(len(raw))
	}
}

func blockSize(block mcp.Content) int64 {
	switch c := block.(type) {
	case *mcp.TextContent:
		return jsonSize(c.Text)
	case *mcp.EmbeddedResource:
		if c.Resource != nil {
			return jsonSize(c.Resource.Text) + int64(len(c.Resource.Blob))*4/3
		}
		return 0
	case *mcp.ImageContent:
		return int64(len(c.Data)) * 4 / 3
	case *mcp.AudioContent:
		return int64(len(c.Data)) * 4 / 3
	}
	raw, err := block.MarshalJSON()
	if err != nil {
		return 0
	}
	return int64(len(raw))
}

// jsonSize is the length of text as a JSON string: what has to be escaped can
// make it six times as long.
func jsonSize(text string) int64 {
	size := int64(len(text))
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\' || c == '\n' || c == '\r' || c == '\t':
			size++
		case c < 0x20 || c == '<' || c == '>' || c == '&':
			size += 5
		}
	}
	return size
}
