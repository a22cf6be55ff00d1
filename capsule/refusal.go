package capsule

import (
	"errors"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/capsule/refusal"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/observe/brief"
	"github.com/orla-project/orla/manifest"
)

// callError returns the error of a call as the client gets it. An error with one of Orla's
// error codes becomes a fault with that code (SPEC-TOOLS 4.1). Other errors of an MCP server
// stay as they are; those of other capsules are failures of the tool (SPEC G5).
func (c *Capsule) callError(err error) error {
	wire, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok {
		return err
	}
	if f, ok := refusal.Coded(wire); ok {
		return c.named(f)
	}
	if c.tool.Runtime.Handshake == manifest.HandshakeMCP {
		return err
	}
	code := fault.ExecutionFailed
	if wire.Code == jsonrpc.CodeInvalidParams {
		code = fault.InvalidInput
	}
	return fault.New(code, "%s: %s", c.tool.Name, wire.Message)
}

// named returns a copy of a fault with the capsule's name before its reasons.
func (c *Capsule) named(f *fault.Error) *fault.Error {
	named := *f
	named.Reason = c.tool.Name + ": " + brief.Cut(f.Reason, refusal.MaxReason)
	if f.Logged != "" {
		named.Logged = c.tool.Name + ": " + brief.Cut(f.Logged, refusal.MaxReason)
	}
	return &named
}

// unauthorized returns the fault of a remote server that refused Orla's credentials, which is
// not a crash; nil for any other cause.
func (c *Capsule) unauthorized(cause error) *fault.Error {
	if f := refusal.In(cause); c.far() && f != nil && f.Code == fault.AuthInvalid {
		return f
	}
	return nil
}
