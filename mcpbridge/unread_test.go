package mcpbridge_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// unread is the connection of a client that does not read messages until it is let.
type unread struct {
	*httptest.ResponseRecorder
	reads chan struct{}
}

func (d *unread) Write(p []byte) (int, error) {
	if bytes.HasPrefix(p, []byte("event: message")) {
		<-d.reads
	}
	return len(p), nil
}

// SPEC S2, N2: what is made for a stream whose client does not read takes room (88 batches of
// lists took 4.6 GB), and so do batches. Answers to questions are let in.
func TestS2AnswersThatNobodyReadsTakeRoom(t *testing.T) {
	for name, c := range map[string]struct {
		body func(id int) string
		most int // messages that are taken
	}{
		"requests": {func(id int) string { return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, id) }, 5000},
		"batches": {func(id int) string {
			one := make([]string, 0, 100)
			for n := range cap(one) {
				one = append(one, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, 100*id+n))
			}
			return "\xef\xbb\xbf\v[" + strings.Join(one, ",") + "]"
		}, 50},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				s := w.unreadStream(t)
				var answers []*httptest.ResponseRecorder
				for id := range c.most + 100 {
					answers = append(answers, s.post(c.body(id+1)))
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				taken := 0
				for _, out := range answers {
					switch out.Code {
					case http.StatusAccepted, http.StatusOK: // it is taken, or writes the answers itself
						taken++
					case http.StatusServiceUnavailable:
					default:
						t.Fatalf("%d %s", out.Code, out.Body)
					}
				}
				if taken == 0 || taken > c.most {
					t.Errorf("%d of %d are taken", taken, len(answers))
				}
				answer := s.post(`{"jsonrpc":"2.0","id":1,"result":{}}`)
				synctest.Wait()
				if answer.Code != http.StatusAccepted {
					t.Errorf("an answer: %d", answer.Code)
				}
				close(s.reads)
				synctest.Wait()
				w.free(t, allOfRequests)
				s.hangUp()
			})
		})
	}
}

// first tells of the first event of a stream.
type first struct {
	*unread
	endpoint chan string
}

func (f *first) Write(p []byte) (int, error) {
	if _, path, ok := strings.Cut(string(p), "event: endpoint\ndata: "); ok {
		f.endpoint <- strings.TrimSpace(path)
	}
	return f.unread.Write(p)
}

// unreadStream is a stream of HTTP+SSE, and the requests of its client.
type unreadStream struct {
	*unread
	front *httpfront.Front
	path  string
	ctx   context.Context
	end   context.CancelFunc
	all   sync.WaitGroup
}

// unreadStream opens a stream whose client does not read its messages.
func (w *world) unreadStream(t *testing.T) *unreadStream {
	s := &unreadStream{unread: &unread{httptest.NewRecorder(), make(chan struct{})}, front: httpfront.New(w.bridge, httpfront.Settings{Loopback: true})}
	setLimits(s.front, time.Second, time.Hour, time.Hour)
	s.ctx, s.end = context.WithCancel(t.Context())
	endpoint := make(chan string, 1)
	s.do(&first{s.unread, endpoint}, http.MethodGet, "/sse", "")
	s.path = <-endpoint
	return s
}

func (s *unreadStream) do(out http.ResponseWriter, method, path, body string) {
	r := httptest.NewRequestWithContext(s.ctx, method, "http://localhost"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	s.all.Go(func() { s.front.ServeHTTP(out, r) })
}

// post sends a body, and returns what becomes the answer.
func (s *unreadStream) post(body string) *httptest.ResponseRecorder {
	out := httptest.NewRecorder()
	s.do(out, http.MethodPost, s.path, body)
	return out
}

// hangUp ends the stream, and waits for its requests.
func (s *unreadStream) hangUp() {
	s.end()
	s.all.Wait()
}
