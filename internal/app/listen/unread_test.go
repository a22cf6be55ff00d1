package listen

import (
	"io"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/testing/testkit"
)

// N2: it is known which clients do not take their answers, and which connections the front has given up, as long as these last. Streams
// are not answers, and are cut as well.
func TestN2UnreadAnswersAreKnown(t *testing.T) {
	for path, want := range map[string]int{"/unread": 1, "/given-up": 1, "/stream": 0, "/waits": 0} {
		t.Run(path, func(t *testing.T) {
			began, over := make(chan struct{}), make(chan struct{})
			w := New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				HeadersRead(r.Context(), r.URL.Path == "/stream")
				if r.URL.Path == "/given-up" {
					_ = http.NewResponseController(w).SetWriteDeadline(time.Now())
				}
				close(began)
				if r.URL.Path == "/given-up" || r.URL.Path == "/waits" {
					<-over
					return
				}
				_, _ = w.Write(make([]byte, 64<<20))
			}), slog.New(slog.DiscardHandler))
			defer w.Cut()
			defer close(over)
			if err := w.Listen(t.Context(), "127.0.0.1:0"); err != nil {
				t.Fatal(err)
			}
			c := connector(t, w)()
			if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			<-began
			if path == "/waits" {
				if w.CutUnread(0); len(w.conns.all()) != 1 {
					t.Error("the connection of a request that waits is closed")
				}
				return
			}
			const little = 50 * time.Millisecond
			testkit.Eventually(t, "the client lets Orla wait", func() bool { return len(w.conns.unread(little)) == 1 })
			if n := w.Unread(little); n != want {
				t.Errorf("%d answers are not read", n)
			}
			if n := w.Unread(time.Hour); n != 0 {
				t.Errorf("%d are not read for an hour", n)
			}
			w.CutUnread(little)
			testkit.Eventually(t, "nothing is left", func() bool { return len(w.conns.all()) == 0 && w.conns.writing.Load() == 0 })
		})
	}
}
