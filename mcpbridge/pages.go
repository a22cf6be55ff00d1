package mcpbridge

import (
	"encoding/json"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/supervisor"
)

// pages are the tools of a catalog as lists that are ready to be sent. A list of
// one page is there from the start. Of a longer one a page is there once the SDK
// has given it: where it ends, and by which cursor the next goes on, is its word.
type pages struct {
	of *supervisor.Catalog

	mu    sync.Mutex // guards known
	known map[string]page
}

// page is one of them, known by the cursor that leads to it; "" for the first.
type page struct {
	tools json.RawMessage
	next  string // the cursor of the next; "" for none
}

func newPages(of *supervisor.Catalog, tools []*mcp.Tool) *pages {
	p := &pages{of: of, known: map[string]page{}}
	if len(tools) <= mcp.DefaultPageSize {
		p.add("", tools, "")
	}
	return p
}

// find returns the page that a cursor leads to, if it is there.
func (p *pages) find(cursor string) (page, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	found, ok := p.known[cursor]
	return found, ok
}

// learn keeps a page that the SDK has given, if its cursor is one that the SDK has
// given too: clients can make up others without end.
func (p *pages) learn(cursor string, given *mcp.ListToolsResult) {
	if p.wants(cursor) {
		p.add(cursor, given.Tools, given.NextCursor)
	}
}

func (p *pages) wants(cursor string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, there := p.known[cursor]; there {
		return false
	}
	for _, before := range p.known {
		if before.next == cursor && cursor != "" {
			return true
		}
	}
	return cursor == ""
}

func (p *pages) add(cursor string, tools []*mcp.Tool, next string) {
	raw, err := json.Marshal(tools)
	if err != nil {
		return // the SDK has encoded each of them
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known[cursor] = page{tools: raw, next: next}
}
