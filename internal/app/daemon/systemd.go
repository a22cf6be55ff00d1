package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/thejerf/suture/v4"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/app/systemd"
	"github.com/orla-project/orla/internal/app/upgrade"
	"github.com/orla-project/orla/internal/observe/history"
	"github.com/orla-project/orla/supervisor"
)

// statusPause is the least time between two updates of the status text.
const statusPause = time.Second

// readiness keeps the status text of `systemctl status` up to date.
type readiness struct {
	notifier   *systemd.Notifier
	supervisor *supervisor.Supervisor
	history    *history.History
	upgrades   *upgrade.Upgrades
}

// String names the service in logs.
func (r *readiness) String() string { return "systemd status" }

// Serve sends changes of the text, until ctx ends.
func (r *readiness) Serve(ctx context.Context) error {
	var following sync.WaitGroup
	defer following.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	moved := make(chan struct{}, 1) // holds a token when a capsule's state has changed
	moves := history.Query{Since: time.Now(), Events: []string{"state"}}
	following.Go(func() {
		for range r.history.Follow(ctx, moves) {
			select {
			case moved <- struct{}{}:
			default:
			}
		}
	})
	for {
		listed := r.supervisor.Catalog().Changed
		r.notifier.Status(r.text)
		select {
		case <-time.After(statusPause):
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case <-moved:
		case <-listed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// text returns the state of Orla in a few words.
func (r *readiness) text() string {
	lives, ready := r.supervisor.Lives(), 0
	for _, life := range lives {
		if life.State == "READY" {
			ready++
		}
	}
	text := fmt.Sprintf("%d of %d capsules ready, %d tools", ready, len(lives), len(r.supervisor.Catalog().Tools))
	if _, failed := r.upgrades.Last(); failed != "" {
		text += "; not upgraded, the log says why"
	}
	return text
}

// watchdog sends systemd's keep-alive message, each time after checking that Orla works. A ticker alone
// would go on when everything else is stuck.
type watchdog struct {
	every time.Duration // half of the time after which systemd ends Orla
	prove func(ctx context.Context) error
	alive func()
	log   *slog.Logger
}

// newWatchdog returns the watchdog of front and s; nil if systemd did not ask for one.
func newWatchdog(n *systemd.Notifier, s *supervisor.Supervisor, front *suture.Supervisor, log *slog.Logger) *watchdog {
	if n.Watchdog() == 0 {
		return nil
	}
	return &watchdog{
		every: n.Watchdog() / 2,
		prove: func(ctx context.Context) error { return s.Alive(ctx, front) },
		alive: n.Alive,
		log:   log,
	}
}

// String names the service in logs.
func (w *watchdog) String() string { return "systemd watchdog" }

// Serve checks Orla and sends the message, until ctx ends.
func (w *watchdog) Serve(ctx context.Context) error {
	beat := time.NewTicker(w.every)
	defer beat.Stop()
	for {
		within, cancel := context.WithTimeout(ctx, w.every)
		switch err := w.prove(within); {
		case err == nil:
			w.alive()
		case ctx.Err() == nil:
			w.log.Error("Orla is stuck; systemd's watchdog is not fed", "err", err)
		}
		cancel()
		select {
		case <-beat.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// socketNames are the FileDescriptorNames under which systemd hands over the
// sockets for HTTP; those without a name are for HTTP as well.
var socketNames = [...]string{"orla-http", "orla.socket", ""}

// givenSockets returns the sockets that systemd listens on for Orla's HTTP.
func givenSockets(log *slog.Logger) []net.Listener {
	var given []net.Listener
	for name, sockets := range systemd.Listeners() {
		if slices.Contains(socketNames[:], name) {
			given = append(given, sockets...)
			continue
		}
		log.Warn("systemd passed a socket that Orla does not use", "name", name, "names", "orla-http, orla.socket")
		for _, s := range sockets {
			_ = s.Close() // the socket stays systemd's
		}
	}
	return given
}

// exposed returns the address of the first socket that other machines reach; "" for none.
func exposed(sockets []net.Listener) string {
	for _, s := range sockets {
		if address := s.Addr(); address.Network() != "unix" && !config.IsLoopback(hostOf(address.String())) {
			return address.String()
		}
	}
	return ""
}

// refuseExposed refuses to serve everybody on a socket of systemd's, as the
// configuration is refused that would do so.
func refuseExposed(cfg *config.Loaded, given []net.Listener) error {
	address := exposed(given)
	if address == "" || cfg.Auth.Required() || cfg.Insecure {
		return nil
	}
	return &exit.Error{
		Code: exit.Invalid,
		Err:  fmt.Errorf("systemd listens on %s, which is reachable from other machines, and neither auth.tokens nor auth.oauth is set", address),
		Hint: "set auth.tokens or auth.oauth, or say --insecure if something else guards it",
	}
}

func (s *server) readiness() *readiness {
	return &readiness{s.notifier, s.Supervisor, s.log.History(), &s.upgrades}
}
