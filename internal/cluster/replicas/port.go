package replicas

import (
	"container/list"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
)

// newCertificate makes the certificate of a process, which others know by its digest. Its key is in memory only.
func newCertificate(name string) (cert tls.Certificate, digest string, err error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return tls.Certificate{}, "", err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(100, 0, 0),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		return tls.Certificate{}, "", err
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: private}, digestOf(raw), nil
}

func digestOf(certificate []byte) string {
	sum := sha256.Sum256(certificate)
	return hex.EncodeToString(sum[:])
}

// UnreachableError is the error of a request that was not sent, since its replica cannot be reached.
type UnreachableError struct {
	Name string
	Err  error
}

func (e *UnreachableError) Error() string { return fmt.Sprintf("replica %s: %v", e.Name, e.Err) }

func (e *UnreachableError) Unwrap() error { return e.Err }

// dialTime bounds the making of a connection.
const dialTime = 3 * time.Second

// maxDials bounds the connections to one replica that are made at a time: until it knows whose they are, they are among the
// strangers there, of which it closes the oldest (maxStrangers).
const maxDials = 8

// transport makes requests of replicas. net/http goes on making a connection when its request has ended, for one that comes later.
type transport struct{ *http.Transport }

// askKey is the key of a request's own context in that of the connection which is made for it.
type askKey struct{}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	return t.Transport.RoundTrip(req.WithContext(context.WithValue(ctx, askKey{}, ctx)))
}

// turnToDial waits until a connection with a replica may be made, after which give must be called. ok is false if the replica was
// found to be out of reach meanwhile, or ctx has ended.
func (r *Replicas) turnToDial(ctx context.Context, name string) (give func(), ok bool) {
	r.mu.Lock()
	l := r.leases[leaseOf(name)]
	if l == nil {
		r.mu.Unlock()
		return nil, false
	}
	if l.dials == nil {
		l.dials = make(chan struct{}, maxDials)
	}
	dials := l.dials
	r.mu.Unlock()
	give = func() { <-dials }
	select {
	case dials <- struct{}{}:
		return give, true
	default:
	}
	select {
	case dials <- struct{}{}:
	case <-ctx.Done():
		return nil, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if l = r.leases[leaseOf(name)]; l == nil || l.suspected() { // each of those that wait would wait for its time
		give()
		return nil, false
	}
	return give, true
}

// dial connects to the replica whose name is the host of an address, and checks that it is that one.
func (r *Replicas) dial(ctx context.Context, _, address string) (net.Conn, error) {
	name, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	waits := ctx //nolint:contextcheck // net/http detaches ctx from the request's
	if asks, is := ctx.Value(askKey{}).(context.Context); is {
		waits = asks
	}
	give, ok := r.turnToDial(waits, name)
	if !ok {
		return nil, &UnreachableError{name, errors.New("there is no such replica, or it cannot be reached")}
	}
	defer give()
	r.mu.Lock()
	l := r.leases[leaseOf(name)]
	r.mu.Unlock()
	if l == nil {
		return nil, &UnreachableError{name, errors.New("there is no such replica")}
	}
	m := l.member()
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	secure := tls.Dialer{Config: &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{r.cert},
		InsecureSkipVerify: true, //nolint:gosec // the certificate is compared below
	}}
	conn, err := secure.DialContext(ctx, "tcp", m.Address)
	if err != nil {
		if ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
			r.suspect(name)
		}
		return nil, &UnreachableError{name, err}
	}
	made, ok := conn.(*tls.Conn)
	if !ok || digestOf(made.ConnectionState().PeerCertificates[0].Raw) != m.Digest {
		_ = conn.Close() // nothing was sent
		r.suspect(name)
		return nil, &UnreachableError{name, errors.New("another program answers at its address")}
	}
	return conn, nil
}

// knows reports whether a certificate is that of a replica that lives.
func (r *Replicas) knows(ctx context.Context, digest string) bool {
	return r.looked(ctx, r.held.digests, digest, func() bool {
		return slices.ContainsFunc(r.live, func(m Member) bool { // few, while each capsule has a Lease
			l := r.leases[leaseOf(m.Name)]
			return m.Digest == digest && l != nil && l.note(noteDigest) == digest && l.Spec.Holder == m.Name && r.livesLocked(l)
		})
	})
}

// Known reports whether there is a replica of a name, or was one lately.
func (r *Replicas) Known(ctx context.Context, name string) bool {
	return name != "" && r.looked(ctx, r.held.names, name, func() bool { return r.leases[leaseOf(name)] != nil })
}

