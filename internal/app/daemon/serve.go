// Package daemon runs Orla as a server: the front, where requests come in, reloads, the answers of the
// control socket, messages to systemd, and the stop.
package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/thejerf/suture/v4"

	"github.com/orla-project/orla/internal/app/access"
	"github.com/orla-project/orla/internal/app/arguments"
	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/decisions"
	"github.com/orla-project/orla/internal/app/discovery"
	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/app/listen"
	"github.com/orla-project/orla/internal/app/sources"
	"github.com/orla-project/orla/internal/app/systemd"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/app/upgrade"
	"github.com/orla-project/orla/internal/app/version"
	"github.com/orla-project/orla/internal/app/wiring"
	"github.com/orla-project/orla/internal/console"
	"github.com/orla-project/orla/internal/kind/webhook"
	"github.com/orla-project/orla/internal/launch/carry"
	"github.com/orla-project/orla/internal/observe/logging"
	"github.com/orla-project/orla/internal/observe/telemetry"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
	"github.com/orla-project/orla/mcpbridge/transport/stdio"
	"github.com/orla-project/orla/supervisor/services"
)

// Serve runs Orla until a signal, or on stdio until the client is done.
//
// The tree has a front, where work comes in, and a back, where tools live. The
// back is ended only after the front has returned (SPEC F1):
//
//	front: bridge, http sessions, keys of the issuer, reloader, control socket, webhook of approvals, what systemd is told
//	back:  one service per living tool
//
// It may execute another program in this process in between (docs/decisions/0051).
func Serve(ctx context.Context, from *config.Loader, std terminal.Streams) error {
	before, err := upgrade.Received()
	if err != nil {
		return &exit.Error{Code: exit.Failed, Err: err}
	}
	program := upgrade.Own()
	for {
		next, err := serve(ctx, from, std, program, before)
		if next == nil {
			return err
		}
		before = next.Execute() // or it does not return
	}
}

