package client

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/call/recovered"
)

// Outlet sends messages other than answers to a client.
type Outlet interface {
	// Tell sends a message. It may block for as long as the client does, or until ctx ends.
	Tell(ctx context.Context, message json.RawMessage) error
}

// SendWithin calls send, and returns when it has returned or ctx ends, so that a client that
// does not read does not block the caller. send goes on then, since half a message would end
// the connection.
func SendWithin(ctx context.Context, send func() error) error {
	if ctx.Done() == nil {
		return send()
	}
	var panicked recovered.Later
	sent := make(chan error, 1)
	go func() {
		defer panicked.Catch(func() { close(sent) })
		sent <- send()
	}()
	select {
	case err := <-sent:
		panicked.Raise()
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Joined returns a context with the values of the first context, which ends when either of the
// two ends. The function must be called when it is not needed any more.
func Joined(of, with context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(of)
	forget := context.AfterFunc(with, cancel)
	return ctx, func() {
		forget()
		cancel()
	}
}

// ErrCannotBeAsked is the error of a question to a client whose connection takes no requests.
var ErrCannotBeAsked = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the client cannot be asked: its connection accepts no requests"}

// ErrHungUp is why nothing is sent any more.
var ErrHungUp = errors.New("the connection is closed")
