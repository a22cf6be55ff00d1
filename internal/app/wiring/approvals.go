package wiring

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/version"
	"github.com/orla-project/orla/internal/call/approvals"
	"github.com/orla-project/orla/internal/call/approvals/announce"
	"github.com/orla-project/orla/internal/call/approvals/passkey"
	"github.com/orla-project/orla/internal/observe/audit"
)

// Approving is how people decide about calls. Its methods may be called from any goroutine.
type Approving struct {
	ttl       atomic.Int64 // of new records
	Announcer *announce.Announcer
	Passkeys  *passkey.Store
	observe   atomic.Pointer[func(approvals.Event)] // nil for nobody
}

// openApprovals returns what opens the records of approvals: those of all replicas, or those in the state folder. It is nil
// if there is neither.
func (p *Parts) openApprovals(cfg *config.Loaded, log *slog.Logger) func() (*approvals.Store, error) {
	dir := config.StateDir(cfg, "approvals")
	if dir == "" && p.Shared == nil {
		return nil
	}
	return func() (*approvals.Store, error) {
		s, err := approvals.Open(approvals.Options{
			Dir: filepath.Join(dir, folderKey(cfg)), Common: p.Shared.documents("approvals"), Told: p.told, Unrecorded: p.Audit.Err, Log: log,
		})
		if err == nil {
			s.SetTTL(time.Duration(p.Approving.ttl.Load()))
		}
		return s, err
	}
}

// Observe has a function called with each event of the records that follows. It must not wait.
func (a *Approving) Observe(of func(approvals.Event)) { a.observe.Store(&of) }

// told records in the audit log what became of a record.
func (p *Parts) told(e approvals.Event) {
	line := &audit.Approval{
		ID: e.ID, Caller: e.Caller, Agent: e.Agent, Tool: e.Tool, Class: e.Class, Rule: e.Rule, Phase: string(e.Phase), Change: string(e.What),
		Reason: e.Reason,
	}
	line.Decider, line.How, line.ExtendedBy = e.By, string(e.How), e.ExtendedBy
	switch e.What {
	case approvals.Decided:
		line.Proof, line.Args = e.Proof, e.Args
		if e.Phase == approvals.Approved {
			line.Until = e.Expires
		}
	case approvals.Extended:
		line.Until = e.Expires
		if e.ExtendedWith != nil {
			line.Proof, line.Args = e.ExtendedWith, e.Args
		}
	case approvals.TimedOut, approvals.Withdrawn:
	}
	p.Audit.RecordApproval(line)
	if of := p.Approving.observe.Load(); of != nil {
		(*of)(e)
	}
}

// ConfigureApprovals applies the settings of approvals of cfg. It must not be called while rules are put into
// force, which may open the records.
func (p *Parts) ConfigureApprovals(cfg *config.Loaded) {
	p.Approving.ttl.Store(int64(cfg.Approvals.TTL))
	if s := p.Governance.Approvals(); s != nil {
		s.SetTTL(time.Duration(cfg.Approvals.TTL))
	}
}

// AwaitApprovals returns the records, once a rule has wanted an approval; nil if ctx ends before.
func (p *Parts) AwaitApprovals(ctx context.Context) *approvals.Store {
	for {
		changed := p.Governance.Changed()
		if store := p.Governance.Approvals(); store != nil {
			return store
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// newAnnouncer returns what announces approvals, once it has settings. The operator has named the receiver, so it
// may be in a private network, whatever the tools may reach.
func (p *Parts) newAnnouncer() *announce.Announcer {
	return announce.New(announce.Options{
		Client: p.Services.issuers.HTTPClient(), Await: p.AwaitApprovals, Mine: p.announces, UserAgent: "orla/" + version.Version(), Log: p.log,
	})
}

// announces reports whether this process announces a record: of several replicas, one does.
func (p *Parts) announces(id string) bool {
	if p.Shared == nil {
		return true
	}
	by := p.Shared.Heir("", id)
	return by == "" || by == p.Shared.Self()
}

// Webhook returns where a configuration wants approvals announced; nil for nowhere.
func Webhook(cfg *config.Loaded) (*announce.Settings, error) {
	w := cfg.Approvals.Webhook
	if w.URL == "" {
		return nil, nil
	}
	path, key := w.SecretFile, "approvals.webhook.secret_file"
	if w.SecretCredential != "" {
		var err error
		key = "approvals.webhook.secret_credential"
		if path, err = config.Credential(w.SecretCredential); err != nil {
			return nil, cfg.At(key, err)
		}
	} else if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(cfg.File), path)
	}
	text, err := config.ReadSmall(path)
	if err != nil {
		return nil, cfg.At(key, err)
	}
	secret, err := announce.ParseSecret(string(text))
	if err != nil {
		return nil, cfg.At(key, fmt.Errorf("%s %w", path, err))
	}
	return &announce.Settings{URL: w.URL, Key: secret, Arguments: w.Arguments}, nil
}