// serve runs Orla until it ends, or until another program is to be executed with what it returns then. before is what
// the program before has given; nil for nothing.
func serve(ctx context.Context, from *config.Loader, std terminal.Streams, program upgrade.Program, before *upgrade.Document) (next *upgrade.Document, err error) {
	log := logging.New(std.Err, systemd.JournalSocket)
	defer log.Flush()
	from.Serving = true
	cfg, err := from.Load()
	if err == nil {
		err = cfg.CheckToolsDir()
	}
	if err != nil {
		return nil, config.NotLoaded(err)
	}
	if upgrade.IsCheck(ctx) {
		return nil, checkFiles(cfg, from.Environ)
	}
	logTo, err := logging.OpenFile(cfg.LogFile)
	if err != nil {
		return nil, &exit.Error{Code: exit.Failed, Err: cfg.At("log_file", err)}
	}
	log.Configure(cfg.LogLevel, cfg.LogFormat, logTo)
	log.TakeStandard()
	for _, hint := range from.Misspelled() {
		log.Warn("a variable of the environment is ignored", "hint", hint)
	}
	before.TakeKept(upgrade.History, log.History().Take, log.Logger)
	if cfg.LogFile != "" || cfg.LogFormat == logging.Journal && !systemd.StderrIsJournal() { // the log is not where err is printed
		defer func() {
			if err != nil {
				log.Log(ctx, logging.LevelFatal, "failed", "err", err)
			}
		}()
	}
	wiring.LetGarbageGather()
	signals := newSignals(std.Gone())
	if before != nil && before.Ended {
		signals.end <- syscall.SIGTERM
	}
	defer signals.stop()
	// A reader of the log or of stdout that is gone is an error of the write,
	// not the end of the process. Caught and not ignored: tools would inherit that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	guard, err := wiring.Guard()
	if err != nil {
		return nil, &exit.Error{Code: exit.Failed, Err: err}
	}
	p, err := wiring.Join(cfg, guard, before.ForParts(), log.Logger) //nolint:contextcheck // a sweep of containers is its engine's, which close ends
	if err != nil {
		return nil, &exit.Error{Code: exit.Failed, Err: err}
	}
	p.Holds = wiring.HoldsOf(cfg)
	s := &server{
		Parts: p, log: log, notifier: systemd.NewNotifier(log.Logger), began: time.Now(), stopped: make(chan struct{}),
		reloads: reloads{from: from, hup: make(chan struct{}, 1), asked: make(chan asking), prepared: make(chan struct{}, 1)},
	}
	defer func() { // last of all: a second signal ends whatever else takes its time
		close(s.stopped)
		s.secondSignal.Wait()
	}()
	defer func() { //nolint:contextcheck // what is being written is finished
		if next = s.upgrades.Next; next == nil {
			p.Close()
			return
		}
		upgrade.IgnoreSignals()
		next.Parts = p.Leave(s.capsules)
		s.keep(next)
	}()
	s.upgrades.Begin(program, before, log.Logger)

	s.arguments = s.newArguments()
	defer s.arguments.Close()
	s.telemetry = s.newTelemetry()
	before.TakeKept(upgrade.Counters, s.telemetry.Take, log.Logger)
	defer s.telemetry.Close(ctx)
	traces, err := s.tracing(cfg)
	if err != nil {
		return nil, &exit.Error{Code: exit.Invalid, Err: err}
	}
	s.trace(ctx, traces)
	webhook, err := wiring.Webhook(cfg)
	if err != nil {
		return nil, &exit.Error{Code: exit.Invalid, Err: err}
	}
	s.Approving.Announcer.Use(webhook)
	if !cfg.Stdio {
		if s.given = givenSockets(log.Logger); before != nil {
			s.given = before.Sockets(log.Logger)
		}
		if err := s.mayListen(ctx, cfg, before); err != nil {
			return nil, err
		}
	}
	s.folders = sources.New(p.Hub, log.Logger)
	searching, searched := signals.untilEnd(ctx)
	s.folders.Point(searching, cfg, from.Home) // before the folders are read, so that no change slips between
	defer s.Services.Cluster.Start(ctx, s.facts)()
	s.Services.Cluster.Await(searching, clusterTime)
	s.apply(searching, cfg, "start")
	searched()
	p.EndRest()
	if err := context.Cause(searching); !errors.Is(err, errSearched) {
		log.Info("stopped", "reason", err.Error())
		return nil, nil
	}
	shared, err := p.Shared.Join(ctx)
	if err != nil {
		return nil, &exit.Error{Code: exit.Failed, Err: err}
	}
	s.bridge = mcpbridge.New(p.Supervisor, mcpbridge.Options{
		Shared:  shared,
		Version: version.Version(), MaxInline: int64(cfg.MaxInline), Log: log.Logger,
		Starting: p.Supervisor.Starting, Refusing: s.refusing, Refused: p.Refused(), Audit: p.AuditRequests(), Rules: &p.Governance, StateKey: before.ForBridge(),
		Admitted: listen.Admitted, HeadersRead: listen.HeadersRead, Observe: s.arguments.Observe(s.telemetry.Observe), Metrics: s.telemetry.Handler(),
	})
	s.decisions = s.newDecisions()
	s.control = control.New(control.Options{Backend: s.operations(), Others: s.arguments.Routes(), MaxRequest: int64(cfg.MaxRequest), Before: before.ForControl(), Log: log.Logger})
	if cfg.Stdio {
		return nil, s.runStdio(ctx, cfg, std, signals)
	}
	return nil, s.runHTTP(ctx, cfg, signals, before)
}

// server is a running Orla.
type server struct {
	*wiring.Parts
	log       *logging.Log
	telemetry *telemetry.Telemetry
	traced    telemetry.Tracing // where spans go; owned by trace
	notifier  *systemd.Notifier // nil without systemd
	bridge    *mcpbridge.Bridge
	httpFront
	control   *control.Server
	decisions *decisions.Decisions
	arguments *arguments.Keeper
	callable  callable // for the status
	reloads
	inForce
	upgrades upgrade.Upgrades
	capsules map[string]json.RawMessage // that were given away

	began        time.Time
	stopped      chan struct{}  // closed when all has stopped
	secondSignal sync.WaitGroup // holds endAtOnce
}

// httpFront is where clients come in over HTTP. It is empty on stdio.
type httpFront struct {
	http   *httpfront.Front
	page   *console.Console
	web    *listen.Server
	issuer access.Issuer                     // of access tokens
	tokens atomic.Pointer[map[string]string] // what access.Tokens returned for those that are accepted; nil on stdio
	given  []net.Listener                    // what systemd listens on
}

// reloads are what the reloader reads, and what it waits for.
type reloads struct {
	from     *config.Loader
	folders  *sources.Folders
	hup      chan struct{} // holds one request to reload
	asked    chan asking
	prepared chan struct{}   // holds one request to apply manifests that waited for packages
	reported map[string]bool // problems that were logged; owned by apply
	seen     discovery.Seen  // what searches have seen; owned by apply
	weaker   []string        // in which ways tools are isolated less than by default; owned by apply
	missing  []string        // which folders of the configuration are not there; owned by apply
}

