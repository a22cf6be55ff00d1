package mcpbridge

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	largePrefix = "orla://answers/"
	// largeTTL is how long a large answer can be read.
	largeTTL = 10 * time.Minute
	// answersBudget bounds the answers in bytes that are on their way from tools to
	// clients, whatever answers; one that finds no room waits, inside its deadline.
	answersBudget = 128 << 20
	// largeBudget bounds all kept answers together in bytes; the oldest go first.
	largeBudget = 128 << 20
)

var (
	largeTemplate = &mcp.ResourceTemplate{
		Name:        "large-answer",
		Title:       "An answer too large to be inline",
		Description: "The whole of an answer of which a call returned head and tail.",
		URITemplate: largePrefix + "{id}",
	}
	largePartTemplate = &mcp.ResourceTemplate{
		Name:        "large-answer-part",
		Title:       "A part of an answer too large to be inline",
		Description: "The bytes from offset to offset+length of such an answer. Text is cut between runes, so that parts put together are the whole.",
		URITemplate: largePrefix + "{id}/{offset}/{length}",
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
	return largePrefix + id
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
	path, ok := strings.CutPrefix(uri, largePrefix)
	if !ok {
		return nil, notFound
	}
	id, part, inParts := strings.Cut(path, "/")
	a, ok := b.large.get(id)
	if !ok {
		return nil, notFound
	}
	if inParts {
		offset, length, _ := strings.Cut(part, "/")
		from, err1 := strconv.Atoi(offset)
		most, err2 := strconv.Atoi(length)
		if err1 != nil || err2 != nil || from < 0 || most < 0 {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "a part is named " + largePrefix + "ID/OFFSET/LENGTH, in bytes"}
		}
		a = a.part(from, most)
	}
	// Where messages share one stream, too large a one ends the connection,
	// and all that is in flight with it. A response of HTTP stands alone.
	limit := 2 * b.maxInline.Load()
	alone := req.Extra != nil && req.Extra.CloseSSEStream != nil // set by Streamable HTTP only
	if !alone && jsonSize(a.text)+int64(base64.StdEncoding.EncodedLen(len(a.blob))) > limit {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf(
			"the answer is too large for one message of this transport; read it in parts of %d bytes, at %s%s/OFFSET/LENGTH", limit/sixfold, largePrefix, id)}
	}
	contents := &mcp.ResourceContents{URI: uri, MIMEType: a.mime, Text: a.text, Blob: a.blob}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{contents}}, nil
}

// part returns the bytes from on, most at most. Text begins and ends where
// runes do, at or before the bytes that were asked for, so that neighbouring
// parts neither overlap nor leave a gap.
func (a largeAnswer) part(from, most int) largeAnswer {
	size := int(a.size())
	from = min(from, size)
	to := from + min(most, size-from)
	if a.blob != nil {
		a.blob = a.blob[from:to]
		return a
	}
	a.text = a.text[runeStart(a.text, from):runeStart(a.text, to)]
	return a
}
