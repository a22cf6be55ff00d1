package keys

import (
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/manifest"
)

const (
	// longestMS bounds every key in milliseconds: 24 days, beyond which
	// somebody counted in another unit.
	longestMS = 1<<31 - 1
	// longestBurst is when a reload begins at the latest after the first of
	// many changes (SPEC E2).
	longestBurst = 2 * time.Second
	// mostPaths bounds hot_load.watch and hot_load.ignore, longestGlob one of the latter, as
	// the rules of a .gitignore are.
	mostPaths   = 1000
	longestGlob = 255
)

// checkCapsule checks the keys of runtime that only capsules have.
func (d *Description) checkCapsule() {
	r := d.Runtime
	for _, ms := range []struct {
		key   string
		value int
		least int
	}{
		{"startup_timeout_ms", r.StartupTimeoutMS, 1},
		{"drain_ms", r.DrainMS, 0},
		{"stop_grace_ms", r.StopGraceMS, 0},
		{"hot_load.debounce_ms", r.HotLoad.DebounceMS, 0},
		{"restart.initial_ms", r.Restart.InitialMS, 1},
		{"restart.max_ms", r.Restart.MaxMS, 1},
		{"restart.max_failures", r.Restart.MaxFailures, 0},
		{"restart.reset_after_ms", r.Restart.ResetAfterMS, 0},
		{"health.interval_ms", r.Health.IntervalMS, 1},
		{"health.timeout_ms", r.Health.TimeoutMS, 1},
		{"health.failures", r.Health.Failures, 1},
	} {
		if ms.value < ms.least || ms.value > longestMS {
			d.Fault("runtime", ms.key, "must be between %d and %d, got %d", ms.least, longestMS, ms.value)
		}
	}
	d.checkStop()
	if r.Restart.MaxMS < r.Restart.InitialMS {
		d.Fault("runtime", "restart.max_ms", "must be at least initial_ms, which is %d, got %d", r.Restart.InitialMS, r.Restart.MaxMS)
	}
	if p := r.ToolPrefix; p != nil && (len(*p) > manifest.MaxName/2 || strings.ContainsFunc(*p, manifest.NotInName)) {
		d.Fault("runtime", "tool_prefix", "must be at most %d of A-Z a-z 0-9 _ . and -, got %q", manifest.MaxName/2, *p)
	}
	d.checkHotLoad()
}

// checkHotLoad checks what is watched and what is not: each file of the package is held
// against all of it.
func (d *Description) checkHotLoad() {
	h := d.Runtime.HotLoad
	if n := len(h.Watch); n > mostPaths {
		d.Fault("runtime", "hot_load.watch", "must have at most %d entries, got %d", mostPaths, n)
		return
	}
	if n := len(h.Ignore); n > mostPaths {
		d.Fault("runtime", "hot_load.ignore", "must have at most %d entries, got %d", mostPaths, n)
		return
	}
	for i, p := range h.Watch {
		if p == "" || strings.ContainsRune(p, 0) {
			d.Fault("runtime", "hot_load.watch"+Indexed(i), "must be a path, got %q", p)
		}
	}
	for i, p := range h.Ignore {
		if len(p) > longestGlob {
			d.Fault("runtime", "hot_load.ignore"+Indexed(i), "must be at most %d bytes, got %d", longestGlob, len(p))
			continue
		}
		if _, err := path.Match(p, ""); err != nil || p == "" {
			d.Fault("runtime", "hot_load.ignore"+Indexed(i), "is not a glob pattern: %q", p)
		}
	}
}

// checkStop checks that the steps of a stop fit into the time that Orla's own
// stop leaves for them. Past it, Orla would end with the capsule still there.
func (d *Description) checkStop() {
	drain, grace := milliseconds(d.Runtime.DrainMS), milliseconds(d.Runtime.StopGraceMS)
	if drain < 0 || grace < 0 || drain+manifest.CloseGrace+grace <= manifest.MaxStop {
		return
	}
	key := "stop_grace_ms"
	if !d.given("runtime", key) || drain > grace && d.given("runtime", "drain_ms") {
		key = "drain_ms"
	}
	d.Fault("runtime", key, "a stop may take %d ms in all: drain_ms, %d until SIGTERM and stop_grace_ms, here %d + %d + %d",
		manifest.MaxStop.Milliseconds(), manifest.CloseGrace.Milliseconds(), drain.Milliseconds(), manifest.CloseGrace.Milliseconds(), grace.Milliseconds())
}