// inForce is what the last reload left.
type inForce struct {
	mu    sync.Mutex // guards the fields that follow
	cfg   *config.Loaded
	wrong []manifest.Problem // with the folders of tools
}

// refusing returns the status for /readyz while every call is refused: it is denied, or cannot be recorded.
func (s *server) refusing() string {
	switch {
	case s.Governance.Denies():
		return "denied"
	case s.Audit.Err() != nil:
		return "audit_log"
	}
	return ""
}

// runHTTP serves HTTP until a signal.
func (s *server) runHTTP(ctx context.Context, cfg *config.Loaded, signals *signals, before *upgrade.Document) error {
	settings, issued, err := s.httpSettings(cfg)
	if err != nil {
		return &exit.Error{Code: exit.Invalid, Err: err}
	}
	s.http = httpfront.New(s.bridge, settings)
	s.tokens.Store(&settings.Callers)
	endReplicas, err := s.Shared.Open(ctx, cfg, s.http, s.Services.Callbacks)
	if err != nil {
		return &exit.Error{Code: exit.Failed, Err: err}
	}
	kept := wiring.Sessions(cfg, s.log.Logger)
	defer kept.Close()
	s.http.Keep(kept)
	s.issuer.Use(issued)
	for _, at := range access.MetadataPaths {
		s.http.Handle(at, &s.issuer)
	}
	s.http.Handle(webhook.CallbackPattern, s.Shared.Callbacks(s.Services.Callbacks))
	s.serveConsole(cfg, &settings) //nolint:contextcheck // a decision waits for no context
	s.web = listen.New(s.http, s.log.Logger)
	s.web.WhenEnded(wiring.Used)
	if err := s.open(ctx, cfg, before); err != nil {
		return err
	}
	tree := s.startTree(ctx, s.bridge, s.http, s, s.control, s.Approving.Announcer, &s.issuer)
	s.awaitControl(ctx, cfg)
	s.serving(s.web.URL())
	s.Shared.ServeWhen(func() bool { return s.bridge.Refusing() == "" && len(s.bridge.Starting()) == 0 })
	carry.CloseRest()

	ended := s.waitForEnd(ctx, signals, nil)
	for {
		f, ok := errors.AsType[follow](ended)
		if !ok {
			break
		}
		if s.leave(ctx, signals, tree, f.Document) {
			return nil
		}
		ended = s.waitForEnd(ctx, signals, nil)
	}
	s.followSignals(ctx, signals)
	s.http.Drain()
	s.Shared.Leave(ctx, time.Duration(s.current().ShutdownGrace))
	s.drain(ctx)
	s.page.Close()
	s.http.CloseSessions()
	s.web.Shutdown(context.WithoutCancel(ctx))
	endReplicas(context.WithoutCancel(ctx))
	tree.end()
	s.log.Info("stopped", "reason", ended.Error())
	return nil
}

// clusterTime is how long the start waits for the resources of a cluster. After that Orla serves what it knows; a rule
// that it does not know denies every call.
const clusterTime = 10 * time.Second

// serving tells the log and systemd that Orla serves. It does not wait for capsules: one that does not
// start must not affect the others.
func (s *server) serving(url string) {
	s.log.Info("serving", "url", url, "tools", len(s.Supervisor.Catalog().Tools), "version", version.Version(), "pid", os.Getpid())
	s.notifier.Ready(s.readiness().text)
}

// runStdio serves the one client on stdin and stdout.
func (s *server) runStdio(ctx context.Context, cfg *config.Loaded, std terminal.Streams, signals *signals) error {
	tree := s.startTree(ctx, s.bridge, s, s.control, s.Approving.Announcer)
	s.awaitControl(ctx, cfg)
	s.serving("stdio")

	client, leave := context.WithCancel(ctx)
	defer leave()
	in, release := std.Polled()
	defer release()
	over := make(chan struct{})
	var served error
	go func() {
		defer close(over)
		served = stdio.Serve(client, s.bridge, in, std.Out, int64(cfg.MaxRequest))
	}()
	ended := s.waitForEnd(ctx, signals, over)
	s.followSignals(ctx, signals)
	s.drain(ctx)
	leave()
	<-over
	tree.end()
	s.log.Info("stopped", "reason", ended.Error())
	if served != nil && !errors.Is(served, context.Canceled) {
		return &exit.Error{Code: exit.Failed, Err: fmt.Errorf("stdio: %w", served)}
	}
	return nil
}

