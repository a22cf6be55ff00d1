package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"time"
)

// client speaks MCP over HTTP without an SDK: an SDK would hide what must not be seen,
// such as a second answer.
type client struct {
	http    *http.Client
	url     string // of Orla, without a path
	session string // "" for none
	hostile bool   // of the hostile tenant, who may see what is its own
}

// reply is one JSON-RPC message from Orla.
type reply struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Result *struct {
		Content []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"content"`
		IsError  bool           `json:"isError"`
		Meta     map[string]any `json:"_meta"`
		Next     string         `json:"nextCursor"`
		Contents []struct {
			Text string `json:"text"`
		} `json:"contents"`
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"`
		Resources []struct {
			URI  string `json:"uri"`
			Name string `json:"name"`
		} `json:"resources"`
	} `json:"result"`
	Error *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// request makes the HTTP request of a JSON-RPC message.
func (c *client) request(ctx context.Context, method string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+"/mcp", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if c.session != "" {
		req.Header.Set("Mcp-Session-Id", c.session)
		req.Header.Set("Mcp-Protocol-Version", protocol)
	}
	return req, nil
}

// protocol is the version of the clients that have sessions.
const protocol = "2025-06-18"

// status is an HTTP status that is not an answer.
type status int

func (s status) Error() string { return fmt.Sprintf("HTTP %d", int(s)) }

// headerTime is less than Orla gives a client for the head of a request.
const headerTime = 9 * time.Second

// errLateHead is why no answer came over a connection that the client kept for
// its first request for longer than the head of that may take.
var errLateHead = errors.New("the head came late")

// errLeak says that a client has seen something of another tenant, and errAsked that
// it was asked something by a capsule that it did not call.
var (
	errLeak  = errors.New("another tenant's text")
	errAsked = errors.New("a question that is not for this client")
)

// isQuestion reports whether a message asks the client something.
func (r reply) isQuestion() bool { return r.Method != "" && r.Method != "ping" && len(r.ID) > 0 }

// send sends one message and returns all messages of the response.
func (c *client) send(ctx context.Context, body []byte) ([]reply, http.Header, error) {
	var by httptrace.GotConnInfo
	var since time.Time
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { by, since = i, time.Now() }})
	req, err := c.request(ctx, http.MethodPost, body)
	if err != nil {
		return nil, nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if by.WasIdle && !by.Reused && by.IdleTime+time.Since(since) > headerTime {
			err = fmt.Errorf("%w: %w", errLateHead, err)
		}
		return nil, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return nil, nil, err
	case !c.hostile && bytes.Contains(raw, []byte(tenantMark)):
		return nil, nil, fmt.Errorf("%w: %.500q", errLeak, raw)
	case resp.StatusCode == http.StatusAccepted:
		return nil, resp.Header, nil
	case resp.StatusCode/100 != 2 && !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json"):
		return nil, nil, fmt.Errorf("%w: %.200s", status(resp.StatusCode), raw)
	}
	all, err := replies(raw)
	return all, resp.Header, err
}

// replies reads a response that is one message, or a stream of them.
func replies(raw []byte) (all []reply, err error) {
	texts := [][]byte{raw}
	if !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		texts = nil
		for line := range bytes.Lines(raw) {
			if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
				texts = append(texts, data)
			}
		}
	}
	for _, text := range texts {
		if len(bytes.TrimSpace(text)) == 0 {
			continue // an event that only opens the stream
		}
		var r reply
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, fmt.Errorf("%w in %.200q", err, text)
		}
		all = append(all, r)
	}
	return all, nil
}

