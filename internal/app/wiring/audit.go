package wiring

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/systemd"
	"github.com/orla-project/orla/internal/call/audited"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/observe/audit"
	"github.com/orla-project/orla/manifest"
)

// openAudit opens the audit log; nil if none is configured.
func openAudit(cfg *config.Loaded, log *slog.Logger) (*audit.Log, error) {
	path := cfg.AuditPath()
	if path == "" {
		return nil, nil
	}
	if err := mayDrop(path, systemd.JournalLimits); err != nil {
		log.Warn("the audit log may lose lines", "err", err)
	}
	return audit.Open(audit.Options{
		Path: path, StateDir: cfg.StateDir, Full: cfg.AuditArguments == config.AuditFull, Journal: systemd.JournalSocket, Log: log,
	})
}

// Refused returns what records a call that is refused before it reaches a tool; nil without an audit log.
func (p *Parts) Refused() func(ctx context.Context, call peer.Call, err error) {
	if p.Audit == nil {
		return nil
	}
	return audited.Recorder{Log: p.Audit}.Refused
}

// AuditRequests returns what records requests other than calls; nil without an audit log.
func (p *Parts) AuditRequests() func() (*peer.Noted, func(context.Context, *peer.Request, string), error) {
	if p.Audit == nil {
		return nil
	}
	return audited.Recorder{Log: p.Audit}.Request
}

// AuditProblems are why the audit log is not what its reader takes it for.
func AuditProblems(l *audit.Log) []manifest.Problem {
	if err := l.Elsewhere(); err != nil {
		return []manifest.Problem{{Path: l.Path(), Severity: manifest.Fault, Err: err}}
	}
	if err := mayDrop(l.Path(), systemd.JournalLimits); err != nil {
		return []manifest.Problem{{Path: l.Path(), Severity: manifest.Warning, Err: err}}
	}
	return nil
}

// mayDrop returns why lines of an audit log may be lost, of which Orla is not told; nil if none are. limits is
// systemd.JournalLimits.
func mayDrop(path string, limits func() string) error {
	if path != audit.Journal {
		return nil
	}
	if unit := limits(); unit != "" {
		return fmt.Errorf("the journal drops lines of %s when there are many, and then calls are made that have none: give that unit LogRateLimitIntervalSec=1s and LogRateLimitBurst=1000000, or have audit_log in a file", unit)
	}
	return nil
}
