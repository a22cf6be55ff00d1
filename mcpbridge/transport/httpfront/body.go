package httpfront

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/mcpbridge/budget"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// bodyStep is how many bytes are reserved at a time for a body of unknown length, and for
// the first part of one of known length.
const bodyStep = 64 << 10

// readBody reads the body of a request within its limits. If it is not ok, readBody has answered
// the request. The caller ends account in any case.
func (h *Front) readBody(w http.ResponseWriter, r *http.Request, from sender) (_ []byte, account *budget.Account, ok bool) {
	limit := h.settings.Load().MaxRequest
	if r.ContentLength > limit {
		if header(r, "Expect") == "" { // else nothing comes yet
			from.tooLarge(r.Body, limit)
		}
		tooLarge(w, limit)
		return nil, nil, false
	}
	var raw []byte
	var err error
	if r.ContentLength >= 0 && r.ContentLength <= budget.Small {
		raw = make([]byte, r.ContentLength)
		_, err = io.ReadFull(r.Body, raw)
	} else {
		account = budget.NewAccount(h.bridge.Requests(), from.owner)
		body := &arriving{inTurn{ReadCloser: http.MaxBytesReader(w, r.Body, limit), ctx: r.Context(), working: h.Working, owner: from.owner}, h.Limits.Room, account}
		if err = account.Grow(r.Context(), r.ContentLength, h.Limits.Room); err == nil { // nothing is read before
			raw, err = readAll(body, r.ContentLength)
		}
	}
	switch {
	case err == nil:
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // the answer may take longer
	case errors.As(err, new(*http.MaxBytesError)):
		from.tooLarge(bytes.NewReader(raw), limit)
		tooLarge(w, limit)
		return nil, account, false
	case errors.Is(err, budget.ErrNoRoom):
		w.Header().Set("Connection", "close") // the body is not read
		crowded.refuse(w, nil)
		return nil, account, false
	default:
		h.log.Debug("read a request", "err", err, "bytes", len(raw))
		w.Header().Set("Connection", "close") // the rest may still come
		if errors.Is(err, os.ErrDeadlineExceeded) {
			refuse(w, http.StatusRequestTimeout, "the request's body did not arrive in time")
		} else {
			refuse(w, http.StatusBadRequest, "the request's body cannot be read: "+err.Error())
		}
		return nil, account, false
	}
	return raw, account, true
}

// waits counts the messages of a body among those of their client that wait. If there is no room
// for them, it answers the request and reports false.
func (h *Front) waits(w http.ResponseWriter, r *http.Request, account *budget.Account, body []byte) bool {
	n := int64(1)
	switch {
	case wire.IsBatch(body):
		n = int64(min(bytes.Count(body, []byte("{")), wire.MaxBatch))
	case len(body) <= budget.Small && !wire.AsksSomething(body): // an answer, which other messages may wait for
		return true
	}
	switch err := account.Grow(r.Context(), int64(len(body))+n*budget.EachMessage, h.Limits.Room); {
	case err == nil:
		return true
	case errors.Is(err, budget.ErrNoRoom):
		crowded.refuse(w, nil)
	}
	return false // else the client has left
}

// readAll reads a body. A negative length is unknown. Memory for a whole large body is allocated
// only when some of it has come.
func readAll(body io.Reader, length int64) ([]byte, error) {
	if length >= 0 && length <= bodyStep { // in as few reads as may be
		raw := make([]byte, length)
		n, err := io.ReadFull(body, raw)
		return raw[:n], err
	}
	var buf bytes.Buffer
	if first := min(length, bodyStep); first > 0 {
		buf.Grow(int(first) + bytes.MinRead)
		if _, err := io.CopyN(&buf, body, first); err != nil {
			return buf.Bytes(), err
		}
		buf.Grow(int(length-first) + bytes.MinRead)
	}
	_, err := buf.ReadFrom(body)
	return buf.Bytes(), err
}

// arriving is a body that is being read. For one of unknown length, it reserves bytes as they come.
type arriving struct {
	inTurn

	patience time.Duration
	account  *budget.Account
}

// inTurn is a body of which each piece after the first is read in its caller's turn.
type inTurn struct {
	io.ReadCloser

	ctx     context.Context // for Read, which takes none
	working *turns.Queue
	owner   turns.Owner
	read    int64
}

const (
	// firstPiece is how much of a body is read without a turn.
	firstPiece = 32 << 10
	// bodyPiece is how much of it is read in a turn.
	bodyPiece = 128 << 10
)

// Read implements io.Reader.
func (b *inTurn) Read(p []byte) (int, error) {
	if b.read < firstPiece {
		p = p[:min(len(p), firstPiece)]
	} else {
		p = p[:min(len(p), bodyPiece)]
		turn, err := b.working.TakeBriefly(b.ctx, b.owner)
		if err != nil {
			return 0, err
		}
		defer turn.Give()
	}
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	return n, err
}

// Read implements io.Reader.
func (a *arriving) Read(p []byte) (int, error) {
	n, err := a.inTurn.Read(p)
	if a.read > max(budget.Small, a.account.Size()) {
		if wait := a.account.Grow(a.ctx, a.read+bodyStep, a.patience); wait != nil {
			return n, wait
		}
	}
	return n, err
}

// minBodyRate is the least average rate at which a client must send a body, in bytes per second.
const minBodyRate = 16 << 10

// pacedBody is a body that must not pause for longer than patience, and whose average rate must
// not be below minBodyRate. Time in which nobody reads does not count.
type pacedBody struct {
	io.ReadCloser
	out      *response // of the same request
	patience time.Duration
	until    time.Time // the deadline that is set
	waited   time.Duration
	read     int64
}

// slackParts is how exact a deadline is, in parts of the patience: to set one for each
// piece of a body that is there already would cost more than to read it.
const slackParts = 64

// Read implements io.Reader.
func (b *pacedBody) Read(p []byte) (int, error) {
	b.out.unread.Store(false)
	began := time.Now()
	due := time.Duration(float64(b.read) / minBodyRate * float64(time.Second))
	left := min(b.patience, b.patience+due-b.waited)
	until := began.Add(left)
	if until.Sub(b.until).Abs() > b.patience/slackParts {
		_ = b.out.control.SetReadDeadline(until) // a recorder in a test has none
		b.until = until
	}
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	b.waited += time.Since(began)
	return n, err
}

func tooLarge(w http.ResponseWriter, limit int64) {
	w.Header().Set("Connection", "close") // the rest of the body is not read
	refuse(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the request is over max_request (%d bytes)", limit))
}
