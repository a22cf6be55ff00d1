package kubeapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/coder/websocket"
)

// Stream is one of the streams of a container.
type Stream byte

// The streams, by their numbers in the protocol. outcome is how the connection ended.
const (
	Stdin Stream = iota
	Stdout
	Stderr
	outcome
)

// subprotocols are those that Orla speaks, the better one first. They are the same for a stdin that is not closed. The API
// server passes on the first one as it is, to the runtime of the node, and the connection ends if the kubelet does. It
// translates the second one, and such a connection outlives the kubelet without carrying anything.
//
// Of a connection without stdin, the second one comes first: containerd 1.6 sends nothing on the stderr of such a one.
//
// Orla sends no pings: after one, a runtime whose output waited for its reader took nothing more from the connection.
var subprotocols = []string{"v4.channel.k8s.io", "v5.channel.k8s.io"}

// Attachment is a connection with streams of a running container. Its methods may be called from any goroutine, but
// Next and Copy from one at a time, and Write from one at a time.
type Attachment struct{ socket *websocket.Conn }

// Attach connects to streams of a container, which its Query names (stdin, stdout, stderr). An error of the API is a
// *StatusError.
func (c *Client) Attach(ctx context.Context, r Request) (*Attachment, error) {
	r.Part = "attach"
	header := http.Header{"User-Agent": {c.agent}}
	order := slices.Clone(subprotocols)
	if !r.Query.Has("stdin") {
		slices.Reverse(order)
	}
	for _, protocol := range order {
		socket, resp, err := websocket.Dial(ctx, c.address(r), &websocket.DialOptions{HTTPClient: c.http, HTTPHeader: header, Subprotocols: []string{protocol}}) //nolint:bodyclose // the library has closed it, and put the first KiB in its place
		switch {
		case err == nil && socket.Subprotocol() != "":
			socket.SetReadLimit(-1) // a message is read in pieces
			return &Attachment{socket}, nil
		case err == nil:
			_ = socket.CloseNow() // there is nothing to say on it
		case resp == nil || resp.StatusCode == http.StatusSwitchingProtocols:
			return nil, err
		case resp.StatusCode != http.StatusBadRequest:
			return nil, statusOf(resp)
		}
	}
	return nil, errors.New("the API server speaks neither of " + strings.Join(subprotocols, " and ") + " over a WebSocket")
}

// Copy writes what the container writes to its stream to out, until the stream has ended; then it returns nil. Any
// other error means that what follows may be lost, or is one of out.
func (a *Attachment) Copy(ctx context.Context, stream Stream, out io.Writer) error {
	for {
		_, message, err := a.socket.Reader(ctx)
		if err != nil {
			return err
		}
		var channel [1]byte
		if _, err := io.ReadFull(message, channel[:]); err != nil {
			return err
		}
		switch Stream(channel[0]) {
		case stream:
			_, err = io.Copy(out, message)
		case outcome:
			return ended(message)
		default:
			_, err = io.Copy(io.Discard, message)
		}
		if err != nil {
			return err
		}
	}
}

// ended reads how a connection ended; nil if the streams have.
func ended(message io.Reader) error {
	raw, err := io.ReadAll(io.LimitReader(message, 64<<10))
	if err != nil {
		return err
	}
	var said struct {
		Status  string `json:"status"`
		Reason  string `json:"reason"`
		Message string `json:"message"`
		Code    int    `json:"code"`
	}
	if json.Unmarshal(raw, &said) != nil {
		return errors.New("the connection ended with something that is not a status")
	}
	if said.Status == "Success" {
		return nil
	}
	return &StatusError{Code: said.Code, Reason: said.Reason, Message: said.Message}
}

// Write writes p to the stdin of the container.
func (a *Attachment) Write(ctx context.Context, p []byte) error {
	message := append([]byte{byte(Stdin)}, p...) // in one frame: the API server takes each frame for a message
	return a.socket.Write(ctx, websocket.MessageBinary, message)
}

// Close ends the connection. A Copy returns.
func (a *Attachment) Close() { _ = a.socket.CloseNow() } // there is nothing left to say on it
