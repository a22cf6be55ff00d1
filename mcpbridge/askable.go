package mcpbridge

import (
	"context"
	"encoding/json"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/peer"
	"github.com/orla-project/orla/internal/turns"
)

// askable is what a client can be asked, and what it was to be asked in vain.
type askable struct {
	takes map[string]bool        // the requests that it has declared it takes
	lacks atomic.Pointer[string] // the capability that a peer missed; nil if none did
}

// refuses says why a client cannot be asked something, if so.
func (a *askable) refuses(method string) error {
	lacks := map[string]string{methodSample: "sampling", methodElicit: "elicitation", methodRoots: "roots"}[method]
	switch {
	case lacks == "":
		return &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: method + " is no request that clients take"}
	case !a.takes[method]:
		a.lacks.Store(&lacks)
		return &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "the client does not take " + method + ": it has not declared " + lacks}
	}
	return nil
}

// missing is the error of a request of the stateless era that failed after its
// peer had missed a capability of the client's: there it MUST be told which (2026-07-28,
// basic/lifecycle). It is nil if there is none.
func (a *askable) missing() *jsonrpc.Error {
	lacks := a.lacks.Load()
	if lacks == nil {
		return nil
	}
	data, err := json.Marshal(map[string]any{"requiredCapabilities": map[string]any{*lacks: struct{}{}}})
	if err != nil { // a string
		panic(err)
	}
	return &jsonrpc.Error{Code: mcp.CodeMissingRequiredClientCapabilities, Message: "this needs a client that has declared " + *lacks, Data: data}
}

// deaf is a client that has declared nothing and wants to hear nothing. It is
// there so that what its peer asks for it is not taken for another client's.
type deaf struct {
	askable
	session string // see peer.Client
	line    turns.Line
	newest  bool // it is of the stateless era
}

var _ peer.Client = (*deaf)(nil)

// Session implements peer.Client.
func (d *deaf) Session() string { return d.session }

// Line implements peer.Client.
func (d *deaf) Line() turns.Line { return d.line }

// Declared implements peer.Client.
func (d *deaf) Declared() peer.Declared { return peer.Declared{Repeats: d.newest} }

// Hears implements peer.Client.
func (d *deaf) Hears() bool { return false }

// WantsProgress implements peer.Client.
func (d *deaf) WantsProgress() bool { return false }

// Notify implements peer.Client.
func (d *deaf) Notify(context.Context, string, json.RawMessage) {}

// Ask implements peer.Client.
func (d *deaf) Ask(_ context.Context, method string, _ json.RawMessage) (json.RawMessage, error) {
	if err := d.refuses(method); err != nil {
		return nil, err
	}
	panic("a deaf client that takes " + method)
}
