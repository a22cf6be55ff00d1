package listen

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
)

const (
	// maxHeader bounds the headers of a request, in bytes.
	maxHeader = 16 << 10
	// maxHeaderLines bounds their lines: net/http makes an entry of each.
	maxHeaderLines = 100
	// maxURI and maxHost bound what is kept of a request for as long as it is answered.
	maxURI  = 2 << 10
	maxHost = 512
	// maxHeaders bounds what the headers of all requests take together, in bytes, from
	// their first byte on until they are not needed any more: those on the connections of
	// callers, and as much again on those of others.
	maxHeaders = 32 << 20
	// smallHeader is how much of the headers of each request nobody counts.
	smallHeader = 4 << 10
	// eachLine is what an entry takes beside the bytes of its line.
	eachLine = 128
)

// headers counts the headers of a connection's request. net/http bounds their bytes alone,
// and reads up to 4 KiB ahead: of the next request as well, if that has come already.
type headers struct {
	bytes, lines int
	begun        bool  // there was something before the first line's end
	partial      int   // bytes of the line that has not ended, without a \r that comes first
	cr           bool  // it began with \r
	ended        bool  // with an empty line
	ahead        int64 // bytes that came with the empty line, behind it
	aheadLines   int
	taken        int64         // of maxHeaders
	of           *turns.Shares // of which they are taken
	owner        turns.Owner

	// What follows is of a request that is being answered.
	request *http.Request // nil if none is, or its headers are not needed any more
	body    bool          // what comes is its body
	exact   bool          // left is known
	left    int64         // bytes of the body that have not come
	tail    [4]byte       // the last bytes that have come
	next    int           // as many lines of the next request may have come
}

var newline = []byte("\n")

// read notes bytes of headers.
func (h *headers) read(p []byte) {
	if h.ended { // net/http sees it otherwise
		h.ended, h.lines = false, h.lines+h.aheadLines
	}
	rest := p
	for !h.begun && len(rest) > 0 { // it skips line ends
		if h.begun = rest[0] != '\r' && rest[0] != '\n'; !h.begun {
			rest = rest[1:]
		}
	}
	for len(rest) > 0 && !h.ended {
		at := bytes.IndexByte(rest, '\n')
		if at < 0 {
			h.part(rest)
			break
		}
		h.part(rest[:at])
		rest = rest[at+1:]
		if h.ended = h.partial == 0; !h.ended {
			h.lines++
		}
		h.partial, h.cr = 0, false
	}
	h.bytes += len(p)
	if h.ended {
		h.bytes -= len(rest)
		h.ahead, h.aheadLines, h.tail = int64(len(rest)), bytes.Count(rest, newline), [4]byte{}
		h.notice(rest)
	}
}

// part notes a part of a line.
func (h *headers) part(p []byte) {
	if len(p) > 0 && p[0] == '\r' && h.partial == 0 && !h.cr {
		h.cr, p = true, p[1:]
	}
	h.partial += len(p)
}

// notice keeps the last bytes that have come.
func (h *headers) notice(p []byte) {
	n := copy(h.tail[:], h.tail[min(len(p), len(h.tail)):])
	copy(h.tail[n:], p[max(0, len(p)-len(h.tail)):])
}

// answered notes that the request whose headers have come is being answered.
func (h *headers) answered(r *http.Request) {
	h.request, h.body = r, true
	h.exact = h.ended && r.ContentLength >= 0
	switch h.left = r.ContentLength - h.ahead; {
	case !h.ended: // they came with those of the request before
	case h.exact && h.left >= 0 || h.whole():
		h.next = 0
	default:
		h.next = h.aheadLines
	}
	h.left = max(0, h.left)
}

// whole reports whether a body ends with the bytes that have come, as one of unknown length
// does: what is ahead is the whole head of another request, or nothing.
func (h *headers) whole() bool { return !h.exact && string(h.tail[:]) == "\r\n\r\n" }

// readBody notes bytes that have come after the headers.
func (h *headers) readBody(p []byte) {
	if h.exact {
		over := min(int64(len(p)), max(0, int64(len(p))-h.left))
		h.left -= int64(len(p)) - over
		h.next += bytes.Count(p[int64(len(p))-over:], newline)
		return
	}
	if h.notice(p); h.whole() {
		h.next = 0
		return
	}
	h.next += bytes.Count(p, newline)
}

