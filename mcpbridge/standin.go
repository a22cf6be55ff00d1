package mcpbridge

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/turns"
)

// standIns spare the SDK large results: it reads and copies each several times, for
// 15 ms of a processor for each megabyte. It gets a short string that stands for the
// result, and the result takes its place where the message is written.
type standIns struct {
	key []byte // begins each; nobody else knows it

	mu sync.Mutex       // guards of
	of map[string]parts // by the string, as JSON
}

func newStandIns() *standIns {
	return &standIns{key: []byte(`"orla/` + rand.Text()), of: map[string]parts{}}
}

// standInSize is how many bytes follow the key.
const standInSize = len("ABCDEFGHIJKLMNOPQRSTUVWXYZ") + len(`"`)

// forLarge returns what the SDK is to be given as a result: res itself unless it is large
// and made of JSON. request is the context of the request, which ends when the SDK has
// written the answer.
func (s *standIns) forLarge(request context.Context, res mcp.Result) mcp.Result {
	raw, ok := res.(*rawResult)
	if !ok || raw.json.size() <= turns.Little {
		return res
	}
	name := string(s.key) + rand.Text() + `"`
	s.mu.Lock()
	s.of[name] = raw.json
	s.mu.Unlock()
	context.AfterFunc(request, func() { s.take(name) })
	return &rawResult{json: parts{[]byte(name)}}
}

// take returns what a string stands for, once.
func (s *standIns) take(name string) (parts, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	result, ok := s.of[name]
	delete(s.of, name)
	return result, ok
}

// replaced returns a message with the result that it is to have, and whether that is
// another one than the SDK wrote.
func (s *standIns) replaced(message json.RawMessage) (parts, bool) {
	at := bytes.Index(message, s.key)
	if at < 0 {
		return parts{message}, false
	}
	end := at + len(s.key) + standInSize
	result, ok := s.take(string(message[at:end]))
	if !ok { // its request ended before it was written
		gone := &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the request was canceled before its answer was written"}
		return parts{errorOf(idOf(message), gone)}, true
	}
	out := append(make(parts, 0, len(result)+2), message[:at:at])
	return append(append(out, result...), message[end:]), true
}
