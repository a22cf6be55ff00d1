// Package outbound makes the HTTP requests to the services that are tools, and to those that they
// need. The requests of a caller share connections, with a guard in their dialer that sees the address
// after name resolution (SPEC-TOOLS 5.4).
//
// It knows neither tools nor secrets. Its invariant: no connection is made to an address that the
// policy does not allow, whatever a name resolves to or a service redirects to. None of its errors
// contains a header, or the user, password or query of a URL.
package outbound

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/net/http2"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
)

const (
	dialTimeout      = 30 * time.Second // the request's context may end sooner
	handshakeTimeout = 15 * time.Second
	idleTimeout      = 90 * time.Second
	idlePerHost      = 128

	// An answer's header stays in memory until its call ends, and a field without a value takes 150
	// bytes.
	maxHeader = 64 << 10
	maxFields = 256

	// A service may refuse each connection without looking at the request, and net/http then makes the
	// next one at once.
	maxConns = 32

	// Received and unread data of an HTTP/2 call is in memory too. The protocol's default is 64 KiB;
	// that of net/http is 4 MiB.
	maxUnread = 128 << 10

	// A connection is read in portions of this size. net/http's 4 KiB are 2000 system calls for a large
	// answer in chunks.
	readBuffer = 32 << 10

	// A silent HTTP/2 connection is pinged, no more often than gRPC servers permit.
	pingAfter   = 5*time.Minute + 10*time.Second
	pingTimeout = 15 * time.Second
)

// Options configures a Client.
type Options struct {
	// Private says which addresses that are not public may be reached. If
	// empty, PrivateLoopback.
	Private Private
	// Far says that the service is not meant to be on this machine: this machine's addresses count as
	// private ones, which only PrivateAll allows.
	Far bool
	// Roots are the trusted certificate authorities. If nil, the system's.
	Roots *x509.CertPool
	// Transport, if not nil, makes all connections, to wherever it likes: for what Orla itself runs elsewhere. The caller
	// closes it.
	Transport http.RoundTripper
}

// Client makes HTTP requests. Its methods may be called from any goroutine.
type Client struct {
	http, h2c http.Client
	doer      http.Client

	services services
	floods   floods

	roots *x509.CertPool
	far   bool
	is    classifier // replaced by tests, before the first request

	mu      sync.Mutex // guards private, and replacing pool
	private Private
	pool    atomic.Pointer[pool]
}

// New returns a Client without connections.
func New(opts Options) *Client {
	c := &Client{roots: opts.Roots, far: opts.Far, is: classify, private: opts.Private, services: services{all: turns.NewShares(maxAllRequests)}}
	c.private = cmp.Or(c.private, PrivateLoopback)
	c.pool.Store(c.newPool(c.private))
	web := roundTripper(func(req *http.Request) (*http.Response, error) { return c.send(req, false) })
	plain := roundTripper(func(req *http.Request) (*http.Response, error) { return c.send(req, true) })
	if opts.Transport != nil {
		web = roundTripper(func(req *http.Request) (*http.Response, error) { return sendBy(opts.Transport, req) })
	}
	c.doer = http.Client{Transport: web, CheckRedirect: redirect}
	c.http = http.Client{Transport: web, CheckRedirect: stay}
	c.h2c = http.Client{Transport: plain, CheckRedirect: stay}
	return c
}

// Allow replaces the policy. Connections made under another policy are not used for new requests;
// requests in flight go on.
func (c *Client) Allow(private Private) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if private == c.private {
		return
	}
	c.private = private
	c.pool.Swap(c.newPool(private)).closeIdle()
}

// Close closes idle connections.
func (c *Client) Close() { c.pool.Load().closeIdle() }

// Do sends req and follows up to five redirects. On the same host, a redirect keeps all headers, and
// with 307 or 308 the method and the body. To another host, only a GET is followed, without any
// header that might be a secret. The caller must close the answer's body. The errors of Do and of
// reading the body are *fault.Error.
func (c *Client) Do(req *http.Request) (*http.Response, error) {
	resp, err := c.doer.Do(req)
	if err != nil {
		return nil, transportFault(req, err, true)
	}
	return resp, nil
}

// HTTPClient returns a client with the same connections for libraries that need one. It follows no
// redirects. A *fault.Error is in the chain of its errors; the errors of reading a body are
// *fault.Error.
func (c *Client) HTTPClient() *http.Client { return &c.http }

// Following is HTTPClient for libraries that need redirects: its client follows them as Do does.
func (c *Client) Following() *http.Client { return &c.doer }

// H2C is HTTPClient for HTTP/2 without TLS, for http URLs.
func (c *Client) H2C() *http.Client { return &c.h2c }

