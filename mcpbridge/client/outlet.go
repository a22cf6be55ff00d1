package client

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/call/recovered"
)

// Outlet takes what is said to a client beside answers.
type Outlet interface {
	// Tell sends a message. It may block for as long as the client does, or until ctx ends.
	Tell(ctx context.Context, message json.RawMessage) error
}

// SendWithin sends something, and returns when it is sent or ctx ends: who speaks to a client
// that does not read is needed elsewhere. What has begun goes on, since half a message
// would end the connection.
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

// Joined returns a context with the values of one that ends with either.
func Joined(of, with context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(of)
	forget := context.AfterFunc(with, cancel)
	return ctx, func() {
		forget()
		cancel()
	}
}

// ErrCannotBeAsked answers a question to a client that has no way to be asked one.
var ErrCannotBeAsked = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the client cannot be asked: its connection takes no requests"}

// ErrHungUp is why nothing is sent any more.
var ErrHungUp = errors.New("the connection is closed")