// CheckWatched looks for the watched paths in dir, the package's folder. What
// is behind a link that leaves it is not the package's own.
func (d *Description) CheckWatched(dir string) {
	if d.Runtime.Mode != manifest.Capsule {
		return
	}
	for i, p := range d.Runtime.HotLoad.Watch {
		if !filepath.IsLocal(filepath.FromSlash(p)) {
			continue // see WatchedOutside
		}
		key := "hot_load.watch" + Indexed(i)
		file, err := filepath.EvalSymlinks(filepath.Join(dir, filepath.FromSlash(p)))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			d.warn(key, "%q does not exist in the package; nothing is watched there until it does", p)
		case err != nil:
			d.warn(key, "%q %v", p, regularfile.ReadError(err))
		case !regularfile.Within(dir, file):
			d.Fault("runtime", key, "%q is a link that leaves the package", p)
		}
	}
}

// WatchedOutside are the watched paths that are not in dir, the package's folder.
func (d *Description) WatchedOutside(dir string) (paths []string) {
	for _, p := range d.Runtime.HotLoad.Watch {
		switch p = filepath.FromSlash(p); {
		case d.Runtime.Mode != manifest.Capsule || filepath.IsLocal(p):
		case filepath.IsAbs(p):
			paths = append(paths, filepath.Clean(p))
		default:
			paths = append(paths, filepath.Join(dir, p))
		}
	}
	return paths
}

// warnOfIdleKeys warns of keys that do nothing in the tool's mode, since their
// author expects that they do.
func (d *Description) warnOfIdleKeys() {
	if d.Runtime.Mode == manifest.Capsule {
		d.warnOfIdleCapsuleKeys()
		return
	}
	for _, key := range capsuleKeys() {
		if d.Doc.Has(key) {
			d.warn(strings.TrimPrefix(key, "runtime."), "has no effect without runtime.mode: capsule")
		}
	}
}

// capsuleKeys are the keys below runtime that only capsules have.
var capsuleKeys = sync.OnceValue(func() (all []string) {
	for field := range reflect.TypeFor[Capsule]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		all = append(all, "runtime."+name)
	}
	return all
})

func (d *Description) warnOfIdleCapsuleKeys() {
	for _, name := range simpleOnly {
		if d.given("runtime", name) {
			d.warn(name, "has no effect on a capsule")
		}
	}
	if d.Doc.Has("mcp") && d.given("runtime", "tool_prefix") {
		d.warn("tool_prefix", "has no effect with mcp, which makes the capsule a single tool with its own name")
	}
	if d.Doc.Has("mcp") && d.given("runtime", "pin") {
		d.warn("pin", "has no effect with mcp, which says what the tool is: only definitions that a process lists are pinned")
	}
	if milliseconds(d.Runtime.HotLoad.DebounceMS) > longestBurst {
		d.warn("hot_load.debounce_ms", "has the effect of %d: no change waits longer for its reload", longestBurst.Milliseconds())
	}
}

// CapsuleRuntime is how the process of the capsule is kept.
func (d *Description) CapsuleRuntime() manifest.Runtime {
	r := d.Runtime
	c := manifest.Runtime{
		Declared:       d.Doc.Has("mcp"),
		Handshake:      r.Handshake,
		Protocol:       r.Protocol,
		Start:          r.Start,
		StartupTimeout: milliseconds(r.StartupTimeoutMS),
		Drain:          milliseconds(r.DrainMS),
		StopGrace:      milliseconds(r.StopGraceMS),
		IdleTimeout:    time.Duration(r.IdleTimeout),
		ToolPrefix:     r.ToolPrefix,
		Pin:            r.Pin,
		HotLoad: manifest.HotLoad{
			Watch:    slices.DeleteFunc(slices.Clone(r.HotLoad.Watch), func(p string) bool { return !filepath.IsLocal(filepath.FromSlash(p)) }),
			Ignore:   r.HotLoad.Ignore,
			Mode:     r.HotLoad.Mode,
			Debounce: milliseconds(r.HotLoad.DebounceMS),
		},
		Restart: manifest.Restart{
			Initial:     milliseconds(r.Restart.InitialMS),
			Max:         milliseconds(r.Restart.MaxMS),
			MaxFailures: r.Restart.MaxFailures,
			ResetAfter:  milliseconds(r.Restart.ResetAfterMS),
		},
	}
	if d.given("runtime", "health") {
		c.Health = &manifest.Health{
			Interval: milliseconds(r.Health.IntervalMS),
			Timeout:  milliseconds(r.Health.TimeoutMS),
			Failures: r.Health.Failures,
		}
	}
	return c
}

func milliseconds(n int) time.Duration { return time.Duration(n) * time.Millisecond }
