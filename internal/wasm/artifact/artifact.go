// Package artifact fetches WebAssembly modules from https:// and oci:// addresses (SPEC-TOOLS 3.7),
// and keeps fetched ones.
//
// All connections use TLS, to addresses that the client's guard allows, whatever a name resolves to
// or a server redirects to. Its invariant: what Fetch returns has the wanted digest, which is
// checked each time, also for kept modules; it begins as a module does; and it is not larger than
// the limit. Only the compiler checks the rest.
//
// A digest belongs to what the address names: for an https:// module it is the file's, for an oci://
// module that of its manifest or index, as usual with OCI.
package artifact

import (
	"cmp"
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

	// lastingFor is how long the module from an address without a digest is used before the address is
	// checked again.
	lastingFor = 5 * time.Minute
	// pause is how long after a failed check the next one is made.
	pause = time.Minute
	// longest bounds a fetch, even if the caller's deadline is later.
	longest = 5 * time.Minute
)

// Options configures a Store.
type Options struct {
	// Dir is the folder for fetched modules. If empty, none are kept.
	Dir string
	// Client makes the connections. It should have outbound.Options.Far: modules do not come from this
	// machine. Required.
	Client *outbound.Client
	// Secrets resolves pull secrets. If nil, there are none.
	Secrets func(secret.Ref) (secret.Value, error)
	// MaxBytes is the largest size of a module. If zero, 64 MiB.
	MaxBytes int64
	// MaxCache bounds the size of Dir. If zero, 512 MiB.
	MaxCache int64
	// UserAgent is the User-Agent header. If empty, "orla".
	UserAgent string
	// Log receives errors that do not fail a call. If nil, they are not logged.
	Log *slog.Logger
}

// Store fetches modules. Its methods may be called from any goroutine.
type Store struct {
	opts Options
	kept *cache

	mu      sync.Mutex // guards fetches
	fetches map[key]*fetch
}

// New returns a Store. It uses neither network nor disk before the first Fetch.
func New(opts Options) *Store {
	opts.MaxBytes = cmp.Or(opts.MaxBytes, defaultMaxBytes)
	opts.MaxCache = cmp.Or(opts.MaxCache, defaultMaxCache)
	opts.UserAgent = cmp.Or(opts.UserAgent, "orla")
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	return &Store{
		opts:    opts,
		kept:    newCache(opts.Dir, opts.MaxCache, opts.Log),
		fetches: map[key]*fetch{},
	}
}

// key identifies a fetch: equal fetches are shared.
type key struct {
	address, digest string
	pull            secret.Ref
}

// Fetch returns the module at place, an https:// or oci:// address, with digest ("sha256:HEX"); ""
// for any digest. pull is the secret to pull an oci:// module with, or zero.
//
// A module with a digest that was fetched before needs no network. One without is fetched again
// after five minutes; if that fails for a reason that may be temporary, Fetch returns the module
// that it fetched before, and logs that. Concurrent callers share one fetch and its result, which
// they must not change.
//
// What Fetch reads is counted by the turns.Held in ctx before it is allocated, whether it comes from
// a server or from Dir: a server that hangs uses only memory for what it has sent.
//
// Every error is a *fault.Error with Unsent: runtime_policy_invalid if place has no module that may
// be run, auth_invalid and auth_forbidden if pull is not accepted, or the code of another failure.
func (s *Store) Fetch(ctx context.Context, address, digest string, pull secret.Ref) ([]byte, error) {
	module, err := s.share(ctx, key{address, digest, pull})
	if err != nil {
		return nil, fault.Unsent(err)
	}
	return module, nil
}

// source is an address of a module.
type source interface {
	// settled returns the module if it is kept and known to be current, without a request.
	settled(ctx context.Context) ([]byte, bool)
	// kept reports whether former is expected to return a module.
	kept() bool
	// former returns the module that the address had at the last check, or nil.
	former(ctx context.Context) []byte
	// look asks the server for the module, and returns it. kept is the result of kept.
	look(ctx context.Context, kept bool) ([]byte, error)
	// putOff makes the module of former settled for a while.
	putOff()
	// String returns the address without what may be a secret.
	String() string
}

// fetch returns the module for k.
func (s *Store) fetch(ctx context.Context, k key) ([]byte, error) {
	from, err := s.source(k)
	if err != nil {
		return nil, err
	}
	if module, ok := from.settled(ctx); ok {
		return module, nil
	}
	kept := from.kept() // the module is read later: the server may hang for long
	patience := longest
	if deadline, ok := ctx.Deadline(); ok && kept {
		patience = min(patience, time.Until(deadline)/2) // half of the time is for using the former module
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
			s.opts.Log.Warn("serving the module that was fetched before", "module", from.String(), "err", &f)
			return former, nil
		}
	}
	return nil, &f
}

// checkModule returns why data is not a module, or nil.
func checkModule(data []byte) error {
	const (
		magic     = "\x00asm"
		core      = "\x01\x00\x00\x00"
		component = "\x0d\x00\x01\x00"
	)
	if len(data) < 8 || string(data[:4]) != magic {
		return errors.New("it is not a WebAssembly module")
	}
	switch string(data[4:8]) {
	case core:
		return nil
	case component:
		return errors.New("it is a WebAssembly component, and not a module; build it for wasip1")
	}
	return errors.New("it is a WebAssembly module of an unknown version")
}

// invalid is an error about the content of an address.
func invalid(format string, args ...any) *fault.Error {
	return fault.New(fault.RuntimePolicyInvalid, format, args...)
}
