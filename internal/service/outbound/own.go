package outbound

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// sendBy makes a request by Options.Transport.
func sendBy(t http.RoundTripper, req *http.Request) (*http.Response, error) {
	var connected atomic.Bool
	ctx := httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	resp, err := t.RoundTrip(req.WithContext(ctx))
	if err != nil {
		return nil, transportFault(req, err, connected.Load())
	}
	resp.Body = &ownBody{resp.Body, req}
	return resp, nil
}

// ownBody is the body of an answer whose errors are *fault.Error.
type ownBody struct {
	io.ReadCloser

	req *http.Request
}

// Read implements io.Reader.
func (b *ownBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = transportFault(b.req, err, true)
	}
	return n, err
}