// Forgotten reports whether a replica has been gone for so long that nobody remembers it. Known was asked before.
func (r *Replicas) Forgotten(name string) bool {
	vain := r.held.names.gone(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	return vain && r.leases[leaseOf(name)] == nil
}

// looked reports whether something is so, which is called with r.mu locked: for each request, so it must not look at all Leases.
// What is unknown is looked for once more: it may be new. What is not there then is never looked for again, since a replica has its
// Lease before anybody hears of it.
func (r *Replicas) looked(ctx context.Context, s *search, what string, is func() bool) bool {
	has := func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return is()
	}
	if has() {
		return true
	}
	s.mu.Lock() // what comes at the same time waits for what is found: a new replica is asked for by several requests at once
	defer s.mu.Unlock()
	if has() {
		return true
	}
	if s.gone(what) || time.Now().Before(s.next) { // a stranger must not make many requests
		return false
	}
	if _, err := r.list(context.WithoutCancel(ctx)); err != nil { // also for who has hung up: others would ask at once
		s.next = time.Now().Add(lasts / 2) // the API server is away, which must not hold up every request
		return false
	}
	if has() {
		return true
	}
	s.note(what)
	s.next = time.Now().Add(s.pause)
	return false
}

const (
	// headTime bounds the reading of a request's headers on the second port, and idleTime an idle connection there.
	headTime, idleTime = 10 * time.Second, 3 * time.Minute
	// maxHead bounds the headers in bytes: those of a client, and who it is.
	maxHead = 1 << 20
)

// maxStrangers bounds the connections to the second port on which no replica has asked anything. For one more, the network that has
// the most loses its oldest.
const maxStrangers = 256

// strangers are these connections: whoever reaches the port can make some, and each takes a descriptor (SPEC N2). Those of replicas
// are among them at first.
type strangers struct {
	mu sync.Mutex // guards the fields that follow
	at map[net.Conn]*list.Element
	of map[string]*list.List // of net.Conn, by their networks; the oldest first, and none is empty
}

// follow notes that a connection has come or gone.
func (s *strangers) follow(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		if oldest, ok := s.add(c).(*tls.Conn); ok {
			_ = oldest.NetConn().Close() // Close of a tls.Conn may wait for its peer
		}
	case http.StateClosed, http.StateHijacked:
		s.remove(c)
	case http.StateActive, http.StateIdle:
	}
}

// add adds a connection, and returns the one that has to go; nil for none.
func (s *strangers) add(c net.Conn) (oldest net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.at, s.of = map[net.Conn]*list.Element{}, map[string]*list.List{}
	}
	network := networkOf(c)
	if s.of[network] == nil {
		s.of[network] = list.New()
	}
	s.at[c] = s.of[network].PushBack(c)
	if len(s.at) <= maxStrangers {
		return nil
	}
	most := s.of[network]
	for _, one := range s.of {
		if one.Len() > most.Len() {
			most = one
		}
	}
	oldest, _ = most.Front().Value.(net.Conn)
	s.removeLocked(oldest)
	return oldest
}

// remove takes a connection out, if it is there.
func (s *strangers) remove(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeLocked(c)
}

func (s *strangers) removeLocked(c net.Conn) {
	at := s.at[c]
	if at == nil {
		return
	}
	delete(s.at, c)
	network := networkOf(c)
	if s.of[network].Remove(at); s.of[network].Len() == 0 {
		delete(s.of, network)
	}
}

func networkOf(c net.Conn) string { return turns.NetworkOf(c.RemoteAddr().String()) }

// connKey is the key of a request's net.Conn in its context.
type connKey struct{}

// Listen serves the second port on a listener: what is held here, and passed, for what another replica passes on. end closes
// it, when everything that is being answered is.
func (r *Replicas) Listen(on net.Listener, passed http.Handler) (end func(context.Context)) {
	mux := http.NewServeMux()
	mux.HandleFunc(capsulePath+"{capsule}", r.serveHeld)
	mux.Handle("/", passed)
	unknown, known := new(strangers), new(asking)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true) // no replica speaks HTTP/2, by which one connection has many requests
	server := &http.Server{
		Protocols: protocols,
		ConnState: func(c net.Conn, state http.ConnState) {
			unknown.follow(c, state)
			known.follow(c, state)
		},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			digest := ""
			if q.TLS != nil && len(q.TLS.PeerCertificates) > 0 {
				digest = digestOf(q.TLS.PeerCertificates[0].Raw)
			}
			if digest == "" || !r.knows(q.Context(), digest) {
				w.Header().Set("Connection", "close")
				http.Error(w, "this port is for the replicas of this Orla", http.StatusForbidden)
				return
			}
			if c, ok := q.Context().Value(connKey{}).(net.Conn); ok {
				unknown.remove(c)
				room, kept := known.add(c, digest)
				if !kept {
					w.Header().Set("Connection", "close")
				}
				if !room {
					w.Header().Set("Retry-After", "1")
					http.Error(w, "this replica has too many connections of that one", http.StatusServiceUnavailable)
					return
				}
			}
			mux.ServeHTTP(w, q)
		}),
		ReadHeaderTimeout: headTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHead,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{r.cert}, ClientAuth: tls.RequireAnyClientCert},
		ErrorLog:  slog.NewLogLogger(r.opts.Log.Handler(), slog.LevelDebug),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.ServeTLS(on, "", ""); !errors.Is(err, http.ErrServerClosed) {
			r.opts.Log.Error("the port for other replicas is closed", "err", err)
		}
	}()
	return func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close() // what is left has had its time
		}
		<-done
	}
}
