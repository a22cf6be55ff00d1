package discovery_test

import (
	"testing"
	"time"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/discovery"
	"github.com/orla-project/orla/manifest"
)

// SPEC M7: an installed capsule that crashes again and again, or is asked often, does not keep Orla busy.
func TestM7AnInstalledCapsuleRests(t *testing.T) {
	tool := manifest.Tool{Kind: manifest.Capsule}
	tool.Runtime.Restart = manifest.Restart{Initial: time.Millisecond, Max: time.Millisecond, ResetAfter: 0}
	tool.Runtime.Health = &manifest.Health{Interval: time.Millisecond}
	if err := discovery.Lower(&tool, config.PackageConfig{}, &config.Loaded{}); err != nil {
		t.Fatal(err)
	}
	if got, want := tool.Runtime.Restart, (manifest.Restart{Initial: 500 * time.Millisecond, Max: 10 * time.Second, ResetAfter: 10 * time.Second}); got != want {
		t.Errorf("it restarts with %+v, want %+v", got, want)
	}
	if got := tool.Runtime.Health.Interval; got != time.Second {
		t.Errorf("it is asked every %s", got)
	}
	patient := manifest.Restart{Initial: time.Minute, Max: time.Hour, MaxFailures: 3, ResetAfter: time.Minute}
	tool.Runtime.Restart = patient
	if err := discovery.Lower(&tool, config.PackageConfig{}, &config.Loaded{}); err != nil || tool.Runtime.Restart != patient {
		t.Errorf("one that rests longer has %+v, %v", tool.Runtime.Restart, err)
	}
}

// SPEC M7, N2: at an upgrade, all callers wait until the capsules that cannot go on have ended.
func TestM7AnInstalledCapsuleEndsSoon(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{12 * time.Second: 5 * time.Second, time.Second: time.Second, 0: 0} {
		tool := manifest.Tool{Kind: manifest.Capsule}
		tool.Runtime.StopGrace = asked
		if err := discovery.Lower(&tool, config.PackageConfig{}, &config.Loaded{}); err != nil || tool.Runtime.StopGrace != want {
			t.Errorf("of %s it has %s, %v", asked, tool.Runtime.StopGrace, err)
		}
	}
}

// SPEC M7, S2: how long a call of a package takes is not for its author to choose: the attempts are few.
func TestM7CallsOfAPackageEnd(t *testing.T) {
	tool := manifest.Tool{Retry: manifest.Retry{MaxAttempts: 1_000_000, Backoff: time.Hour, MaxBackoff: 24 * time.Hour}}
	if err := discovery.Lower(&tool, config.PackageConfig{}, &config.Loaded{}); err != nil {
		t.Fatal(err)
	}
	if want := (manifest.Retry{MaxAttempts: 5, Backoff: 30 * time.Second, MaxBackoff: 30 * time.Second}); tool.Retry != want {
		t.Errorf("it is called %+v", tool.Retry)
	}
	few := manifest.Retry{MaxAttempts: 2, Backoff: time.Second, MaxBackoff: 2 * time.Second}
	if tool.Retry = few; discovery.Lower(&tool, config.PackageConfig{}, &config.Loaded{}) != nil || tool.Retry != few {
		t.Errorf("one with few attempts is called %+v", tool.Retry)
	}
}
