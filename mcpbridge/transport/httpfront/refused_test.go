package httpfront

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// SPEC G7: a large body that is refused is not read. Its client still gets the answer: the
// connection is closed without a reset.
func TestG7ARefusedBodyGetsItsAnswer(t *testing.T) {
	server := httptest.NewServer(New(newBridge(), Settings{Verify: aToken, Loopback: true}))
	defer server.Close()
	for _, c := range []struct {
		token, want string
		size        int
	}{
		{"ann", "413 Request Entity Too Large", DefaultMaxRequest + 1},
		{"expired", "401 Unauthorized", 1 << 20},
	} {
		t.Run(c.want, func(t *testing.T) {
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
			head := fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
				"Accept: application/json, text/event-stream\r\nContent-Length: %d\r\n\r\n", c.token, c.size)
			if _, err := conn.Write(append([]byte(head), bytes.Repeat([]byte(" "), 64<<10)...)); err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(conn)
			if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 "+c.want) {
				t.Errorf("the answer is %.100q, and then %v", answer, err)
			}
		})
	}
}
