package manifest

import "time"

const (
	// CloseGrace is how long a capsule may take to end by itself after its
	// stdin was closed, before SIGTERM (SPEC D11).
	CloseGrace = 500 * time.Millisecond
	// MaxStop bounds drain_ms, CloseGrace and stop_grace_ms together. It is
	// less than what the supervisor gives a service for its stop.
	MaxStop = 18 * time.Second
)

// Runtime says how the process of a capsule is kept (SPEC B2, D). Every
// default is filled in. It has a field for each key of runtime.
type Runtime struct {
	// Declared: the manifest has an mcp section, and the capsule is exactly
	// the one tool that it describes (SPEC D7).
	Declared bool

	Handshake Handshake
	Protocol  Protocol
	Start     Start

	StartupTimeout time.Duration
	IdleTimeout    time.Duration // 0: never stopped for being idle

	// A stop lets the calls in flight end within Drain, closes stdin, sends
	// SIGTERM after CloseGrace and SIGKILL StopGrace later (SPEC D11). All
	// three together are at most MaxStop.
	Drain     time.Duration
	StopGrace time.Duration

	// ToolPrefix replaces the "CAPSULE__" before the names of a capsule's own
	// tools, or the "SERVER--" of those of an McpServer. nil: it is not replaced.
	ToolPrefix *string

	// Include names the tools that are served, by the server's own names; nil:
	// all of them (SPEC-TOOLS 3.5).
	Include []string
	// Generated: the tools are called SERVER--TOOL, with - for _ and . in both
	// (SPEC-TOOLS 3.5).
	Generated bool
	// Remote is where the server is that the capsule is a session with; nil for
	// a process.
	Remote *Remote
	// FromCluster is the command of a process as a custom resource of a cluster writes it; "" if a file describes the
	// capsule. Who may write such a resource need not be one who may run programs here.
	FromCluster string `json:",omitempty"`

	HotLoad HotLoad
	Restart Restart
	Health  *Health // nil: not asked

	Pin Pin // what happens to definitions that were not accepted; "": the configured value

	// The configuration's, as zero limits of Run are. Zero: the defaults.
	QueueTimeout time.Duration // how long a call waits for READY (SPEC D10)
	MaxMessage   int64         // bytes of a message from the capsule (SPEC D5)
}

// HotLoad says what makes a capsule reload (SPEC E).
type HotLoad struct {
	Watch    []string // relative to the package; empty: nothing
	Outside  []string // absolute: what watch names outside of the package; who serves the tool decides whether it may (internal/app/discovery)
	Ignore   []string // lines of a .gitignore
	Mode     HotLoadMode
	Debounce time.Duration
}

// Restart says when a crashed capsule is started again (SPEC D9).
type Restart struct {
	Initial     time.Duration
	Max         time.Duration
	MaxFailures int // 0: no limit
	ResetAfter  time.Duration
}

// Health says how often a capsule is pinged, and when it counts as failed (SPEC D12).
type Health struct {
	Interval time.Duration
	Timeout  time.Duration
	Failures int
}

// Handshake is how a capsule says that it is ready.
type Handshake string

// The values of runtime.handshake.
const (
	HandshakeHello Handshake = "hello" // it sends orla.hello (RFC 2 §9)
	HandshakeMCP   Handshake = "mcp"   // it answers initialize (SPEC D8)
)

// Values lists what runtime.handshake may be.
func (Handshake) Values() []string { return []string{string(HandshakeHello), string(HandshakeMCP)} }

// Protocol is which version of MCP a server is spoken to in. One connection has one of
// the two kinds (docs/decisions/0030).
type Protocol string

// The values of runtime.protocol.
const (
	ProtocolAuto       Protocol = "auto"       // 2026-07-28 if the server has it, else initialize
	ProtocolStateless  Protocol = "2026-07-28" // nothing else
	ProtocolInitialize Protocol = "initialize" // the versions up to 2025-11-25, which begin with that
)

// Values lists what runtime.protocol may be.
func (Protocol) Values() []string {
	return []string{string(ProtocolAuto), string(ProtocolStateless), string(ProtocolInitialize)}
}

// Pin is what happens to a definition of a tool or a prompt that differs from the accepted one (SPEC N4).
type Pin string

// The values of runtime.pin.
const (
	PinOff  Pin = "off"  // it is not noticed
	PinWarn Pin = "warn" // it is served, and reported
	PinHold Pin = "hold" // it is not served until an operator accepts it
)

// Values lists what runtime.pin may be.
func (Pin) Values() []string { return []string{string(PinOff), string(PinWarn), string(PinHold)} }

// Start is when a capsule is first started.
type Start string

// The values of runtime.start.
const (
	StartEager Start = "eager" // with Orla
	StartLazy  Start = "lazy"  // at its first call
)

// Values lists what runtime.start may be.
func (Start) Values() []string { return []string{string(StartEager), string(StartLazy)} }

// HotLoadMode is how a capsule reloads.
type HotLoadMode string

// The values of runtime.hot_load.mode.
const (
	HotLoadRestart HotLoadMode = "restart" // stop, then start (RFC 2 §10)
	HotLoadReplace HotLoadMode = "replace" // start the new beside the old (SPEC D7b)
)

// Values lists what runtime.hot_load.mode may be.
func (HotLoadMode) Values() []string {
	return []string{string(HotLoadRestart), string(HotLoadReplace)}
}
