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
				h := httpfront.New(w.bridge, httpfront.Settings{Loopback: true})
				setLimits(h, time.Second, time.Hour, time.Hour)
				ctx, hangUp := context.WithCancel(t.Context())
				var all sync.WaitGroup
				do := func(out http.ResponseWriter, method, path, body string) {
					r := httptest.NewRequestWithContext(ctx, method, "http://localhost"+path, strings.NewReader(body))
					r.Header.Set("Content-Type", "application/json")
					all.Go(func() { h.ServeHTTP(out, r) })
				}
				stream := &unread{httptest.NewRecorder(), make(chan struct{})}
				endpoint := make(chan string, 1)
				do(&first{stream, endpoint}, http.MethodGet, "/sse", "")
				path := <-endpoint
				var answers []*httptest.ResponseRecorder
				for id := range c.most + 100 {
					answers = append(answers, httptest.NewRecorder())
					do(answers[id], http.MethodPost, path, c.body(id+1))
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
				answer := httptest.NewRecorder()
				do(answer, http.MethodPost, path, `{"jsonrpc":"2.0","id":1,"result":{}}`)
				synctest.Wait()
				if answer.Code != http.StatusAccepted {
					t.Errorf("an answer: %d", answer.Code)
				}
				close(stream.reads)
				synctest.Wait()
				w.free(t, allOfRequests)
				hangUp()
				all.Wait()
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
