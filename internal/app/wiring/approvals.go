package wiring

import (
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/call/approvals"
)

// approving is how people decide about calls.
type approving struct {
	ttl atomic.Int64 // of new records
}

// openApprovals returns what opens the records of approvals; nil without a state folder.
func (p *Parts) openApprovals(cfg *config.Loaded, log *slog.Logger) func() (*approvals.Store, error) {
	dir := config.StateDir(cfg, "approvals")
	if dir == "" {
		return nil
	}
	return func() (*approvals.Store, error) {
		s, err := approvals.Open(approvals.Options{Dir: filepath.Join(dir, folderKey(cfg)), Log: log})
		if err == nil {
			s.SetTTL(time.Duration(p.approving.ttl.Load()))
		}
		return s, err
	}
}

// ConfigureApprovals applies the settings of approvals of cfg. It must not be called while rules are put into
// force, which may open the records.
func (p *Parts) ConfigureApprovals(cfg *config.Loaded) {
	p.approving.ttl.Store(int64(cfg.Approvals.TTL))
	if s := p.Governance.Approvals(); s != nil {
		s.SetTTL(time.Duration(cfg.Approvals.TTL))
	}
}
