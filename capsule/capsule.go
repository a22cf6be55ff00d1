// Package capsule keeps one process running for many calls (RFC 2, SPEC D, E).
//
//	CREATED ─► STARTING ─► READY ─► RELOADING ─► STARTING
//	              │          ├─► CRASHED ─► STARTING, or STOPPED at the limit
//	              └──────────┴─► STOPPING ─► STOPPED
//
// A Capsule is a service: only Serve changes its state, its process and its restarts.
// Everyone else reads an immutable status, or waits for the next one. The messages of a
// capsule are JSON-RPC and are passed on unchanged.
//
// Its invariants (RFC 2 §7.1): there is at most one process; the next one starts only when
// nothing of the last one is left (in mode replace it starts while the last one still runs);
// and no call is sent unless the state is READY.
package capsule

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/capsule/clients"
	"github.com/orla-project/orla/capsule/files"
	"github.com/orla-project/orla/capsule/handover"
	"github.com/orla-project/orla/capsule/offers"
	"github.com/orla-project/orla/capsule/protocol"
	"github.com/orla-project/orla/capsule/records"
	"github.com/orla-project/orla/capsule/restarts"
	"github.com/orla-project/orla/capsule/wishes"
	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/call/pins"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/deps"
	"github.com/orla-project/orla/internal/file/watch"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/environ"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/observe/brief"
	"github.com/orla-project/orla/internal/observe/tail"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/manifest"
)

// The defaults of settings that are 0.
const (
	DefaultQueueTimeout = 10 * time.Second // SPEC D10
	DefaultMaxMessage   = 16 << 20         // bytes; SPEC D5
)

const (
	// maxWaiting bounds the calls of one owner that wait for READY (SPEC D10). All owners
	// may have twice as many together, and none of them more than are left.
	maxWaiting = 1024
	// defaultCallTimeout applies if neither the manifest nor the configuration sets one.
	defaultCallTimeout = 30 * time.Second
)

// Options is what a Capsule needs in addition to its manifest.
type Options struct {
	// Launcher starts the processes. Required without Connect.
	Launcher launch.Launcher
	// Elsewhere says that the Launcher's processes do not use the programs of this machine:
	// interpreters are found by their names where the processes run.
	Elsewhere bool
	// Connect makes the connection, in place of one with a process of the Launcher. An
	// error is a *fault.Error. ctx bounds only the start. If nil, the Launcher starts a
	// process.
	Connect func(context.Context) (Connection, error)
	// Own says that Connect connects with a replica of this Orla, which runs the process.
	Own bool
	// Environ is what processes may inherit, as environ.Clean returns it.
	Environ []string
	// Secrets resolves what the manifest's SecretEnv names, at each start. Required
	// with such a manifest.
	Secrets func(secret.Ref) (secret.Value, error)
	// Packages are what the tool needs in addition to its interpreter. If nil, it needs none.
	Packages *deps.Tool
	// Version is Orla's own version, which the capsule is told.
	Version string
	// Hub watches files for all capsules. If nil, the capsule has one of its own.
	Hub *watch.Hub
	// Lists remembers what capsules offered. If nil, nothing is remembered.
	Lists *records.Lists
	// Pins remembers which definitions were accepted. If nil, all are served.
	Pins *pins.Store
	// Holds remembers which capsules an operator has stopped. If nil, a Capsule remembers it
	// only for itself.
	Holds *records.Holds
	// Shared reports whether several callers may call the capsule. If so, a caller is not
	// shown its stderr, which may be about the call of another one. If nil, there is one.
	Shared func() bool
	// Taken is the process of the program before to go on with; nil for none.
	Taken *handover.Taken
	// Log is required.
	Log *slog.Logger
}

// Capsule is one long-lived provider. Its methods may be called from any
// goroutine, but Serve from one at a time.
type Capsule struct {
	settings
	parts
	admission
	output

	status   atomic.Pointer[status]
	redactor atomic.Pointer[secret.Redactor] // of the secrets that the last process was given
	orders   orders
	wishes   *wishes.Wishes // the requests of clients that a new process must get too

	signals
	facts
	serving
	giving
}

// settings are what New was given.
type settings struct {
	tool    manifest.Tool
	opts    Options
	log     *slog.Logger
	environ []string
	connect func(context.Context) (Connection, error)
}

// parts are what a capsule is made of.
type parts struct {
	files  *files.Watcher
	offers *offers.Offering
	orla   *protocol.Orla // Orla's side of the protocol
	inputs *clients.Inputs
}