// startTree starts the tree: the back with all that lives, the front with all these services.
// It returns what ends the front, and what ends the back after that.
func (s *server) startTree(ctx context.Context, all ...suture.Service) *tree {
	backCtx, endBack := context.WithCancel(context.WithoutCancel(ctx))
	frontCtx, endFront := context.WithCancel(context.WithoutCancel(ctx))
	front := suture.New("front", services.Spec(s.log.Logger))
	for _, service := range all {
		front.Add(service)
	}
	if s.notifier != nil {
		front.Add(s.readiness())
	}
	if s.Shared != nil {
		front.Add(s.Shared)
	}
	if dog := newWatchdog(s.notifier, s.Supervisor, front, s.log.Logger); dog != nil {
		front.Add(dog)
	}
	var back sync.WaitGroup
	back.Go(func() { _ = s.Supervisor.Serve(backCtx) }) // it ends by backCtx alone
	frontEnded := front.ServeBackground(frontCtx)
	return &tree{
		endFront: func() {
			endFront()
			if err := <-frontEnded; !errors.Is(err, context.Canceled) {
				s.log.Warn("the front ended", "err", err)
			}
		},
		endBack: func() {
			endBack()
			back.Wait()
		},
	}
}

// tree is the services of a server.
type tree struct{ endFront, endBack func() }

func (t *tree) end() {
	t.endFront()
	t.endBack()
}

var (
	errClientDone = errors.New("the client has closed its end")
	errEnded      = errors.New("the caller ended it")
)

// waitForEnd handles signals until one of them, the end of the client or ctx ends Orla, and returns
// which.
func (s *server) waitForEnd(ctx context.Context, signals *signals, client <-chan struct{}) error {
	for {
		select {
		case sig := <-signals.end:
			return signalled{sig}
		case <-signals.reload:
			select {
			case s.hup <- struct{}{}:
			default: // a reload is requested already
			}
		case <-signals.state:
			s.logState()
		case next := <-s.upgrades.Asked:
			return follow{next}
		case <-client:
			return errClientDone
		case <-ctx.Done():
			return errEnded
		}
	}
}

// drain lets the calls in flight end within shutdown_grace.
func (s *server) drain(ctx context.Context) {
	grace := time.Duration(s.current().ShutdownGrace)
	// In this order: who has read the line may count on a refusal.
	inFlight := s.Supervisor.Refuse()
	s.log.Info("stopping", "in_flight", inFlight, "grace_ms", grace.Milliseconds())
	s.notifier.Stopping(fmt.Sprintf("stopping; %d calls in flight", inFlight))
	s.notifier.Extend(grace + 2*services.StopBudget) // that the configuration gives, and what front and back may take
	lasting := context.WithoutCancel(ctx)
	limited, cancel := context.WithTimeout(lasting, grace)
	defer cancel()
	s.Supervisor.Drain(limited)
	s.Shared.AwaitPassed(limited)
}

// followSignals has endAtOnce wait, as soon as Orla begins to end.
func (s *server) followSignals(ctx context.Context, signals *signals) {
	lasting := context.WithoutCancel(ctx)
	s.secondSignal.Go(func() { s.endAtOnce(lasting, signals) })
}

// endAtOnce ends the process at once on a second signal, unless Orla has stopped before. The guard
// ends the processes that are left (SPEC H4).
func (s *server) endAtOnce(ctx context.Context, signals *signals) {
	if sig := signals.second(s.stopped); sig != nil {
		s.log.Log(ctx, logging.LevelFatal, "a second signal; ending at once", "signal", sig.String())
		os.Exit(int(exit.Failed)) //nolint:forbidigo // a second signal asks for this, and a return could be stuck
	}
}

// httpSettings returns the settings of the HTTP front, and what checks access tokens, which s.issuer is
// to use when the settings are in force.
func (s *server) httpSettings(cfg *config.Loaded) (httpfront.Settings, *access.Issued, error) {
	verify, callers, err := access.Tokens(cfg)
	if err == nil {
		_, err = wiring.ConsoleSecret(cfg)
	}
	if err != nil {
		return httpfront.Settings{}, nil, err
	}
	tokens := s.issuer.Of(cfg, s.Services, s.log.Logger)
	settings := httpfront.Settings{
		AllowedOrigins: cfg.AllowedOrigins,
		AllowedHosts:   cfg.AllowedHosts,
		Loopback:       config.IsLoopback(hostOf(cfg.Address())) && exposed(s.given) == "",
		Verify:         verify,
		Callers:        callers,
		MaxRequest:     int64(cfg.MaxRequest),
		SessionTimeout: time.Duration(cfg.SessionTimeout),
		MaxSessions:    cfg.MaxSessions,
	}
	tokens.Join(&settings)
	return settings, tokens, nil
}
