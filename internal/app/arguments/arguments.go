// Package arguments keeps the arguments of calls of a tool, in memory and for ten minutes, if an operator has asked for it
// (SPEC O2). docs/decisions/0060 has the reasons.
//
// Its invariants: no arguments are kept of a call that began while nobody had asked for it. They are written nowhere. What
// is shown of them has no value that is a secret of the configuration.
package arguments

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/observe/audit"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/mcpbridge"
)

// The bounds of what is kept.
const (
	keepFor  = 10 * time.Minute
	maxTools = 16
	maxCall  = 64 << 10 // of the arguments of one call, in bytes: of larger ones only the size is kept
	maxKept  = 1 << 20  // of all calls, in bytes; beyond it the oldest are forgotten
	perCall  = 256      // what else a call that is kept takes, in bytes
)

// Options configures a Keeper.
type Options struct {
	// Listed reports whether clients can call a tool of that name. Required.
	Listed func(tool string) bool
	// Secrets returns the values that are not to be shown. With an error nothing is kept, and nothing is shown. Required.
	Secrets func() ([]secret.Value, error)
	// Audit is the audit log; nil for none.
	Audit *audit.Log
	// Log is required.
	Log *slog.Logger
}

// Keeper keeps arguments. Its methods may be called from any goroutine.
type Keeper struct {
	opts Options
	on   atomic.Bool // tools is not empty; a call looks at nothing else when it is

	changing sync.Mutex // held by Start, Stop and renew; taken before mu
	secrets             // guarded by changing

	mu    sync.Mutex              // guards the fields that follow
	tools []control.KeptArguments // of which arguments are kept, the first one to end first
	calls []call                  // oldest first
	size  int                     // of calls
	last  uint64                  // the number of the newest call
	hides *secret.Redactor        // of the secrets that were read last
	end   *time.Timer             // of the first of tools; nil if there is none
}

// secrets are those that were read last.
type secrets struct {
	read time.Time // when that was
	same secret.Last
}

// call is a call whose arguments are kept. It is never changed.
type call struct {
	n          uint64
	tool       string
	id, caller string
	began      time.Time
	bytes      int    // of its arguments
	args       []byte // nil if they were too large
	hides      *secret.Redactor
}

func (c *call) size() int { return len(c.args) + len(c.caller) + perCall }

// New returns a Keeper that keeps nothing.
func New(opts Options) *Keeper { return &Keeper{opts: opts} }

// Observer is mcpbridge.Options.Observe.
type Observer = func(context.Context, mcpbridge.CallStart) (context.Context, func(mcpbridge.CallEnd))

// Observe returns an Observer that keeps what is to be kept, and does what next does.
func (k *Keeper) Observe(next Observer) Observer {
	return func(ctx context.Context, start mcpbridge.CallStart) (context.Context, func(mcpbridge.CallEnd)) {
		if k.on.Load() {
			k.keep(start.Tool, call{id: start.ID, caller: start.Caller, bytes: len(start.Args)}, start.Args)
		}
		return next(ctx, start)
	}
}

// keep keeps the arguments of a call of a tool, if they are wanted.
func (k *Keeper) keep(tool string, c call, args []byte) {
	c.began = time.Now()
	k.mu.Lock()
	over := k.endLocked(c.began)
	if i := k.findLocked(tool); i >= 0 {
		k.last++
		c.n, c.tool, c.hides = k.last, k.tools[i].Tool, k.hides
		if len(args) <= maxCall {
			c.args = append([]byte{}, args...)
		}
		k.addLocked(c)
	}
	k.mu.Unlock()
	k.tell(over)
}

// addLocked adds a call, and forgets the oldest ones if there is no room for it.
func (k *Keeper) addLocked(c call) {
	k.calls = append(k.calls, c)
	k.size += c.size()
	for k.size > maxKept {
		k.size -= k.calls[0].size()
		k.calls[0] = call{}
		k.calls = k.calls[1:] // append moves what is left when the array is full
	}
}

func (k *Keeper) findLocked(tool string) int {
	return slices.IndexFunc(k.tools, func(t control.KeptArguments) bool { return t.Tool == tool })
}

// forgetLocked ends that arguments of a tool are kept, and forgets what is.
func (k *Keeper) forgetLocked(i int) (ended control.KeptArguments) {
	ended = k.tools[i]
	k.tools = slices.Delete(k.tools, i, i+1)
	k.calls = slices.DeleteFunc(k.calls, func(c call) bool {
		if c.tool == ended.Tool {
			k.size -= c.size()
		}
		return c.tool == ended.Tool
	})
	if len(k.tools) == 0 {
		k.calls, k.hides = nil, nil // with their memory
		k.on.Store(false)
	}
	return ended
}

// endLocked ends what is to end by now, and returns that. A timer waits for the next one.
func (k *Keeper) endLocked(now time.Time) (over []control.KeptArguments) {
	for len(k.tools) > 0 && !k.tools[0].Until.After(now) {
		over = append(over, k.forgetLocked(0))
	}
	switch {
	case len(k.tools) == 0 && k.end != nil:
		k.end.Stop()
		k.end = nil
	case len(k.tools) > 0 && k.end == nil:
		k.end = time.AfterFunc(k.tools[0].Until.Sub(now), k.expire)
	}
	return over
}

