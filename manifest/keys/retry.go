package keys

import (
	"time"

	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/manifest"
)

// Retry are runtime.retry, the same in every kind of file (SPEC-TOOLS 1.2, 6.3).
type Retry struct {
	MaxAttempts int              `json:"max_attempts,omitempty" jsonschema:"Attempts of a call, the first included. Default 1"`
	Backoff     yamldoc.Duration `json:"backoff,omitempty" jsonschema:"Pause after the first attempt; each one after it is twice as long. Default 0s"`
	MaxBackoff  yamldoc.Duration `json:"max_backoff,omitempty" jsonschema:"Longest pause. Default 30s"`
	Jitter      manifest.Jitter  `json:"jitter,omitempty" jsonschema:"none: pauses are as they are; full: anything up to that; equal: half of it and anything up to the other half. Default none"`
}

// RetryDefaults is what holds for the keys that a file leaves out.
func RetryDefaults() Retry {
	return Retry{MaxAttempts: 1, MaxBackoff: yamldoc.Duration(30 * time.Second), Jitter: manifest.JitterNone}
}

// Retry checks the keys of runtime.retry.
func (d *Description) Retry(k Retry) manifest.Retry {
	if k.MaxAttempts < 1 {
		d.Fault("runtime", "retry.max_attempts", "must be at least 1, which is the first attempt, got %d", k.MaxAttempts)
	}
	if k.MaxBackoff == 0 {
		d.Fault("runtime", "retry.max_backoff", "must be above 0; backoff: 0s is what makes no pauses")
	}
	return manifest.Retry{
		MaxAttempts: k.MaxAttempts,
		Backoff:     time.Duration(k.Backoff),
		MaxBackoff:  time.Duration(k.MaxBackoff),
		Jitter:      k.Jitter,
	}
}

// warnOfIdleRetry warns of a tool whose calls are tried again only where they
// were never sent, which its author may not know (SPEC-TOOLS 6.3). What a
// capsule's own tools are annotated, it says when it runs.
func (d *Description) warnOfIdleRetry(t *manifest.Tool) {
	own := t.Kind == manifest.Capsule && !t.Runtime.Declared
	safe := t.Annotations != nil && (t.Annotations.ReadOnlyHint || t.Annotations.IdempotentHint)
	if t.Retry.MaxAttempts > 1 && !own && !safe {
		d.warn("retry", "has no effect on a call that was sent, as the tool is annotated neither readOnlyHint nor idempotentHint: a second attempt could do its work twice")
	}
}