// call calls a tool and tells how that ended.
func (c *client) call(ctx context.Context, s sort, r request, id int64) outcome {
	args, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	body := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, s.calledAs(), args)
	o := outcome{tool: s.name, req: r, began: time.Now()}
	all, _, err := c.send(ctx, body)
	o.ended = time.Now()
	if err != nil {
		o.lost = err
		return o
	}
	for _, m := range all {
		if string(m.ID) != fmt.Sprint(id) {
			if m.Method == "" {
				o.lost = fmt.Errorf("an answer to %s, where %d asked", m.ID, id)
			}
			if m.isQuestion() {
				o.lost = fmt.Errorf("%w: %s", errAsked, m.Method)
			}
			continue
		}
		o.texts++
		switch {
		case m.Error != nil:
			o.rpc, o.text = m.Error.Code, m.Error.Message
		case m.Result != nil:
			for _, block := range m.Result.Content {
				o.text += block.Text
			}
			if m.Result.IsError {
				o.code, _ = m.Result.Meta["tool_code"].(string)
				o.retryable = m.Result.Meta["retryable"]
				if o.code == "" {
					o.code = "without a code"
				}
			}
		}
	}
	if o.texts == 0 && o.lost == nil {
		o.lost = errors.New("a response without an answer")
	}
	return o
}

// open begins a session.
func (c *client) open(ctx context.Context) error {
	_, header, err := c.send(ctx, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":%q,"capabilities":{"elicitation":{},"sampling":{},"roots":{}},"clientInfo":{"name":"chaos","version":"1"}}}`, protocol))
	if err != nil {
		return err
	}
	if c.session = header.Get("Mcp-Session-Id"); c.session == "" {
		return errors.New("no session was given")
	}
	_, _, err = c.send(ctx, []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	return err
}

// leave ends the session.
func (c *client) leave(ctx context.Context) error {
	req, err := c.request(ctx, http.MethodDelete, nil)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// listen follows the session's stream until it ends, and returns how it ended.
func (c *client) listen(ctx context.Context, ready func(), heard func(method string)) error {
	req, err := c.request(ctx, http.MethodGet, nil)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return status(resp.StatusCode)
	}
	ready()
	in := bufio.NewReader(resp.Body)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return err
		}
		data, ok := bytes.CutPrefix(line, []byte("data:"))
		if !ok || len(bytes.TrimSpace(data)) == 0 {
			continue
		}
		var m reply
		switch err := json.Unmarshal(data, &m); {
		case err != nil:
			return err
		case !c.hostile && bytes.Contains(data, []byte(tenantMark)):
			return fmt.Errorf("%w: %.500q", errLeak, data)
		case !c.hostile && m.isQuestion():
			return fmt.Errorf("%w: %.500q", errAsked, data)
		}
		heard(m.Method)
	}
}

// read returns the text of a resource; "" if there is none.
func (c *client) read(ctx context.Context, uri string) (string, error) {
	all, _, err := c.send(ctx, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":"read","method":"resources/read","params":{"uri":%q}}`, uri))
	if err != nil || len(all) != 1 || all[0].Result == nil || len(all[0].Result.Contents) == 0 {
		return "", err
	}
	return all[0].Result.Contents[0].Text, nil
}

// named returns the name under which a resource is listed; "" if it is not.
func (c *client) named(ctx context.Context, uri string) (string, error) {
	all, _, err := c.send(ctx, []byte(`{"jsonrpc":"2.0","id":"resources","method":"resources/list","params":{}}`))
	if err != nil || len(all) != 1 || all[0].Result == nil {
		return "", err
	}
	for _, r := range all[0].Result.Resources {
		if r.URI == uri {
			return r.Name, nil
		}
	}
	return "", nil
}

// list returns the names of all tools, page by page.
func (c *client) list(ctx context.Context) (names []string, err error) {
	for cursor := `{}`; ; {
		all, _, err := c.send(ctx, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":"list","method":"tools/list","params":%s}`, cursor))
		switch {
		case err != nil:
			return nil, err
		case len(all) != 1 || all[0].Result == nil:
			return nil, fmt.Errorf("tools/list: %+v", all)
		}
		for _, tool := range all[0].Result.Tools {
			names = append(names, tool.Name)
		}
		if all[0].Result.Next == "" {
			return names, nil
		}
		cursor = fmt.Sprintf(`{"cursor":%q}`, all[0].Result.Next)
	}
}
