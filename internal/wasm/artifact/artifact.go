// Package artifact fetches WebAssembly modules from where they are published,
// https:// and oci:// addresses (SPEC-TOOLS 3.7), and keeps what it has fetched.
//
// Whatever a name resolves to or a server redirects to, all of it goes over TLS
// to addresses that the client's guard allows. Its invariant: what Fetch returns
// has the digest that was asked for, checked each time, also of what was kept;
// it begins as a module does; and it is no larger than the limit. The rest is for
// those who compile it to find out.
//
// A digest is of what its address names: that of an https:// module is the file's,
// that of an oci:// module is its manifest's or index's, as everywhere with OCI.
package artifact

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/service/outbound"
	"github.com/orla-project/orla/internal/service/secret"
)

const (
	defaultMaxBytes = 64 << 20
	defaultMaxCache = 512 << 20

	// lastingFor is how long what an address without a digest had is taken for what
	// it has.
	lastingFor = 5 * time.Minute
	// pause is how long after a look that failed there is another.
	pause = time.Minute
	// longest bounds a fetch, whatever its caller's deadline.
	longest = 5 * time.Minute
)

// Options configures a Store.
type Options struct {
	// Dir is where fetched modules are kept. If empty, nowhere.
	Dir string
	// Client makes the connections. One with outbound.Options.Far is meant: a
	// module does not come from this machine. Required.
	Client *outbound.Client
	// Secrets resolves pull secrets. If nil, none can be had.
	Secrets func(secret.Ref) (secret.Value, error)
	// MaxBytes is how large a module may be. If zero, 64 MiB.
	MaxBytes int64
	// MaxCache is how much is kept in Dir. If zero, 512 MiB.
	MaxCache int64
	// UserAgent is what servers are told. If empty, "orla".
	UserAgent string
	// Log is told what goes wrong without failing a call. If nil, nobody is.
	Log *slog.Logger
}

// Store fetches modules. Its methods may be called from any goroutine.
type Store struct {
	opts Options
	kept *cache

	mu      sync.Mutex // guards fetches
	fetches map[key]*fetch
}

// New returns a Store. It touches neither network nor disk before the first Fetch.
func New(opts Options) *Store {
	if opts.MaxBytes == 0 {
		opts.MaxBytes = defaultMaxBytes
	}
	if opts.MaxCache == 0 {
		opts.MaxCache = defaultMaxCache
	}
	if opts.UserAgent == "" {
		opts.UserAgent = "orla"
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	return &Store{
		opts:    opts,
		kept:    newCache(opts.Dir, opts.MaxCache, opts.Log),
		fetches: map[key]*fetch{},
	}
}

// key is what makes two fetches the same.
type key struct {
	address, digest string
	pull            secret.Ref
}

// Fetch returns the module at address, an https:// or oci:// address, which has
// digest ("sha256:HEX") unless that is "". pull is the secret that an oci://
// module is pulled with, or zero.
//
// What has a digest and was fetched before needs no network. What has none is
// looked for again after five minutes; when that fails for a reason that may pass,
// what was fetched before is returned, and the log says so. Many who ask for the
// same at the same time share one fetch and its result, which nobody may change.
//
// What it reads is counted by the context's turns.Account before it is there, whether it comes from
// a server or was kept: a server that hangs takes no more room than it has sent.
//
// Every error is a *fault.Error that is Unsent: runtime_policy_invalid where address
// holds no module that may be run, auth_invalid and auth_forbidden where pull is
// not accepted, and what it was that failed otherwise.
func (s *Store) Fetch(ctx context.Context, address, digest string, pull secret.Ref) ([]byte, error) {
	module, err := s.share(ctx, key{address, digest, pull})
	if err != nil {
		return nil, fault.Unsent(err)
	}
	return module, nil
}

// source is an address of modules.
type source interface {
	// settled returns the module if it is kept and known to be what the address
	// has, without asking anybody.
	settled(ctx context.Context) ([]byte, bool)
	// kept reports whether former is expected to return something.
	kept() bool
	// former returns what the address had when it was last looked at, or nil.
	former(ctx context.Context) []byte
	// look asks what the address has, and returns it. kept is what kept reported.
	look(ctx context.Context, kept bool) ([]byte, error)
	// putOff makes what former returned settled for a while.
	putOff()
	// String is the address, without what may be a secret.
	String() string
}

// fetch returns the module that k names.
func (s *Store) fetch(ctx context.Context, k key) ([]byte, error) {
	from, err := s.source(k)
	if err != nil {
		return nil, err
	}
	if module, ok := from.settled(ctx); ok {
		return module, nil
	}
	kept := from.kept() // it is read when it is needed: a server may hang until then
	patience := longest
	if deadline, ok := ctx.Deadline(); ok && kept {
		patience = min(patience, time.Until(deadline)/2) // the rest is for what to do without it
	}
	patient, cancel := context.WithTimeoutCause(ctx, patience, fault.New(fault.Timeout, "it was not there within %s", patience.Round(time.Millisecond)))
	defer cancel()
	module, err := from.look(patient, kept)
	if err == nil {
		return module, nil
	}
	if patient.Err() != nil {
		err = context.Cause(patient)
	}
	f := *fault.From(err)
	f.Reason = "module " + from.String() + ": " + f.Reason
	if kept && f.Retryable() && ctx.Err() == nil {
		if former := from.former(ctx); former != nil {
			from.putOff()
			s.opts.Log.Warn("module is served as it was fetched before", "module", from.String(), "err", &f)
			return former, nil
		}
	}
	return nil, &f
}

// checkModule returns why what was fetched is no module, or nil.
func checkModule(data []byte) error {
	const (
		magic     = "\x00asm"
		core      = "\x01\x00\x00\x00"
		component = "\x0d\x00\x01\x00"
	)
	if len(data) < 8 || string(data[:4]) != magic {
		return errors.New("it is no WebAssembly module")
	}
	switch string(data[4:8]) {
	case core:
		return nil
	case component:
		return errors.New("it is a WebAssembly component, and not a module; build it for wasip1")
	}
	return errors.New("it is a WebAssembly module of an unknown version")
}

// invalid is a fault of what an address holds.
func invalid(format string, args ...any) *fault.Error {
	return fault.New(fault.RuntimePolicyInvalid, format, args...)
}
