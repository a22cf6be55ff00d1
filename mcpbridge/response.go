package mcpbridge

import (
	"net/http"
	"sync"
	"time"
)

// keepAliveEvery is how often a silent event stream gets a comment, so that
// proxies keep it open and a dead client is noticed.
const keepAliveEvery = 25 * time.Second

// response is the front's view of a client: each write has a deadline, so that
// one that does not read cannot hold a handler for ever (SPEC G7).
type response struct {
	http.ResponseWriter
	control *http.ResponseController
	status  int

	mu    sync.Mutex  // serialises writes; guards timer
	timer *time.Timer // set while the stream is kept alive
	over  bool        // the handler has returned
}

// Unwrap serves http.ResponseController.
func (r *response) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// WriteHeader notes the status for the log.
func (r *response) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write writes within writeTimeout.
func (r *response) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status == 0 {
		r.status = http.StatusOK
	}
	_ = r.control.SetWriteDeadline(time.Now().Add(writeTimeout)) // a recorder in a test has none
	return r.ResponseWriter.Write(p)
}

// FlushError sends what is written so far.
func (r *response) FlushError() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	return r.control.Flush()
}

// Flush serves callers that know http.Flusher only.
func (r *response) Flush() { _ = r.FlushError() }

// keepAlive sends a comment whenever the stream was open for another while.
// The stream ends with its handler.
func keepAlive(w http.ResponseWriter) {
	r, ok := w.(*response)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer = time.AfterFunc(keepAliveEvery, r.comment)
}

func (r *response) comment() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return
	}
	r.timer.Reset(keepAliveEvery)
	if r.status != http.StatusOK {
		return // not a stream yet, or a refusal
	}
	_ = r.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := r.ResponseWriter.Write([]byte(": keep-alive\n\n")); err == nil {
		_ = r.control.Flush() // the next write will say the same
	}
}

// finish marks the handler's end: nothing is written from now on.
func (r *response) finish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	if r.timer != nil {
		r.timer.Stop()
	}
}
