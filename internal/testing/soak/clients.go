package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
)

const (
	sessionHeader = "Mcp-Session-Id"
	withSessions  = "2025-11-25"
	stateless     = "2026-07-28"
)

// client makes calls, each like what clients do in a day.
type client struct {
	w       *world
	c       *counts
	http    *http.Client
	random  *rand.Rand
	session string // "" for none
	left    int    // calls that its session still makes
	id      int
}

func newClient(w *world, c *counts, n int) *client {
	return &client{w: w, c: c, http: &http.Client{}, random: rand.New(rand.NewPCG(1, uint64(n)))} //nolint:gosec // it only varies what is called
}

// work calls until ctx ends.
func (c *client) work(ctx context.Context) {
	defer c.http.CloseIdleConnections()
	for ctx.Err() == nil {
		kind, err := c.one(ctx)
		if err != nil && ctx.Err() == nil {
			c.c.fail(kind, err)
		}
	}
}

// listed waits until the tools of all steady capsules are listed.
func (c *client) listed(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		tools, err := c.ask(ctx, "tools/list", map[string]any{})
		if err != nil {
			return err
		}
		missing := ""
		for i := range steadyCapsules {
			if name := capsuleName(i); !strings.Contains(string(tools), `"`+name+`"`) {
				missing = name
			}
		}
		if missing == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not listed", missing)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// one does one thing, and says what.
func (c *client) one(ctx context.Context) (kind string, err error) {
	if c.left == 0 {
		if err := c.turn(ctx); err != nil {
			return "begin or end a session", err
		}
	}
	c.left--
	tool, size := capsuleName(c.random.IntN(steadyCapsules)), 64
	switch n := c.random.IntN(100); {
	case n < 55:
		kind = "call a capsule"
	case n < 75:
		kind, tool = "call a simple tool", simpleName(c.random.IntN(simpleTools))
	case n < 85:
		kind, size = "a large answer", 1<<(14+c.random.IntN(6))
	case n < 86 && c.random.IntN(10) == 0:
		kind, size = "an answer that is kept", 5<<20
	case n < 91:
		return "a call that is cancelled", c.cancelled(ctx, tool)
	case n < 94:
		_, err := c.ask(ctx, "tools/call", map[string]any{"name": "nobody", "arguments": arguments{}})
		return "call an unknown tool", refused(err)
	case n < 95:
		_, err := c.ask(ctx, "tools/call", map[string]any{"name": "fragile", "arguments": arguments{Crash: true}})
		c.c.happened("crash a capsule")
		return "call a capsule that crashes", unless(err)
	case n < 98:
		_, err := c.ask(ctx, "tools/list", map[string]any{})
		return "list tools", err
	default:
		_, err := c.ask(ctx, "resources/list", map[string]any{})
		return "list resources", err
	}
	began := time.Now()
	answer, err := c.ask(ctx, "tools/call", map[string]any{"name": tool, "arguments": arguments{Size: size}})
	if err != nil {
		return kind, err
	}
	if size == 64 {
		c.c.took(time.Since(began))
	}
	c.c.called(kind)
	if size < 4<<20 && strings.Count(string(answer), "x") < size {
		return kind, fmt.Errorf("the answer has not the %d bytes: %.200s", size, answer)
	}
	return kind, nil
}

// unless passes on an error that is not an answer: a crash is one.
func unless(err error) error {
	if _, answered := errors.AsType[*answerError](err); answered {
		return nil
	}
	return err
}

// refused returns an error unless there was an answer with one.
func refused(err error) error {
	if err == nil {
		return errors.New("it succeeded")
	}
	return unless(err)
}

// turn ends the session, if there is one, and every second time begins another.
func (c *client) turn(ctx context.Context) error {
	c.left = 5 + c.random.IntN(40)
	if c.session != "" {
		id := c.session
		c.session = ""
		if c.random.IntN(2) == 0 {
			c.c.happened("leave a session without a word")
			return nil
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodDelete, c.w.url, nil)
		if err != nil {
			return err
		}
		req.Header.Set(sessionHeader, id)
		resp, err := c.http.Do(req)
		if err != nil {
			return err
		}
		c.c.happened("end a session")
		return resp.Body.Close()
	}
	resp, _, err := c.post(ctx, "initialize", map[string]any{
		"protocolVersion": withSessions, "capabilities": map[string]any{"elicitation": map[string]any{}},
		"clientInfo": map[string]any{"name": "soak", "version": "1"},
	}, withSessions)
	if err != nil {
		return err
	}
	c.session = resp.Get(sessionHeader)
	c.c.happened("begin a session")
	return nil
}

// cancelled begins a call and goes away.
func (c *client) cancelled(ctx context.Context, tool string) error {
	short, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
	defer cancel()
	_, err := c.ask(short, "tools/call", map[string]any{"name": tool, "arguments": arguments{SleepMS: 60}})
	c.c.happened("cancel a call")
	if short.Err() != nil {
		return nil
	}
	return err
}

// answerError is an answer that is an error.
type answerError struct{ text string }

func (e *answerError) Error() string { return e.text }

// ask sends a request and returns the result.
func (c *client) ask(ctx context.Context, method string, params map[string]any) (json.RawMessage, error) {
	version := withSessions
	if c.session == "" {
		version = stateless
		params["_meta"] = map[string]any{
			"io.modelcontextprotocol/protocolVersion":    stateless,
			"io.modelcontextprotocol/clientInfo":         map[string]any{"name": "soak", "version": "1"},
			"io.modelcontextprotocol/clientCapabilities": map[string]any{},
		}
	}
	_, result, err := c.post(ctx, method, params, version)
	return result, err
}

func (c *client) post(ctx context.Context, method string, params map[string]any, version string) (http.Header, json.RawMessage, error) {
	c.id++
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": c.id, "method": method, "params": params})
	if err != nil {
		return nil, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.w.url, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Mcp-Protocol-Version", version)
	if c.session != "" {
		req.Header.Set(sessionHeader, c.session)
	}
	if version == stateless {
		req.Header.Set("Mcp-Method", method)
		if name, ok := params["name"].(string); ok {
			req.Header.Set("Mcp-Name", name)
		}
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, nil, err
	}
	raw, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return nil, nil, err
	}
	result, err := resultIn(raw)
	if err != nil {
		err = fmt.Errorf("%s, status %d: %w", method, resp.StatusCode, err)
	}
	return resp.Header, result, err
}

// resultIn returns the result of an answer, which may be a stream of events.
func resultIn(raw []byte) (json.RawMessage, error) {
	for line := range bytes.Lines(raw) {
		if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
			line = data
		}
		var m struct {
			ID     json.RawMessage
			Result json.RawMessage
			Error  json.RawMessage
		}
		if json.Unmarshal(line, &m) != nil || m.ID == nil {
			continue
		}
		failed := struct{ IsError bool }{}
		if m.Error != nil || json.Unmarshal(m.Result, &failed) == nil && failed.IsError {
			return nil, &answerError{fmt.Sprintf("%.300s%.300s", m.Error, m.Result)}
		}
		return m.Result, nil
	}
	return nil, fmt.Errorf("not an answer: %.200q", raw)
}