// send makes one request, by HTTP/2 without TLS if h2c is set. A redirected request has separate
// connections, to addresses that are at least as public as that of the first request.
func (c *Client) send(req *http.Request, h2c bool) (*http.Response, error) {
	within, cancel := context.WithCancel(req.Context())
	h := &hop{Context: within, giveUp: cancel, is: c.is, floor: floorOf(req)}
	ctx := httptrace.WithClientTrace(h, &httptrace.ClientTrace{GotConn: h.connected})
	pool := c.pool.Load()
	t := pool.begin(kind{turns.AccountOf(req.Context()).Owner().Tenant(), h2c, h.floor})
	giveUp := sync.OnceFunc(func() {
		cancel()
		pool.end(t)
	})
	resp, err := t.RoundTrip(req.WithContext(ctx)) //nolint:contextcheck // a hop is the request's own context
	if err != nil {
		giveUp()
		if h.conns.Load() > maxConns && req.Context().Err() == nil {
			return nil, fault.New(fault.ExecutionFailed, "%s ended %d connections instead of an answer", Origin(req.URL), maxConns)
		}
		connected := h.seen.Load()
		if connected {
			err = own(req, err)
			h.conn.Load().closeBlocked()
		}
		return nil, transportFault(req, err, connected)
	}
	over, conn := giveUp, h.conn.Load()
	if conn != nil && resp.ProtoMajor == 2 {
		stop := conn.watch(req.Context())
		over = func() {
			stop()
			giveUp()
		}
	}
	resp.Body = &body{ReadCloser: resp.Body, req: req, trailer: &resp.Trailer, conn: conn, over: over}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		// After a protocol switch the body is a connection, which would outlive the request's context.
		_ = resp.Body.Close()
		return nil, fault.New(fault.ExecutionFailed, "%s switches to another protocol without being asked to", Origin(req.URL))
	}
	if fields(resp.Header) > maxFields {
		_ = resp.Body.Close() // the body is not needed
		return nil, tooManyFields(req, "header")
	}
	return resp, nil
}

func tooManyFields(req *http.Request, where string) *fault.Error {
	return fault.New(fault.ExecutionFailed, "the %s of the answer of %s has more than %d fields", where, Origin(req.URL), maxFields)
}

// fields returns the number of fields in a header.
func fields(h http.Header) (n int) {
	for _, values := range h {
		n += len(values)
	}
	return n
}

// roundTripper is a function that implements http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }

// newPool returns a pool without connections, for connections under a policy.
func (c *Client) newPool(private Private) *pool {
	return newPool(func(k kind, opened func() (closed func())) *http.Transport { return c.transport(k, private, opened) })
}

// transport makes what sends requests of a kind. It calls opened for each connection, and closed when that is closed.
func (c *Client) transport(k kind, private Private, opened func() (closed func())) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!k.h2c)
	protocols.SetHTTP2(!k.h2c)
	protocols.SetUnencryptedHTTP2(k.h2c)
	guarded := c.is.guard(private, c.far, k.floor)
	dialer := &net.Dialer{
		Timeout:         dialTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3},
		ControlContext: func(ctx context.Context, network, address string, raw syscall.RawConn) error {
			if err := guarded(ctx, network, address, raw); err != nil {
				return err
			}
			return giveUpDead(raw)
		},
	}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return newPaced(conn, k.caller, opened(), &c.floods), nil
	}
	t := &http.Transport{
		Proxy:                  nil, // a proxy would hide the address from the guard
		DialContext:            dial,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.roots},
		TLSHandshakeTimeout:    handshakeTimeout,
		MaxIdleConns:           0, // bounded per host, and by the pool
		MaxIdleConnsPerHost:    idlePerHost,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeader,
		ReadBufferSize:         readBuffer,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout, MaxReceiveBufferPerStream: maxUnread},
		Protocols:              protocols,
	}
	// The client that net/http brings locks a mutex that it holds when a service lets a stream's window grow past its bound, and no call on
	// that connection ends (Go 1.26).
	if _, err := http2.ConfigureTransports(t); err != nil { //nolint:staticcheck // what is to replace it is that client; it fails for a transport that has HTTP/2 already
		panic(err)
	}
	return t
}

// body is an answer's body whose errors are *fault.Error.
type body struct {
	io.ReadCloser
	req     *http.Request
	trailer *http.Header // it comes after the body
	conn    *paced       // nil if it is not paced
	over    func()
}

// Close implements io.Closer.
func (b *body) Close() error {
	defer b.over()
	return b.ReadCloser.Close()
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.conn.asked(perRead + 2*int64(n))
	switch {
	case err == nil:
	case !errors.Is(err, io.EOF): // io.ErrUnexpectedEOF is not io.EOF
		err = transportFault(b.req, own(b.req, err), true)
	case fields(*b.trailer) > maxFields:
		err = tooManyFields(b.req, "trailer")
	}
	return n, err
}

// own returns err, unless it belongs to another request on the same connection. net/http passes a
// connection on to the next request before it reports an answer without a body to the request
// before. If that request's context ends in between, net/http closes the connection, and the next
// request fails with the context error of the other.
func own(req *http.Request, err error) error {
	if req.Context().Err() != nil {
		return err
	}
	_, reasoned := errors.AsType[*fault.Error](err)
	if reasoned || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// cause returns why ctx ended.
func cause(ctx context.Context) *fault.Error { return fault.From(context.Cause(ctx)) }
