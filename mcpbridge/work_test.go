package mcpbridge_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
)

// SPEC N2: a large answer, of whichever kind, is made ready for its client in a turn of its caller. A small one
// does not wait for a turn.
func TestN2ALargeAnswerIsMadeReadyInTurn(t *testing.T) {
	for name, set := range map[string]func(*world, string){
		"of Orla's": func(w *world, words string) { w.gives(text(words), nil) },
		"structured": func(w *world, words string) {
			w.gives(&mcp.CallToolResult{StructuredContent: json.RawMessage(`{"x":"` + words + `"}`)}, nil)
		},
		"an image": func(w *world, words string) {
			w.gives(&mcp.CallToolResult{Content: []mcp.Content{&mcp.ImageContent{Data: []byte(words)}}}, nil)
		},
		"a resource": func(w *world, words string) {
			w.gives(&mcp.CallToolResult{Content: []mcp.Content{&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "x:y", Blob: []byte(words)}}}}, nil)
		},
		"a peer's": func(w *world, words string) {
			w.says(`{"content":[{"type":"text","text":"`+words+`"}]}`, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, small) // what it gets is small
				s := pair(t, w)
				end := w.bridge.HoldTurns()
				set(w, "x")
				ask(t, s)
				set(w, strings.Repeat("x", turns.Heavy))
				answered := make(chan *mcp.CallToolResult, 1)
				go func() { answered <- ask(t, s) }()
				synctest.Wait()
				if len(answered) > 0 {
					t.Error("it does not wait")
				}
				end()
				if res := <-answered; res.IsError {
					t.Errorf("it is a failure: %v", res.Content)
				}
			})
		})
	}
}

// SPEC N2: the same for the answer to another request than a call.
func TestN2ALargeResourceIsMadeReadyInTurn(t *testing.T) {
	size := 1
	p := newPeer(everything())
	p.answer = func(context.Context, peer.Request) (json.RawMessage, error) {
		return json.RawMessage(`{"contents":[{"uri":"mem://a","text":"` + strings.Repeat("x", size) + `"}]}`), nil
	}
	w := served(t, p)
	s := pair(t, w)
	end := w.bridge.HoldTurns()
	read(t, s, "mem://a")
	size = turns.Heavy
	answered := make(chan string, 1)
	go func() { answered <- read(t, s, "mem://a").Text }()
	eventually(t, "the answer waits", func() bool { return w.bridge.WaitForTurn() == 1 })
	end()
	if got := within(t, answered, "the answer"); len(got) != size {
		t.Errorf("it has %d bytes", len(got))
	}
}
