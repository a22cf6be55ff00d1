package governance_test

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/orla-project/orla/internal/call/approvals"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/governance"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
)

// SPEC-TOOLS 8.8: a decision at the client does not count while the audit log cannot be written, nor does a call go on
// that an operator has approved.
func TestT88ADecisionAtTheClientNeedsALine(t *testing.T) {
	const accepts = `{"action":"accept","content":{"decision":"approve"}}`
	synctest.Test(t, func(t *testing.T) {
		var full atomic.Bool
		dir := t.TempDir()
		g := &governance.Gate{Log: slog.New(slog.DiscardHandler), Open: func() (*approvals.Store, error) {
			return approvals.Open(approvals.Options{Dir: dir, Log: slog.New(slog.DiscardHandler), Unrecorded: func() error {
				if full.Load() {
					return errors.New("the disk is full")
				}
				return nil
			}})
		}}
		d := &desk{Gate: g, t: t, cfg: configured(t)}
		d.rule(wants(manifest.ApproverClient, manifest.ApproverOperator))
		defer g.Approvals().Close()
		person := &client{capabilities: forms, replies: make(chan string, 1)}
		waits := d.calls(t.Context(), peer.Call{Client: person})
		synctest.Wait()
		full.Store(true)
		person.replies <- accepts
		check(t, <-waits, fault.NotReady, "audit log")
		if r := d.record(); r.Phase != approvals.Pending {
			t.Errorf("it was decided: %+v", r)
		}
		full.Store(false)
		d.decide(true, "")
		full.Store(true)
		check(t, <-d.calls(t.Context(), peer.Call{}), fault.NotReady, "audit log")
		full.Store(false)
		check(t, <-d.calls(t.Context(), peer.Call{}), "", "")
	})
}
