package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/orla-project/orla/internal/app/control/unixsocket"
)

// Client asks a running Orla. Its methods may be called from any goroutine.
// Their errors are unixsocket.ErrNotRunning, *Error, or trouble of the connection.
type Client struct {
	http *http.Client
}

// NewClient returns a client of a socket, which need not be there yet.
func NewClient(socket string) *Client {
	return &Client{http: &http.Client{Transport: &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return unixsocket.Dial(ctx, socket) },
		DisableCompression: true,
		DisableKeepAlives:  true, // most ask once
	}}}
}

// Status asks for the state of Orla and of every tool.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	return ask[Status](ctx, c, http.MethodGet, "/v1/status", nil)
}

// Tool asks for the state of one tool.
func (c *Client) Tool(ctx context.Context, name string) (*ToolStatus, error) {
	return ask[ToolStatus](ctx, c, http.MethodGet, "/v1/status/"+segment(name), nil)
}

// Tools asks what clients can call.
func (c *Client) Tools(ctx context.Context) ([]ListedTool, error) {
	list, err := ask[ListedTools](ctx, c, http.MethodGet, "/v1/tools", nil)
	if err != nil {
		return nil, err
	}
	return list.Tools, nil
}

// segment is a name as one part of a path. The server takes . and .. for steps
// in it unless they are escaped.
func segment(name string) string {
	if name == "." || name == ".." {
		return strings.ReplaceAll(name, ".", "%2E")
	}
	return url.PathEscape(name)
}

// Call calls a tool, and returns the CallToolResult as JSON.
func (c *Client) Call(ctx context.Context, tool string, asked CallRequest) (json.RawMessage, error) {
	result, err := ask[json.RawMessage](ctx, c, http.MethodPost, "/v1/tools/"+segment(tool)+"/call", asked)
	if err != nil {
		return nil, err
	}
	return *result, nil
}

// Operate does something to a capsule, and returns what it is then.
func (c *Client) Operate(ctx context.Context, capsule string, action Action) (*ToolStatus, error) {
	return ask[ToolStatus](ctx, c, http.MethodPost, "/v1/capsules/"+segment(capsule)+"/"+string(action), nil)
}

// Reload has the configuration and the folders read again.
func (c *Client) Reload(ctx context.Context, asked ReloadRequest) (*Reload, error) {
	return ask[Reload](ctx, c, http.MethodPost, "/v1/reload", asked)
}

// Logs yields lines of the log, oldest first. The last pair may have an error
// in place of a line.
func (c *Client) Logs(ctx context.Context, q Query) iter.Seq2[json.RawMessage, error] {
	values := url.Values{"follow": {strconv.FormatBool(q.Follow)}}
	if len(q.Tools) > 0 {
		values["tool"] = q.Tools
	}
	if q.Last != 0 {
		values.Set("n", strconv.Itoa(max(0, q.Last)))
	}
	if !q.Since.IsZero() {
		values.Set("since", q.Since.Format(time.RFC3339Nano))
	}
	if len(q.Events) > 0 {
		values["event"] = q.Events
	}
	if q.Level != "" {
		values.Set("level", q.Level)
	}
	if q.Stream != "" {
		values.Set("stream", q.Stream)
	}
	if q.Grep != "" {
		values.Set("grep", q.Grep)
	}
	return c.lines(ctx, "/v1/logs?"+values.Encode())
}

// lines yields the lines of a stream. The last pair may have an error in place of a line.
func (c *Client) lines(ctx context.Context, path string) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		resp, err := c.do(ctx, http.MethodGet, path, nil)
		if err != nil {
			yield(nil, err)
			return
		}
		defer func() { _ = resp.Body.Close() }() // it was only read
		for lines := bufio.NewReader(resp.Body); ; {
			line, err := lines.ReadBytes('\n')
			switch {
			case err == nil && !yield(bytes.TrimSuffix(line, []byte("\n")), nil):
				return
			case errors.Is(err, io.EOF) && len(line) == 0:
				return
			case err != nil:
				yield(nil, fmt.Errorf("the stream broke off: %w", err))
				return
			}
		}
	}
}

// Approvals asks for records of approvals, without arguments.
func (c *Client) Approvals(ctx context.Context, q ApprovalQuery) ([]Approval, error) {
	q.Follow = false
	list, err := ask[Approvals](ctx, c, http.MethodGet, q.path(), nil)
	if err != nil {
		return nil, err
	}
	return list.Approvals, nil
}

// FollowApprovals yields records, and then each that is new or has changed, as JSON. The last pair may have an
// error in place of a record.
func (c *Client) FollowApprovals(ctx context.Context, q ApprovalQuery) iter.Seq2[json.RawMessage, error] {
	q.Follow = true
	return c.lines(ctx, q.path())
}

func (q *ApprovalQuery) path() string {
	values := url.Values{"follow": {strconv.FormatBool(q.Follow)}}
	if q.Phase != "" {
		values.Set("phase", q.Phase)
	}
	return "/v1/approvals?" + values.Encode()
}

// Approval asks for one record.
func (c *Client) Approval(ctx context.Context, id string) (*Approval, error) {
	return ask[Approval](ctx, c, http.MethodGet, "/v1/approvals/"+segment(id), nil)
}

// Approve approves a call.
func (c *Client) Approve(ctx context.Context, id string, request ApproveRequest) (*Approval, error) {
	return ask[Approval](ctx, c, http.MethodPost, "/v1/approvals/"+segment(id)+"/approve", request)
}

// Deny denies a call.
func (c *Client) Deny(ctx context.Context, id string, request DenyRequest) (*Approval, error) {
	return ask[Approval](ctx, c, http.MethodPost, "/v1/approvals/"+segment(id)+"/deny", request)
}

// Extend changes how long a record waits, or an approval is good.
func (c *Client) Extend(ctx context.Context, id string, request ExtendRequest) (*Approval, error) {
	return ask[Approval](ctx, c, http.MethodPost, "/v1/approvals/"+segment(id)+"/extend", request)
}

// ask makes a request and decodes its answer.
func ask[T any](ctx context.Context, c *Client, method, path string, body any) (*T, error) {
	resp, err := c.do(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("the answer broke off: %w", err)
	}
	v := new(T)
	if err := json.Unmarshal(raw, v); err != nil {
		return nil, fmt.Errorf("the answer: %w", err)
	}
	return v, nil
}

// do makes a request. The caller closes the body of a response.
func (c *Client) do(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var sent io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		sent = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://orla"+path, sent)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err // the address in it is made up
		}
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	const enough = 1 << 20
	raw, err := io.ReadAll(io.LimitReader(resp.Body, enough))
	e := new(Error)
	if err != nil || json.Unmarshal(raw, e) != nil || e.Code == "" {
		return nil, fmt.Errorf("HTTP %d: %.200s", resp.StatusCode, strings.TrimSpace(string(raw)))
	}
	return nil, e
}