// expire ends what is to end by now.
func (k *Keeper) expire() {
	k.mu.Lock()
	k.end = nil
	over := k.endLocked(time.Now())
	k.mu.Unlock()
	k.tell(over)
}

// tell logs that the time of tools is over.
func (k *Keeper) tell(over []control.KeptArguments) {
	for _, one := range over {
		k.opts.Log.Info("arguments of calls are not kept any more", "tool", one.Tool, "reason", "ten minutes are over")
	}
}

// Tools returns the tools of which arguments are kept; nil for none.
func (k *Keeper) Tools() []control.KeptArguments {
	if !k.on.Load() {
		return nil
	}
	k.mu.Lock()
	over, list := k.endLocked(time.Now()), slices.Clone(k.tools)
	k.mu.Unlock()
	k.tell(over)
	slices.SortFunc(list, func(a, b control.KeptArguments) int { return cmp.Compare(a.Tool, b.Tool) })
	return list
}

// Start keeps the arguments of calls of a tool from now on, for ten minutes. That has a line in the audit log, and is
// refused without one.
func (k *Keeper) Start(tool, by string) (control.KeptArguments, error) {
	if !k.opts.Listed(tool) {
		return control.KeptArguments{}, unknown(tool)
	}
	one, err := k.start(tool, by)
	if err == nil {
		k.opts.Log.Info("arguments of calls are kept", "tool", tool, "by", by, "until", one.Until)
	}
	return one, err
}

func (k *Keeper) start(tool, by string) (none control.KeptArguments, _ error) {
	k.changing.Lock()
	defer k.changing.Unlock()
	if err := k.opts.Audit.Err(); err != nil {
		return none, refused("the audit log cannot be written, and no arguments are kept without a line in it: %v", err)
	}
	hides, err := k.renewed(0)
	if err != nil {
		return none, err
	}
	if kept := k.Tools(); len(kept) >= maxTools && !slices.ContainsFunc(kept, func(t control.KeptArguments) bool { return t.Tool == tool }) {
		return none, refused("the arguments of %d tools are kept already, which are all that can be at once", maxTools)
	}
	now := time.Now()
	one := control.KeptArguments{Tool: tool, By: by, Until: now.Add(keepFor)}
	k.opts.Audit.RecordArguments(&audit.Arguments{By: by, Tool: tool, Until: one.Until}) // before the first of them is kept
	k.mu.Lock()
	defer k.mu.Unlock()
	if i := k.findLocked(tool); i >= 0 { // for longer
		k.tools = slices.Delete(k.tools, i, i+1)
	}
	k.tools, k.hides = append(k.tools, one), hides
	k.on.Store(true)
	k.endLocked(now) // a timer that runs fires too early, and is set again
	return one, nil
}

// Stop ends that, and forgets the arguments. It does nothing if they are not kept.
func (k *Keeper) Stop(tool, by string) (control.KeptArguments, error) {
	k.changing.Lock()
	k.mu.Lock()
	i := k.findLocked(tool)
	if i >= 0 {
		k.forgetLocked(i)
		k.endLocked(time.Now())
	}
	k.mu.Unlock()
	if i >= 0 {
		k.opts.Audit.RecordArguments(&audit.Arguments{By: by, Tool: tool})
	}
	k.changing.Unlock()
	switch {
	case i >= 0:
		k.opts.Log.Info("arguments of calls are not kept any more", "tool", tool, "by", by)
	case !k.opts.Listed(tool):
		return control.KeptArguments{}, unknown(tool)
	}
	return control.KeptArguments{Tool: tool}, nil
}

// Close forgets all.
func (k *Keeper) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(k.tools) > 0 {
		k.forgetLocked(0)
	}
	k.endLocked(time.Now())
}

// Renew reads the secrets again, since there may be others. If they cannot be hidden, all arguments are forgotten.
func (k *Keeper) Renew() {
	if !k.on.Load() {
		return
	}
	if _, err := k.renew(0); err != nil {
		k.Close()
		k.opts.Log.Warn("arguments of calls are not kept any more", "err", err)
	}
}

// renew returns what hides the secrets as they were within a time.
func (k *Keeper) renew(within time.Duration) (*secret.Redactor, error) {
	k.changing.Lock()
	defer k.changing.Unlock()
	return k.renewed(within)
}

// renewed is renew for who holds changing.
func (k *Keeper) renewed(within time.Duration) (*secret.Redactor, error) {
	k.mu.Lock()
	hides := k.hides
	k.mu.Unlock()
	if hides != nil && time.Since(k.read) < within {
		return hides, nil
	}
	values, err := k.opts.Secrets()
	if err != nil {
		return nil, refused("%v", err)
	}
	hides = k.same.Redactor(values...)
	k.read = time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.tools) > 0 {
		k.hides = hides
	}
	return hides, nil
}
