package wiring

import (
	"fmt"
	"log/slog"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/manifest"
)

// Unstarted joins the parts with what was found, and starts nothing. It adds a problem for each place that has lost its rules.
func Unstarted(cfg *config.Loaded, found *manifest.Result) (*Parts, error) {
	quiet := *cfg
	quiet.AuditLog = "" // nothing is called
	p, err := Join(&quiet, nil, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	p.Governance.Partial = true
	p.Pins.Freeze()
	p.Governance.Set(found, cfg)
	p.Services.Declare(*found)
	p.Supervisor.KnowOthers(nil, found.Faulty())
	p.Supervisor.ApplyUnserved(found.Tools)
	return p, nil
}

// AddDenials adds a problem for each place because of which a running Orla denies every call, and for each rule because of which it
// may: that names no tool that is known without running the capsules.
func AddDenials(cfg *config.Loaded, found *manifest.Result) {
	p, err := Unstarted(cfg, found)
	if err != nil { // orla serve says it, and calls nothing
		return
	}
	defer p.Close()
	found.Problems = append(found.Problems, Doubts(p.Governance.Unnamed(p.Supervisor.Catalog(), found))...)
}

// Doubts makes warnings of rules that name nothing, as far as the capsules said what they have when they last ran.
func Doubts(unnamed []manifest.Problem) []manifest.Problem {
	for i := range unnamed {
		p := &unnamed[i]
		p.Severity, p.Denies = manifest.Warning, false
		p.Err = fmt.Errorf("%w; unless a capsule offers it when it runs, every call is denied", p.Err)
	}
	return unnamed
}
