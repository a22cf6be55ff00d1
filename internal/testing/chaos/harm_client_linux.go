package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// dial opens a connection to Orla that knows nothing of HTTP.
func (w *world) dial(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(w.life().url, "http://"))
}

// raw is a call of a tool as it stands on the wire.
func raw(tool string, r string) string {
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, tool, r)
	return fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: %d\r\n\r\n%s", honestToken, len(body), body)
}

// slowRequest sends a request byte by byte.
func slowRequest(ctx context.Context, w *world, s step) {
	conn, err := w.dial(ctx)
	if err != nil {
		return // Orla is over, or can open nothing
	}
	defer func() { _ = conn.Close() }()
	text := raw("calm", fmt.Sprintf(`{"nonce":"slow-%d"}`, w.nonce()))
	began := time.Now()
	for i := range text {
		if _, err := io.WriteString(conn, text[i:i+1]); err != nil || ctx.Err() != nil {
			return
		}
		wait(ctx, s.long/time.Duration(len(text)))
	}
	if time.Since(began) > headerTime {
		return // the machine was slower still, and Orla is right to refuse it
	}
	_ = conn.SetReadDeadline(time.Now().Add(lostAfter))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		if !w.book.excusesAll() && ctx.Err() == nil {
			w.book.violated("slow request", "no answer to a request that took %s: %v", s.long, err)
		}
		return
	}
	_ = resp.Body.Close() // its status is what is looked at
	if resp.StatusCode != http.StatusOK {
		w.book.violated("slow request", "HTTP %d to a request that took %s", resp.StatusCode, s.long)
	}
}

// clientThatDoesNotRead asks for large answers and reads none.
func clientThatDoesNotRead(ctx context.Context, w *world, s step) {
	conn, err := w.dial(ctx)
	if err != nil {
		return // as above
	}
	defer func() { _ = conn.Close() }()
	for range 8 {
		if _, err := io.WriteString(conn, raw("calm", fmt.Sprintf(`{"nonce":"unread-%d","fill":%d}`, w.nonce(), 500<<10))); err != nil {
			return
		}
	}
	wait(ctx, s.long)
}

// halfRequest breaks off in the middle of a request.
func halfRequest(ctx context.Context, w *world, s step) {
	conn, err := w.dial(ctx)
	if err != nil {
		return // as above
	}
	text := raw("calm", `{"nonce":"half"}`)
	_, _ = io.WriteString(conn, text[:len(text)*s.size/1000]) // what does not arrive is what is wanted
	_ = conn.Close()                                          // the same
}

// hangUp breaks off in the middle of an answer.
func hangUp(ctx context.Context, w *world, s step) {
	conn, err := w.dial(ctx)
	if err != nil {
		return // as above
	}
	defer func() { _ = conn.Close() }()
	tools := sorts()
	tool := tools[s.size%len(tools)]
	if _, err := io.WriteString(conn, raw(tool.calledAs(), fmt.Sprintf(`{"nonce":"gone-%d","ms":%d,"fill":%d}`, w.nonce(), s.size%50, 300<<10))); err != nil {
		return
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Duration(s.size) * time.Millisecond))
	_, _ = io.CopyN(io.Discard, conn, int64(s.size)*300) // as far as it comes
}

// leaveSession opens a session, asks something in it, and may leave it or not.
func leaveSession(ctx context.Context, w *world, _ step) {
	c := &client{http: w.crowd.http, url: w.life().url}
	if c.open(ctx) != nil {
		return // as above
	}
	_, _ = c.list(ctx) // the calm asks in earnest
	_ = c.leave(ctx)   // as above
}

// fullPipe lets a capsule read nothing while it is called with large arguments.
func fullPipe(ctx context.Context, w *world, s step) {
	tool := sortOf(s.tool)
	c := &client{http: w.crowd.http, url: w.life().url}
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), lostAfter)
	defer cancel()
	done := make(chan struct{})
	ask := func(r request) {
		r.Nonce = fmt.Sprintf("pipe-%d", w.nonce())
		w.book.judge(c.call(own, tool, r, w.crowd.ids.Add(1)), false)
		done <- struct{}{}
	}
	go ask(request{Do: "mute", MS: int(s.long / time.Millisecond)})
	const followers = 6
	for range followers {
		go ask(request{Pad: strings.Repeat("y", 100<<10)})
	}
	for range followers + 1 {
		<-done
	}
}
