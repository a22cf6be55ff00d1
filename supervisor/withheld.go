package supervisor

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/mcp/peer"
)

// A Withholder is a Follower whose tools must not be served at times.
type Withholder interface {
	// Withheld returns why, as a *fault.Error; nil if they may be served.
	Withheld() error
}

// withheldPrompt is a prompt that a peer lists and that must not be served.
type withheldPrompt struct {
	by  Peer
	why error
}

// withhold adds to a catalog what must not be served, unless another provider serves something of its name: a
// call gets the reason, and a rule for the name names something.
func (c *Catalog) withhold(order []*living) {
	for _, l := range order {
		for _, w := range l.withheld() {
			if w.Tool == nil {
				if _, served := c.prompts[w.Name]; !served {
					c.held[w.Name] = withheldPrompt{l.peer, w.Why}
				}
				continue
			}
			if _, taken := c.entries[w.Name]; !taken {
				c.entries[w.Name] = &entry{of: l, provider: l.provider, listed: w.Tool, withheld: w.Why}
			}
		}
	}
}

// withheld returns what of the provider must not be served.
func (l *living) withheld() []peer.Withheld {
	if l.peer != nil {
		return l.offers.Withheld
	}
	w, ok := l.provider.(Withholder)
	if !ok || w.Withheld() == nil {
		return nil
	}
	var all []peer.Withheld
	for _, t := range l.provider.Tools() {
		all = append(all, peer.Withheld{Name: t.Name, Tool: t, Why: w.Withheld()})
	}
	return all
}

// served returns the tools of a Follower; none while they must not be served.
func served(f Follower) []*mcp.Tool {
	if w, ok := f.(Withholder); ok && w.Withheld() != nil {
		return nil
	}
	return f.Tools()
}

// Withheld returns why a tool that is there must not be served, as a call does; nil for any other.
func (c *Catalog) Withheld(tool string) error {
	if e, ok := c.entries[tool]; ok {
		return e.withheld
	}
	return nil
}

// refuse answers a request about a prompt that must not be served.
func (c *Catalog) refuse(ctx context.Context, req peer.Request, held withheldPrompt) (json.RawMessage, error) {
	if err := c.admits(ctx, req, held.by); err != nil { // who may not use it is not told why nobody may
		return nil, err
	}
	return nil, held.why
}
