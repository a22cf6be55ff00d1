package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"time"

	connectrpc "connectrpc.com/connect"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// handTimeout is that of every direct call, as of every call of Orla's.
const handTimeout = 30 * time.Second

// hands are clients as somebody would write them who has but one service each.
type hands struct {
	host      string
	web       *http.Client
	grpc      *connectrpc.Client[handRequest, handResponse]
	near, far *mcp.ClientSession
}

// The contract's envelopes, as far as these services use them.
type (
	handRequest struct {
		RequestID  string          `json:"request_id"`
		Tool       string          `json:"tool"`
		Action     string          `json:"action"`
		Parameters json.RawMessage `json:"parameters"`
		Context    handContext     `json:"context"`
	}
	handContext struct {
		Task    string `json:"task"`
		Agent   string `json:"agent"`
		Attempt int    `json:"attempt"`
	}
	handResponse struct {
		RequestID string          `json:"request_id"`
		Status    string          `json:"status"`
		Result    json.RawMessage `json:"result"`
	}
)

// jsonCodec is how a Go program would have gRPC messages in JSON.
type jsonCodec struct{}

func (jsonCodec) Name() string                       { return "json" }
func (jsonCodec) Marshal(m any) ([]byte, error)      { return json.Marshal(m) }
func (jsonCodec) Unmarshal(data []byte, m any) error { return json.Unmarshal(data, m) }

// openHands connects clients that make direct calls. near is the MCP server on pipes.
func openHands(ctx context.Context, host, near string) (h *hands, err error) {
	const idle = 128 // with the default of 2 it would connect for nearly every call
	plain := new(http.Protocols)
	plain.SetUnencryptedHTTP2(true)
	h = &hands{
		host: host,
		web:  &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: idle}},
		grpc: connectrpc.NewClient[handRequest, handResponse](
			&http.Client{Transport: &http.Transport{Protocols: plain}}, "http://"+host+"/orloj.tool.v1.ToolService/Execute",
			connectrpc.WithGRPC(), connectrpc.WithCodec(jsonCodec{})),
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	if h.near, err = client.Connect(ctx, &mcp.CommandTransport{Command: exec.CommandContext(ctx, near, "stdio")}, nil); err != nil {
		return nil, err
	}
	if h.far, err = client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: "http://" + host + "/mcp", HTTPClient: h.web}, nil); err != nil {
		return nil, errors.Join(err, h.near.Close())
	}
	return h, nil
}

func (h *hands) close() {
	for _, session := range []*mcp.ClientSession{h.near, h.far} {
		_ = session.Close() // it has done its work
	}
	h.web.CloseIdleConnections()
}

func (h *hands) kinds() []kind {
	return []kind{
		{"http", "http", argument, maxKind, h.post},
		{"external", "external", argument, maxKind, h.exchange},
		{"webhook-callback, answered at once", "webhook", argument, maxKind, h.exchange},
		{"grpc", "grpc", argument, maxGRPC, h.execute},
		{"mcp over stdio", "near--echo", kindSize, maxKind, func(ctx context.Context) error { return callTool(ctx, h.near) }},
		{"mcp over HTTP", "far--echo", kindSize, maxKind, func(ctx context.Context) error { return callTool(ctx, h.far) }},
	}
}

// post hands the arguments over as they are.
func (h *hands) post(ctx context.Context) error {
	body, err := h.send(ctx, "/http", []byte(argument))
	if err != nil {
		return err
	}
	var result struct {
		Text string `json:"text"`
	}
	if err := json.Unmarshal(body, &result); err != nil {
		return err
	}
	return checkKind([]byte(result.Text))
}

// exchange speaks the contract over HTTP.
func (h *hands) exchange(ctx context.Context) error {
	request := newHandRequest()
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if body, err = h.send(ctx, "/contract", body); err != nil {
		return err
	}
	var response handResponse
	if err := json.Unmarshal(body, &response); err != nil {
		return err
	}
	return request.check(&response)
}

// execute speaks the contract over gRPC.
func (h *hands) execute(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, handTimeout)
	defer cancel()
	request := newHandRequest()
	response, err := h.grpc.CallUnary(ctx, connectrpc.NewRequest(request))
	if err != nil {
		return err
	}
	return request.check(response.Msg)
}

// kindSize asks an MCP server for as much text as the others answer with.
const kindSize = `{"size":64}`

func newHandRequest() *handRequest {
	return &handRequest{
		RequestID: rand.Text(), Tool: "echo", Action: "invoke", Parameters: json.RawMessage(argument),
		Context: handContext{Agent: "bench", Attempt: 1},
	}
}

func (r *handRequest) check(response *handResponse) error {
	if response.RequestID != r.RequestID || response.Status != "success" {
		return fmt.Errorf("not an answer to %s: %+v", r.RequestID, response)
	}
	return checkKind(response.Result)
}

// send posts JSON and reads what comes back.
func (h *hands) send(ctx context.Context, path string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, handTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+h.host+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := h.web.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d", resp.StatusCode)
	}
	return io.ReadAll(resp.Body)
}

// callTool calls the one tool of an MCP server.
func callTool(ctx context.Context, session *mcp.ClientSession) error {
	ctx, cancel := context.WithTimeout(ctx, handTimeout)
	defer cancel()
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: json.RawMessage(kindSize)})
	switch {
	case err != nil:
		return err
	case result.IsError || len(result.Content) != 1:
		return fmt.Errorf("not one block of content: %+v", result)
	}
	return checkKind([]byte(result.Content[0].(*mcp.TextContent).Text))
}
