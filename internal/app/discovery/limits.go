package discovery

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/manifest"
)

// mostStartup bounds how long an installed capsule may let clients wait until it is ready.
const mostStartup = 5 * time.Minute

// mostGrace bounds how long an installed capsule may take to end: all callers wait for that at an upgrade of Orla (SPEC N2).
const mostGrace = 5 * time.Second

// mostAttempts and mostPause bound how often Orla makes a call of an installed tool, and the pauses: each attempt has the timeout.
const (
	mostAttempts = 5
	mostPause    = 30 * time.Second
)

// leastRestart and leastHealth are the shortest pauses of an installed capsule: each start and each question is work of Orla.
var (
	leastRestart = manifest.Restart{Initial: 500 * time.Millisecond, Max: 10 * time.Second, ResetAfter: 10 * time.Second}
	leastHealth  = time.Second
)

// Lower sets the limits that an installed tool chose for itself to what the operator lets packages choose: the configured ones,
// or those that its own entry below packages has (SPEC M7). How much output Orla keeps, and how long a call takes, is paid for by
// Orla and not by the sandbox. The error says what was lowered; nil if nothing was.
func Lower(t *manifest.Tool, word config.PackageConfig, cfg *config.Loaded) error {
	var faults []error
	note := func(key string, asked, most fmt.Stringer) {
		faults = append(faults, fmt.Errorf("runtime.%s: it chose %s, and has %s, which is the most for packages; %s: %s for it in packages in orla.yaml allows that", key, asked, most, key, asked))
	}
	if most := cmp.Or(word.Timeout, cfg.Timeout); t.Run.Timeout > time.Duration(most) {
		if !t.Runtime.Generated { // whose timeout is Orla's own
			note("timeout", t.Run.Timeout, most)
		}
		t.Run.Timeout = time.Duration(most)
	}
	if most := cmp.Or(word.MaxOutput, cfg.MaxOutput); t.Run.MaxOutput > int64(most) {
		note("max_output", yamldoc.Size(t.Run.MaxOutput), most)
		t.Run.MaxOutput = int64(most)
	}
	t.Retry.MaxAttempts = min(t.Retry.MaxAttempts, mostAttempts)
	t.Retry.Backoff, t.Retry.MaxBackoff = min(t.Retry.Backoff, mostPause), min(t.Retry.MaxBackoff, mostPause)
	t.Runtime.StartupTimeout = min(t.Runtime.StartupTimeout, mostStartup)
	t.Runtime.StopGrace = min(t.Runtime.StopGrace, mostGrace)
	if t.Kind == manifest.Capsule {
		restart := &t.Runtime.Restart
		restart.Initial = max(restart.Initial, leastRestart.Initial)
		restart.Max = max(restart.Max, leastRestart.Max)
		restart.ResetAfter = max(restart.ResetAfter, leastRestart.ResetAfter)
		if asked := t.Runtime.Health; asked != nil && asked.Interval < leastHealth {
			health := *asked
			health.Interval = leastHealth
			t.Runtime.Health = &health
		}
	}
	return errors.Join(faults...)
}
