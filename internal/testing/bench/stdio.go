package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"time"
)

// stdioClient is the one client of an Orla on pipes. One goroutine both writes
// and reads, so that nothing but the pipe stands between it and Orla.
type stdioClient struct {
	in   *bufio.Reader
	out  io.Writer
	line []byte // reused by every request
}

// longestLine is the longest answer that a client on pipes can take.
const longestLine = 4 << 20

// connectStdio does the handshake.
func connectStdio(s *server) (*stdioClient, error) {
	c := &stdioClient{in: bufio.NewReaderSize(s.stdout, longestLine), out: s.stdin}
	if _, err := io.WriteString(c.out, message(0, "initialize", withSession.initialize())+"\n"); err != nil {
		return nil, err
	}
	if _, err := c.in.ReadSlice('\n'); err != nil {
		return nil, fmt.Errorf("initialize: %w", err)
	}
	_, err := io.WriteString(c.out, initialized+"\n")
	return c, err
}

// calls makes n calls of a tool with inFlight of them on their way at a time,
// and returns how long each took.
func (c *stdioClient) calls(tool string, n, inFlight int) ([]time.Duration, error) {
	request := func(buf []byte, id int) []byte { return append(buf, message(id, "tools/call", callParams(tool))...) }
	return c.exchange(n, inFlight, request, checkCall)
}

// work makes calls with a payload.
func (c *stdioClient) work(p payload) load {
	line := p.line()
	return func(n, inFlight int) ([]time.Duration, error) { return c.exchange(n, inFlight, line, p.check) }
}

// exchange makes n requests with inFlight of them on their way at a time, and
// returns how long each took. request writes one into buf, check looks at an
// answer.
func (c *stdioClient) exchange(n, inFlight int, request func(buf []byte, id int) []byte, check func([]byte) error) ([]time.Duration, error) {
	inFlight = min(inFlight, n)
	began := make([]time.Time, inFlight) // by the request's id, which is used again
	send := func(id int) error {
		began[id] = time.Now()
		c.line = append(request(c.line[:0], id), '\n')
		_, err := c.out.Write(c.line)
		return err
	}
	for id := range inFlight {
		if err := send(id); err != nil {
			return nil, err
		}
	}
	sent := inFlight
	took := make([]time.Duration, 0, n)
	for len(took) < n {
		id, line, err := c.receive()
		if err != nil {
			return nil, err
		}
		if id < 0 || id >= inFlight {
			return nil, fmt.Errorf("an answer to a request that was not sent: %d", id)
		}
		took = append(took, time.Since(began[id]))
		if err := check(line); err != nil {
			return nil, err
		}
		if sent < n {
			sent++
			if err := send(id); err != nil {
				return nil, err
			}
		}
	}
	return took, nil
}

// receive reads the next answer and returns its id. The line is good until the
// next one.
func (c *stdioClient) receive() (int, []byte, error) {
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return 0, nil, err
		}
		_, rest, found := bytes.Cut(line, []byte(`"id":`))
		if !found {
			continue // a notification
		}
		end := bytes.IndexAny(rest[:min(len(rest), 24)], ",}")
		if end < 0 {
			return 0, nil, fmt.Errorf("no message: %.500s", line)
		}
		id, err := strconv.Atoi(string(rest[:end]))
		if err != nil {
			return 0, nil, fmt.Errorf("an id that was not sent: %.500s", line)
		}
		return id, line, nil
	}
}
