package replicas

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/call/recovered"
)

// findTime is how long each replica may take to say whether it has something.
const findTime = 2 * time.Second

// Find asks the other replicas who has something, by a path that they answer with 204 then. It returns "" if nobody does.
func (r *Replicas) Find(ctx context.Context, path string) string {
	for _, m := range r.Live() {
		if m.Name != r.self && r.Reaches(m.Name) && r.has(ctx, m.Name, path) {
			return m.Name
		}
	}
	return ""
}

func (r *Replicas) has(ctx context.Context, replica, path string) bool {
	ctx, cancel := context.WithTimeout(ctx, findTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+replica+path, nil)
	if err != nil {
		return false
	}
	resp, err := r.transport.RoundTrip(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close() // the status is all
	return resp.StatusCode == http.StatusNoContent
}

// Passing is a request on its way to another replica.
type Passing struct {
	To     string
	Sign   func(http.Header) // adds to the request who makes it
	Stream bool              // its answer is a stream, which does not end by itself
	// Again answers the request if To cannot be reached. Nothing of the request was read then.
	Again http.Handler
}

// Pass passes a request on as it is, and its answer as it comes. It ends with its client, and with the replica: also one that
// is frozen, and neither answers nor closes a connection.
func (r *Replicas) Pass(w http.ResponseWriter, q *http.Request, how Passing) {
	body := io.Reader(q.Body)
	if q.ContentLength >= 0 {
		// net/http closes the body when the answer begins. Nobody may look for its end then: the other connection would be
		// closed too, and the answer with it.
		body = io.LimitReader(q.Body, q.ContentLength)
	} else {
		_ = http.NewResponseController(w).EnableFullDuplex() // for the same reason; HTTP/2 always has it
	}
	ctx, cancel := context.WithCancel(q.Context())
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = "https", how.To, p.In.Host
			p.Out.Header.Del("Authorization") // it was checked here
			how.Sign(p.Out.Header)
			if p.Out.Body != nil && p.Out.Body != http.NoBody {
				p.Out.Body = io.NopCloser(body) // it is needed for Again
			}
		},
		// The end of the request may be met by an answer that says nothing.
		ModifyResponse: func(*http.Response) error { return ctx.Err() },
		Transport:      r.transport, FlushInterval: -1, ErrorLog: slog.NewLogLogger(r.opts.Log.Handler(), slog.LevelDebug),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			if _, unsent := errors.AsType[*UnreachableError](err); unsent && q.Context().Err() == nil {
				r.opts.Log.Warn("a replica cannot be reached; another one goes on", "replica", how.To, "err", err)
				how.Again.ServeHTTP(w, q)
				return
			}
			w.Header().Set("Retry-After", "1")
			http.Error(w, "the replica that answers has gone; try again", http.StatusBadGateway)
		},
	}
	if q.Method == http.MethodPost && !how.Stream { // it ends by itself
		r.count(1)
		defer r.count(-1)
	}
	if r.leaves() {
		w.Header().Set("Connection", "close") // the client asks the next time where no replica stops
	}
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() {
		defer recovered.To(r.opts.Log, "watch the replica that answers", nil)
		if r.await(ctx, func() bool { l := r.leases[leaseOf(how.To)]; return l != nil && !r.livesLocked(l) }) {
			cancel()
		}
	})
	proxy.ServeHTTP(w, q.WithContext(ctx))
}

func (r *Replicas) count(calls int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calls += calls; r.calls == 0 {
		r.tellLocked() // AwaitPassed
	}
}

func (r *Replicas) leaves() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leaving
}

// AwaitPassed waits until no call is under way that was passed on to another replica, or ctx ends: only that replica knows of it
// (SPEC H4). Streams do not count.
func (r *Replicas) AwaitPassed(ctx context.Context) {
	r.await(ctx, func() bool { return r.calls == 0 })
}
