package webhook

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/service/contract"
)

// CallbackPattern is the pattern to serve Callbacks at, for http.ServeMux.
const CallbackPattern = "/callbacks/{request_id}"

// Callbacks receives the answers that services push, and passes each to the call that waits for it.
// The id of the request authenticates the service: it is random, only the service knows it, and it
// is valid for one answer. A nil *Callbacks accepts no answers.
type Callbacks struct {
	key   []byte           // of the ids of requests; nil if they are those of calls
	mu    sync.Mutex       // guards waits, and the fields of each wait that say so
	waits map[string]*wait // by the id of the request
}

// NewCallbacks returns an empty Callbacks.
func NewCallbacks() *Callbacks {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it does not fail
	return &Callbacks{key: key, waits: map[string]*wait{}}
}

// requestID returns the id of the request for a call, the same for all attempts. It begins with that of the call, so that
// people find it in the log. Who reads the log does not know the rest while the call waits.
func (c *Callbacks) requestID(call string) string {
	if c == nil || c.key == nil {
		return call
	}
	mac := hmac.New(sha256.New, c.key)
	mac.Write([]byte(call))
	return call + "-" + base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(mac.Sum(nil)[:16])
}

// expect registers w for answers to its request, which x reads.
func (c *Callbacks) expect(w *wait, x *contract.Exchange) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w.reader = x
	c.waits[x.RequestID()] = w
}

// Waits reports whether a call waits for the answer to a request.
func (c *Callbacks) Waits(id string) bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waits[id] != nil
}

// making records the request that w is making; nil for none.
func (c *Callbacks) making(w *wait, r *request) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w.request = r
	if w.pushed != nil {
		w.endSoonLocked()
	}
}

// forget unregisters w, and returns the pushed answer, if there is one.
func (c *Callbacks) forget(w *wait) (contract.Response, bool) {
	if c == nil {
		return contract.Response{}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.reader != nil && c.waits[w.reader.RequestID()] == w {
		delete(c.waits, w.reader.RequestID())
	}
	if w.pushed == nil {
		return contract.Response{}, false
	}
	return *w.pushed, true
}

// maxUseless bounds the bytes of bodies that are pushed for one call and do not end it.
const maxUseless = 8 << 20

// begin returns the wait for a request and the Exchange that reads its answer, and the status 0; or
// else the status of a refusal. Only one answer may be pushed at a time, and only if there is none
// yet. After the status 0, end must be called.
func (c *Callbacks) begin(id string) (w *wait, x *contract.Exchange, status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch w = c.waits[id]; {
	case w == nil:
		return nil, nil, http.StatusNotFound
	case w.pushing, w.pushed != nil:
		return nil, nil, http.StatusConflict
	case w.useless > maxUseless:
		return nil, nil, http.StatusTooManyRequests
	}
	w.pushing = true
	return w, w.reader, 0
}

// end ends what begin began. useless is how many bytes came that did not end the call.
func (c *Callbacks) end(w *wait, useless int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.pushing = false
	w.useless += useless
}

// take gives w its answer with the memory reserved for it, and so ends the wait. It reports false if
// w already has one, or does not wait any more.
func (c *Callbacks) take(id string, w *wait, r contract.Response, has *turns.Account) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waits[id] != w || w.pushed != nil {
		return false
	}
	w.pushed = &r
	has.Pass(w.account)
	close(w.arrived)
	w.endSoonLocked()
	return true
}

// ServeHTTP receives an answer from a service. It refuses requests with an Origin header, which come
// from a page in a browser.
func (c *Callbacks) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Origin") != "" {
		refuse(rw, http.StatusForbidden, "callbacks are for services, not for web pages")
		return
	}
	if r.Method != http.MethodPost {
		rw.Header().Set("Allow", http.MethodPost)
		refuse(rw, http.StatusMethodNotAllowed, "an answer is POSTed")
		return
	}
	id := r.PathValue("request_id")
	w, x, status := c.begin(id)
	switch status {
	case http.StatusNotFound:
		refuse(rw, status, "no call waits for this")
		return
	case http.StatusConflict:
		refuse(rw, status, "this call already has its answer, or another request is delivering it")
		return
	case http.StatusTooManyRequests:
		refuse(rw, status, "too much came for this call that did not end it")
		return
	}
	useless := 0
	defer func() { c.end(w, useless) }()
	account, release := w.account.Beside()
	defer release()
	ctx, cancel := context.WithTimeoutCause(r.Context(), w.tool.pace.room, errCrowded)
	defer cancel()
	most := w.tool.sender.Max()
	if r.ContentLength > most { // it is not read
		refuse(rw, http.StatusRequestEntityTooLarge, tooLarge)
		return
	}
	body, err := io.ReadAll(account.Reader(ctx, http.MaxBytesReader(rw, r.Body, most)))
	if !errors.Is(err, errCrowded) {
		useless = len(body)
	}
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		refuse(rw, http.StatusRequestEntityTooLarge, tooLarge)
		return
	case errors.Is(err, errCrowded):
		rw.Header().Set("Retry-After", "1")
		refuse(rw, http.StatusServiceUnavailable, errCrowded.Reason)
		return
	case err != nil:
		refuse(rw, http.StatusBadRequest, "the answer did not arrive")
		return
	}
	answer, err := x.Decode(body)
	switch {
	case err != nil:
		refuse(rw, http.StatusBadRequest, fault.From(err).Reason)
		return
	case !answer.Terminal():
		refuse(rw, http.StatusBadRequest, "this status does not end the call; the call still waits")
		return
	case !c.take(id, w, answer, account):
		refuse(rw, http.StatusConflict, "this call has its answer")
		return
	}
	rw.WriteHeader(http.StatusNoContent)
}

const tooLarge = "the answer is over the tool's max_output"

// errCrowded is the error for a pushed answer that there is no memory for.
var errCrowded = fault.New(fault.RateLimited, "other answers use all the memory for answers; try again")

func refuse(rw http.ResponseWriter, status int, why string) {
	body, err := json.Marshal(map[string]string{"error": why})
	if err != nil { // encoding a string cannot fail
		panic(err)
	}
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	_, _ = rw.Write(append(body, '\n')) // it does not matter if the service has gone
}