// admission bounds the calls and requests at one time, and shares them between callers.
type admission struct {
	places     *turns.Queue  // of calls
	requests   *turns.Queue  // of other requests; bounds those of a caller while there is another caller
	waiting    *turns.Shares // of calls that wait for READY or for a place
	sideBySide atomic.Bool   // the process works on several calls at once

	lateCall, lateRequest func(turns.Owner) // give back the place of one whose client has not waited for the answer
}

// output is what processes print that is not a message.
type output struct {
	stderr atomic.Pointer[tail.Buffer] // the last lines of the present or last process; nil if there was none
	logged tail.Quota                  // bounds the lines of stderr in the log
	noise  brief.Limiter               // bounds the lines in the log about stray output
}

// signals reach Serve's goroutine.
type signals struct {
	kick chan trigger  // holds one request to reload
	wake chan struct{} // holds a token when a call wants the capsule started

	retired atomic.Pointer[string] // why Serve's context ends; see Retire
}

// facts are what Life returns in addition to the status.
type facts struct {
	settled  atomic.Bool  // see peer.Life
	overdue  atomic.Bool  // see peer.Life
	wasReady atomic.Bool  // once at least
	calls    atomic.Int64 // that have ended
	exits    atomic.Pointer[exit]
	started  atomic.Int64           // processes
	limits   atomic.Pointer[string] // see peer.Life; nil before the first process, and without any
}

// serving is owned by Serve.
type serving struct {
	seen    *order    // the last order that was followed
	began   time.Time // the last start
	because string    // the reason of the next start, if it is known already

	restarts *restarts.Schedule
}

// trigger is a request to reload.
type trigger struct {
	reason string
	at     time.Time // of the change; a process that started later does not need the reload
}

// New returns the Capsule that tool describes, in state CREATED.
func New(tool manifest.Tool, opts Options) (*Capsule, error) {
	tool.Runtime.QueueTimeout = cmp.Or(tool.Runtime.QueueTimeout, DefaultQueueTimeout)
	tool.Runtime.MaxMessage = cmp.Or(tool.Runtime.MaxMessage, DefaultMaxMessage)
	tool.Run.Timeout = cmp.Or(tool.Run.Timeout, defaultCallTimeout)
	c := &Capsule{
		settings: settings{tool: tool, opts: opts, log: opts.Log, environ: files.WithFreshCode(environ.Of(tool, opts.Environ), tool), connect: opts.Connect},
		parts: parts{
			files:  files.New(tool, opts.Hub, opts.Log),
			offers: offers.New(tool, opts.Lists, opts.Pins, opts.Log),
			orla:   protocol.New(tool, opts.Version, opts.Log),
			inputs: clients.NewInputs(tool.Name, tool.Runtime.MaxMessage, opts.Log),
		},
		admission: admission{
			places:   placesOf(tool.Run.MaxConcurrency),
			requests: turns.NewQueue(turns.NoLimit, maxBesideSerial),
			waiting:  turns.NewShares(2 * maxWaiting), // a line that is alone gets half
		},
		signals: signals{kick: make(chan trigger, 1), wake: make(chan struct{}, 1)},
		wishes:  wishes.New(),
		serving: serving{restarts: restarts.New(tool.Runtime.Restart)},
		giving:  giving{gives: make(chan chan json.RawMessage)},
	}
	c.lateCall, c.lateRequest = c.places.Give, c.requests.Give
	if c.connect == nil {
		c.connect = c.startProcess
	}
	c.status.Store(&status{
		state: Created, since: time.Now(), changed: make(chan struct{}),
	})
	c.Retire("Orla stops it")
	c.orders.init()
	c.seen = c.orders.last.Load()
	c.take(opts.Taken)
	// A lazy capsule whose tools are unknown has to be started once: nobody can call it.
	if tool.Runtime.Start == manifest.StartLazy && c.Offers().Known {
		c.amend(func(s *status) { s.starts = byCall })
		c.settled.Store(true)
	}
	c.log.Info("created", "tool", tool.Name, "version", tool.Version, "source", tool.Source)
	return c, nil
}

// String names the capsule in logs.
func (c *Capsule) String() string { return "capsule " + c.tool.Name }

// Tools returns the tools that the capsule offers now.
func (c *Capsule) Tools() []*mcp.Tool { return c.Offers().Tools }

// Offers returns what the capsule offers now.
func (c *Capsule) Offers() *peer.Offers { return c.offers.Current() }

// Original returns a tool as the capsule itself listed it; see offers.Offering.
func (c *Capsule) Original(name string) (tool *mcp.Tool, known bool) { return c.offers.Original(name) }

