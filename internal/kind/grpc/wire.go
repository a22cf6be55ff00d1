package grpc

import (
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
	to, ok := req.Context().Value(exchangeKey{}).(*exchange)
	if !ok {
		panic("grpc: a request without its exchange")
	}
	resp.Body = &answer{body: resp.Body, from: turns.AccountOf(req.Context()).Reader(req.Context(), resp.Body), to: to, tool: w.tool, most: w.most}
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
