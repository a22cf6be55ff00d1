package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"time"
)

// callPatience bounds one answer.
const callPatience = 60 * time.Second

// httpClient is one keep-alive connection that sends requests as they are
// handed in. It knows only as much HTTP as the servers here speak: what a
// client costs must not drown what a server costs.
type httpClient struct {
	conn net.Conn
	in   *bufio.Reader
	body []byte // reused by every answer

	patience time.Duration // bounds one answer; if zero, callPatience does
	last     time.Time     // when the last request was sent
}

// answer is what came back. Its body is good until the next request.
type answer struct {
	status  int
	session string
	body    []byte // the message itself, without the frame of an event
}

func dial(ctx context.Context, host string) (*httpClient, error) {
	dialer := net.Dialer{Timeout: callPatience}
	conn, err := dialer.DialContext(ctx, "tcp", host)
	if err != nil {
		return nil, err
	}
	return &httpClient{conn: conn, in: bufio.NewReaderSize(conn, 64<<10)}, nil
}

func (c *httpClient) close() { _ = c.conn.Close() } // nothing is under way

// roundTrip sends a whole request, which may be in parts, and reads the answer
// to its end.
func (c *httpClient) roundTrip(request ...[]byte) (answer, error) {
	c.last = time.Now()
	if err := c.conn.SetDeadline(c.last.Add(cmp.Or(c.patience, callPatience))); err != nil {
		return answer{}, err
	}
	parts := net.Buffers(request) // all that there is goes out at once
	if _, err := parts.WriteTo(c.conn); err != nil {
		return answer{}, err
	}
	return c.read()
}

func (c *httpClient) read() (answer, error) {
	line, err := c.line()
	if err != nil {
		return answer{}, err
	}
	var a answer
	status, _ := bytes.CutPrefix(line, []byte("HTTP/1.1 "))
	if a.status, err = strconv.Atoi(string(status[:min(len(status), 3)])); err != nil {
		return a, fmt.Errorf("status line %q: %w", line, err)
	}
	length, events := 0, false
	for {
		line, err := c.line()
		if err != nil {
			return a, err
		}
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(": "))
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.Atoi(string(value)); err != nil {
				return a, err
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			length = chunked
		case bytes.EqualFold(name, []byte("Content-Type")):
			events = bytes.HasPrefix(value, []byte("text/event-stream"))
		case bytes.EqualFold(name, []byte("Mcp-Session-Id")):
			a.session = string(value)
		}
	}
	if err := c.readBody(length); err != nil {
		return a, err
	}
	a.body = c.body
	if events {
		a.body, err = lastEvent(c.body)
	}
	return a, err
}

// chunked stands for a length that is not told beforehand.
const chunked = -1

func (c *httpClient) readBody(length int) error {
	c.body = c.body[:0]
	if length != chunked {
		return c.take(length)
	}
	for {
		line, err := c.line()
		if err != nil {
			return err
		}
		size, err := strconv.ParseInt(string(line), 16, 32)
		if err != nil {
			return err
		}
		if err := c.take(int(size)); err != nil {
			return err
		}
		if _, err := c.line(); err != nil || size == 0 {
			return err
		}
	}
}

// take adds the next n bytes to the body.
func (c *httpClient) take(n int) error {
	have := len(c.body)
	c.body = slices.Grow(c.body, n)[:have+n]
	_, err := io.ReadFull(c.in, c.body[have:])
	return err
}

func (c *httpClient) line() ([]byte, error) {
	line, err := c.in.ReadSlice('\n')
	return bytes.TrimRight(line, "\r\n"), err
}

// lastEvent is the data of the last event of a stream: what comes before the
// answer is news of it.
func lastEvent(stream []byte) ([]byte, error) {
	var last []byte
	for line := range bytes.Lines(stream) { // forward, as the fast search goes
		if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
			last = bytes.TrimRight(data, "\n")
		}
	}
	if last == nil {
		return nil, errors.New("an event stream without data")
	}
	return last, nil
}

// post makes the bytes of a request.
func post(host string, headers []string, body string) []byte {
	return append(postHead(host, mcpPath, headers, len(body)), body...)
}

// mcpPath is where all serve MCP.
const mcpPath = "/mcp"

// postHead makes those that come before its body.
func postHead(host, path string, headers []string, length int) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST "+path+" HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"+
		"Accept: application/json, text/event-stream\r\nContent-Length: %d\r\n", host, length)
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	b.WriteString("\r\n")
	return b.Bytes()
}
