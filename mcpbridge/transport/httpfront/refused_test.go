package httpfront

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
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

// told is a client that is told things, and keeps them.
type told chan json.RawMessage

func (c told) Tell(_ context.Context, message json.RawMessage) error {
	c <- message
	return nil
}

// SPEC G7, D6: an answer over max_request ends its question, which nobody can answer any more.
func TestG7AnAnswerThatIsTooLargeEndsItsQuestion(t *testing.T) {
	const limit = 1000
	front := New(newBridge(), Settings{MaxRequest: limit, Loopback: true})
	server := httptest.NewServer(front)
	defer server.Close()
	post := func(session string, body io.Reader) http.Header {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/mcp", body)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(posted); i += 2 {
			req.Header.Set(posted[i], posted[i+1])
		}
		if session != "" {
			req.Header.Set("Mcp-Session-Id", session)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res.Header
	}
	id := post("", strings.NewReader(aGreeting)).Get("Mcp-Session-Id")
	session := front.sessions.find(id, "").Session
	large := `{"x":"` + strings.Repeat("x", limit) + `"}`
	for name, body := range map[string]func(id json.RawMessage) io.Reader{
		"the id first": func(id json.RawMessage) io.Reader {
			return strings.NewReader(`{"jsonrpc":"2.0","id":` + string(id) + `,"result":` + large + `}`)
		},
		"the only one": func(json.RawMessage) io.Reader {
			return strings.NewReader(`{"result":` + large + `,"jsonrpc":"2.0","id":5}`)
		},
		"of unknown length": func(id json.RawMessage) io.Reader {
			return io.MultiReader(strings.NewReader(`{"id":` + string(id) + `,"error":` + large + `}`))
		},
		"after another message": func(id json.RawMessage) io.Reader {
			post(session.ID, strings.NewReader(`{"jsonrpc":"2.0","id":`+string(id)+`,"method":"ping","params":`+large+`}`))
			return strings.NewReader(`{"jsonrpc":"2.0","id":` + string(id) + `,"result":{}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			client, answered := make(told, 2), make(chan error, 1)
			go func() {
				_, err := session.Questions.Ask(ctx, slog.New(slog.DiscardHandler), client, "elicitation/create", nil)
				answered <- err
			}()
			var asked struct{ ID json.RawMessage }
			if err := json.Unmarshal(<-client, &asked); err != nil {
				t.Fatal(err)
			}
			post(session.ID, body(asked.ID))
			switch err := <-answered; {
			case name == "after another message" && err != nil:
				t.Errorf("a request that is too large ends the question: %v", err)
			case name != "after another message" && (err == nil || !strings.Contains(err.Error(), "max_request (1000 bytes)")):
				t.Errorf("the question ends with %v", err)
			}
		})
	}
}

// SPEC G7: a body that is not valid is not one that came too late.
func TestG7ABodyThatCannotBeReadIsABadRequest(t *testing.T) {
	server := httptest.NewServer(New(newBridge(), Settings{Loopback: true}))
	defer server.Close()
	for name, end := range map[string]string{
		"long trailers":   "0\r\n" + strings.Repeat("X: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n", 1000) + "\r\n",
		"long extensions": strings.Repeat("1;"+strings.Repeat("e", 3000)+"\r\n \r\n", 20) + "0\r\n\r\n",
		"no number":       "x\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
			fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"+
				"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n%s", len(aPing), aPing, end)
			answer := make([]byte, 4096)
			n, err := conn.Read(answer)
			if err != nil || !strings.HasPrefix(string(answer[:n]), "HTTP/1.1 400 ") || !strings.Contains(string(answer[:n]), "cannot be read: ") {
				t.Errorf("the answer is %.400q, %v", answer[:n], err)
			}
		})
	}
}
