package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/netutil"
)

const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 5 * time.Minute
	maxHeader     = 64 << 10
	// closeTimeout is how long connections may take to end once no session
	// holds them any more.
	closeTimeout = 2 * time.Second
	// spareDescriptors are left for tools and files when connections take all
	// they may.
	spareDescriptors = 512
)

// web serves HTTP on one address at a time, which may change.
type web struct {
	log    *slog.Logger
	server *http.Server

	mu      sync.Mutex // guards what follows
	address string     // as configured
	current net.Listener
	serving sync.WaitGroup
}

func newWeb(handler http.Handler, log *slog.Logger) *web {
	return &web{
		log: log,
		server: &http.Server{
			Handler:           handler,
			ReadHeaderTimeout: headerTimeout,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    maxHeader,
			ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		},
	}
}

// listen serves on address from now on. The new address is listened on before
// the old one is given up, and connections that are open stay (SPEC H2).
func (w *web) listen(ctx context.Context, address string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current != nil && w.address == address {
		return nil
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return listenError(address, err)
	}
	limited := netutil.LimitListener(l, maxConnections())
	old := w.current
	w.address, w.current = address, l
	w.serving.Go(func() {
		err := w.server.Serve(limited)
		if err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			w.log.Error("the HTTP server ended", "address", address, "err", err)
		}
	})
	if old != nil {
		_ = old.Close() // it only stops accepting
	}
	return nil
}

// url is where clients reach the server.
func (w *web) url() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return "http://" + w.current.Addr().String() + "/mcp"
}

// shutdown stops accepting and waits for open requests until ctx ends, then
// cuts them off.
func (w *web) shutdown(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	if err := w.server.Shutdown(ctx); err != nil {
		_ = w.server.Close() // what is left had its time
	}
	w.serving.Wait()
}

// listenError says why an address cannot be listened on, and what helps.
func listenError(address string, err error) error {
	f := &failure{code: exitFailed, err: fmt.Errorf("listen on %s: %w", address, err)}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		f.err = fmt.Errorf("%s is in use by another program", address)
		f.hint = "end that program, or take another port with --port"
	case errors.Is(err, syscall.EACCES):
		f.err = fmt.Errorf("%s may not be listened on by this user", address)
		f.hint = "take a port above 1023 with --port"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		f.err = fmt.Errorf("%s is no address of this machine", address)
	}
	return f
}

// maxConnections is as many as the limit of descriptors has room for beside
// tools; more wait in the kernel's queue.
func maxConnections() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return spareDescriptors
	}
	const enough = 1 << 20
	n := int(min(limit.Cur, enough))
	return max(n-spareDescriptors, n/2)
}
