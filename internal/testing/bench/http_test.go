package main

import (
	"bufio"
	"strings"
	"testing"
)

func TestAnswersAreRead(t *testing.T) {
	for name, tc := range map[string]struct{ in, body, session string }{
		"a known length": {
			"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nmcp-session-id: abc\r\n\r\n{}", "{}", "abc",
		},
		"no body": {
			"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n", "", "",
		},
		"chunks": {
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{\"\r\nB\r\na\":\"b\nc\"}  \r\n0\r\n\r\n", "{\"a\":\"b\nc\"}  ", "",
		},
		"an event": {
			"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" +
				"1c\r\nevent: message\ndata: {\"a\":1}\r\n2\r\n\n\n\r\n0\r\n\r\n", `{"a":1}`, "",
		},
		"the last of two events": {
			"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 21\r\n\r\ndata: [1]\n\ndata: [2]\n", `[2]`, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := &httpClient{in: bufio.NewReader(strings.NewReader(tc.in))}
			a, err := c.read()
			if err != nil {
				t.Fatal(err)
			}
			if string(a.body) != tc.body || a.session != tc.session {
				t.Errorf("got body %q and session %q, want %q and %q", a.body, a.session, tc.body, tc.session)
			}
			if n := c.in.Buffered(); n != 0 {
				t.Errorf("%d bytes are left unread", n)
			}
		})
	}
}

func TestATruncatedAnswerIsAnError(t *testing.T) {
	for _, in := range []string{"", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", "nonsense\r\n\r\n"} {
		c := &httpClient{in: bufio.NewReader(strings.NewReader(in))}
		if a, err := c.read(); err == nil {
			t.Errorf("%q was read as %+v", in, a)
		}
	}
}
