package grpc

import (
	"io"
	"net/http"
	"strings"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/service/outbound"
)

// contentType is that of requests and answers (gRPC over HTTP/2, "Requests").
const contentType = "application/grpc"

// maxKind bounds how much of a content type an error shows, in bytes.
const maxKind = 80

// wire is the HTTP client for connect. It lets only gRPC answers through, and bounds them. Its
// errors are
// *fault.Error.
type wire struct {
	tool   string
	client *http.Client
	most   int64 // bytes of a message
}

// Do implements connect.HTTPClient.
func (w *wire) Do(req *http.Request) (*http.Response, error) {
	resp, err := w.client.Do(req)
	if err != nil {
		return nil, err
	}
	if f := w.refuse(resp); f != nil {
		_ = resp.Body.Close() // the body is not needed
		return nil, f
	}
	// The answer uses this codec, since the request did, whatever the service calls it: grpc-js says
	// proto for every answer.
	resp.Header.Set("Content-Type", contentType+"+"+codecName)
	resp.Body = &bounded{Reader: turns.AccountOf(req.Context()).Reader(req.Context(), resp.Body), Closer: resp.Body, tool: w.tool, most: w.most}
	return resp, nil
}

// refuse returns why an answer is not gRPC; nil if it is.
func (w *wire) refuse(resp *http.Response) *fault.Error {
	if resp.StatusCode != http.StatusOK {
		return outbound.StatusFault(w.tool, resp, nil) // from a proxy, usually as HTML
	}
	kind, _, _ := strings.Cut(strings.ToLower(resp.Header.Get("Content-Type")), ";")
	kind = strings.TrimSpace(kind)
	switch {
	case resp.ProtoMajor < 2:
		return fault.New(fault.ExecutionFailed, "%s answered over HTTP/1.1, and gRPC needs HTTP/2", w.tool)
	case kind != contentType && !strings.HasPrefix(kind, contentType+"+"):
		if len(kind) > maxKind { // redaction would miss a secret that is cut
			kind = "…"
		}
		f := fault.New(fault.ExecutionFailed, "%s answered something else than gRPC (content type %q)", w.tool, kind)
		f.Logged = w.tool + " answered something else than gRPC"
		return f
	case compressed(resp.Header.Get("Grpc-Encoding")):
		return fault.New(fault.ExecutionFailed, "%s sent a compressed answer without being asked to", w.tool)
	}
	return nil
}

func compressed(encoding string) bool { return encoding != "" && encoding != "identity" }

// prefix is the size of the flag and the length before a message.
const prefix = 5

// bounded is the body of an answer. A body that is too long ends with an error.
type bounded struct {
	io.Reader
	io.Closer
	tool string
	most int64
	read int64
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	left := prefix + b.most - b.read
	if left < 0 {
		return 0, fault.New(fault.ExecutionFailed, "%s answered more than max_output (%d bytes)", b.tool, b.most)
	}
	// One byte more shows whether the body is too long.
	n, err := b.Reader.Read(p[:min(int64(len(p)), left+1)])
	b.read += int64(n)
	return n, err
}