// Withholds returns why a tool must not be called by its own name; nil if it may be.
func (c *Capsule) Withholds(own string) error { return c.offers.Withholds(own) }

// Review compares what the capsule lists with the definitions that are accepted now.
func (c *Capsule) Review() { c.offers.Review() }

// OwnTool implements supervisor.Namer.
func (c *Capsule) OwnTool(listed string) string { return c.offers.OwnTool(listed) }

// Updated delivers the URIs of resources that the capsule says were updated.
func (c *Capsule) Updated() <-chan string { return c.wishes.Updated() }

// Life returns the state of the capsule, for operators.
func (c *Capsule) Life() peer.Life {
	s := c.status.Load()
	life := peer.Life{
		State: s.state.String(), Since: s.since, Reason: s.reason, Pid: s.pid, Place: s.place, Started: s.began, Next: s.next,
		Held:     c.orders.last.Load().held,
		Failures: c.restarts.Failures(), Restarts: int(max(0, c.started.Load()-1)),
		Waiting: int(c.waiting.Taken()), Calls: c.calls.Load(), Settled: c.settled.Load(), Overdue: c.overdue.Load(), Changed: s.changed,
	}
	if s.conn != nil {
		life.InFlight = s.conn.InFlight()
	}
	if exit := c.exits.Load(); exit != nil {
		life.LastExit = exit.text
	}
	if s.state == Crashed || s.state == Stopped {
		life.Stderr = c.stderr.Load().Short()
	}
	if limits := c.limits.Load(); limits != nil {
		life.Limits = *limits
	}
	return life
}

// trigger requests a new process in place of the present one (SPEC E1). It does nothing if
// the capsule waits for a call, which starts a new process anyway. It returns at once.
// Requests that come while one is waiting are merged with it.
func (c *Capsule) trigger(t trigger) {
	select {
	case waiting := <-c.kick:
		t.reason = waiting.reason // of several, the reason of the first and the time of the last count
	default:
	}
	select {
	case c.kick <- t:
	default: // another one came first, and has the same effect
	}
}

// Retire says why Serve's context will end, if not since Orla ends.
func (c *Capsule) Retire(why string) { c.retired.Store(&why) }

// Serve keeps the capsule running until ctx ends, and returns ctx's error. All changes of
// state are made here. When it returns, no process, goroutine or watch of the capsule is
// left.
func (c *Capsule) Serve(ctx context.Context) error {
	defer c.finish(ctx)
	var helpers sync.WaitGroup
	defer helpers.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.files.Look(ctx)
	if t := c.taken; t != nil && t.Files != c.files.Sum() {
		c.trigger(trigger{"files changed while Orla was upgraded", time.Now()})
	}
	c.files.Serve(ctx, &helpers, cancel)
	installs := time.Duration(0)
	if c.opts.Packages.Missing() {
		installs = deps.BuildTimeout
	}
	patience, strange := c.offers.Patience(installs, c.opts.Own)
	helpers.Go(func() {
		if pace.Sleep(ctx, patience) {
			c.overdue.Store(strange) // one's own is READY or fails, however long what comes before its process takes
			c.offers.GiveUp()
		}
	})
	helpers.Go(func() { c.wishes.Deliver(ctx) })

	c.recall()
	c.restarts.Forgive()
	for c.goesOn(ctx) || c.awaitStart(ctx) {
		end := c.liveUntilHeld(ctx)
		if end.given {
			<-ctx.Done()
			break
		}
		if end.reload {
			c.restarts.Forgive() // the files are new, so earlier failures do not count
		}
		c.pause(ctx)
	}
	return ctx.Err()
}

// finish publishes that the capsule is not served any more, from whatever state a panic may
// have left it in.
func (c *Capsule) finish(ctx context.Context) {
	s := c.status.Load()
	reason := *c.retired.Load()
	if ctx.Err() == nil {
		reason = "its service ended"
	}
	last := status{reason: reason, starts: byNobody}
	if s.state == Stopped || s.state == Created {
		// The state stays, and whoever waits is woken. A capsule that never started does not
		// become STOPPED: another one of the same name may be stopping now.
		last.state, last.since, last.changed = s.state, s.since, make(chan struct{})
		c.status.Store(&last)
		close(s.changed)
		c.offers.GiveUp()
		return
	}
	if !slices.Contains(legal[s.state], Stopped) {
		last.state = Stopping
		c.become(last)
	}
	last.state = Stopped
	c.become(last)
}