// Read implements net.Conn. It refuses a request with too many lines of headers, or for
// whose headers there is no room.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.readNext(p)
	h := &c.headers
	switch {
	case n == 0 || len(p) == 1: // so net/http looks whether the client is there
	case h.body:
		h.readBody(p[:n])
	default:
		if h.read(p[:n]); h.lines > 1+maxHeaderLines || h.bytes > maxHeader {
			return 0, c.refuse(http.StatusRequestHeaderFieldsTooLarge, p)
		}
		if size := int64(h.bytes + h.lines*eachLine); size > smallHeader && !c.take(size) {
			return 0, c.refuse(http.StatusServiceUnavailable, p)
		}
	}
	return n, err
}

// take takes room for headers. It reports false if there is none for the caller, or for the
// address of one who is not known yet.
func (c *conn) take(size int64) bool {
	h := &c.headers
	if h.taken == 0 {
		h.of, h.owner = c.all.headersOf(c)
	}
	if more := size - h.taken; more > 0 {
		if !h.of.Try(h.owner, more) {
			return false
		}
		h.taken = size
	}
	return true
}

// release gives back the room of headers.
func (c *conn) release() {
	h := &c.headers
	if h.taken > 0 {
		h.of.Give(h.owner, h.taken)
		h.taken = 0
	}
}

// headersOf is what the headers of a connection are held of, and as whose.
func (c *connections) headersOf(one *conn) (*turns.Shares, turns.Owner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one.gone {
		return c.pending.headers, turns.Owner{}
	}
	by := one.share.by
	if by.caller == "" {
		return one.holders.headers, turns.Owner{Session: by.address.String()}
	}
	return one.holders.headers, turns.Owner{Session: by.caller}
}

// refuse answers a request whose headers are still coming, and reads on for a moment into
// buf: a client that is sending would not see the answer otherwise. It returns why
// nothing more is read.
func (c *conn) refuse(status int, buf []byte) error {
	const patience, most = 500 * time.Millisecond, 64 << 10
	_ = c.SetDeadline(time.Now().Add(patience))
	says, more := strconv.Itoa(status)+" "+http.StatusText(status), ""
	if status == http.StatusServiceUnavailable {
		more = "Retry-After: 30\r\n"
	}
	_, err := io.WriteString(c.Conn, "HTTP/1.1 "+says+"\r\n"+more+"Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"+says)
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && err == nil {
		_ = half.CloseWrite() // it is closed soon
		for read := 0; read < most; {
			n, err := c.Conn.Read(buf)
			if read += n; err != nil {
				break
			}
		}
	}
	return io.EOF
}

// serve has next answer a request whose headers have come.
func (c *conn) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	c.used()
	c.enters(called)
	defer c.enters(answered)
	c.headers.answered(r)
	if r.ContentLength < 0 { // there may be trailers, which nobody needs
		r.Trailer = nil
		r.Body = &withoutTrailers{r.Body, r}
	}
	var status int
	switch {
	case len(r.Header) > maxHeaderLines: // they came with the request before
		status = http.StatusRequestHeaderFieldsTooLarge
	case len(r.RequestURI) > maxURI:
		status = http.StatusRequestURITooLong
	case len(r.Host) > maxHost:
		status = http.StatusBadRequest
	default:
		next.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Connection", "close")
	http.Error(w, http.StatusText(status), status)
}

// HeadersRead drops the headers of a request, which are not needed any more: it may be
// answered for a long time. A stream is answered until its client leaves, or its session ends.
func HeadersRead(ctx context.Context, stream bool) {
	c, ok := ctx.Value(connKey{}).(*conn)
	if !ok {
		return
	}
	if c.enters(taken); stream {
		c.enters(streaming)
	}
	if c.headers.request == nil {
		return
	}
	clear(c.headers.request.Header) // which copies of the request have as well
	c.headers.request.Header = nil
	c.headers.request = nil
	c.release()
}

// ready makes the connection one that waits for the next request.
func (c *conn) ready() {
	c.release()
	next := c.headers.next
	c.headers = headers{lines: next, next: next}
}

// withoutTrailers is the body of a request that keeps no trailers.
type withoutTrailers struct {
	io.ReadCloser
	of *http.Request
}

// Read implements io.Reader.
func (b *withoutTrailers) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.of.Trailer = nil
	}
	return n, err
}
