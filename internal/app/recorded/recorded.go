// Package recorded answers the requests of the control API for what Orla has written down: the numbers of the last
// hour, the audit log, the locks of packages, and manifests.
package recorded

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/discovery"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/observe/audit"
	"github.com/orla-project/orla/internal/observe/telemetry"
	"github.com/orla-project/orla/internal/packages/lockfile"
	"github.com/orla-project/orla/supervisor"
)

// Records is a control.Recorder. All fields are required.
type Records struct {
	Telemetry *telemetry.Telemetry
	Manifests func() []supervisor.Served
	Config    func() *config.Loaded
	Home      string // of the user; "" for none
	AuditErr  func() error
	Unknown   func(name string) error // the error for a name that no manifest has
}

var _ control.Recorder = (*Records)(nil)

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Numbers implements control.Recorder.
func (r *Records) Numbers() control.Numbers {
	samples, memory := r.Telemetry.Numbers()
	n := control.Numbers{
		Now: time.Now(), Step: int(telemetry.SampleStep.Seconds()), ToolStep: int(telemetry.ToolStep.Seconds()),
		Samples: make([]control.Sample, 0, len(samples)), Tools: []control.ToolNumbers{},
	}
	for _, s := range samples {
		n.Samples = append(n.Samples, control.Sample{
			At: s.At, Calls: s.Calls, Errors: s.Errors, P50: milliseconds(s.P50), P99: milliseconds(s.P99), Memory: s.Memory, Own: s.Own,
		})
	}
	for _, one := range r.Manifests() {
		if list := joined(r.Telemetry.ToolNumbers(peer.NamesOf(one.Listed)...), memory[one.Tool.Name]); len(list) > 0 {
			n.Tools = append(n.Tools, control.ToolNumbers{Name: one.Tool.Name, Samples: list})
		}
	}
	slices.SortFunc(n.Tools, func(a, b control.ToolNumbers) int { return cmp.Compare(a.Name, b.Name) })
	return n
}

// joined joins samples of the calls of a tool and of its memory.
func joined(calls []telemetry.ToolSample, memory []telemetry.MemorySample) []control.ToolSample {
	at := map[int64]control.ToolSample{}
	for _, c := range calls {
		at[c.At.Unix()] = control.ToolSample{
			At: c.At, Calls: c.Calls, Errors: c.Errors, Mean: milliseconds(c.Took / time.Duration(max(1, c.Calls))), Max: milliseconds(c.Longest),
		}
	}
	for _, m := range memory {
		s := at[m.At.Unix()]
		s.At, s.Memory = m.At, m.Memory
		at[m.At.Unix()] = s
	}
	list := make([]control.ToolSample, 0, len(at))
	for _, s := range at {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b control.ToolSample) int { return a.At.Compare(b.At) })
	return list
}

// OwnMemory returns the resident memory of this process; 0 where /proc does not tell.
func OwnMemory() int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		return 0
	}
	return resident * int64(os.Getpagesize())
}

// AuditLog implements control.Recorder.
func (r *Records) AuditLog(n int) (control.AuditLog, error) {
	log := control.AuditLog{Path: r.Config().AuditPath(), Lines: []control.AuditLine{}}
	if log.Path == "" {
		return log, nil
	}
	if err := r.AuditErr(); err != nil {
		log.Error = err.Error()
	}
	if log.Path == audit.Journal {
		return log, nil
	}
	lines, size, err := audit.Tail(log.Path, n)
	if err != nil {
		return log, &control.Error{Code: control.CodeRefused, Message: err.Error()}
	}
	log.Bytes = size
	for i := range lines {
		l := &lines[i]
		log.Lines = append(log.Lines, control.AuditLine{
			Seq: l.Seq, Time: l.Time, Event: l.Event, Caller: l.Caller, Tool: l.Asked(), Target: l.Target, Class: l.Class, Rule: l.Rule, Verdict: l.Verdict,
			Approval: l.Approval, Decider: l.Decider, Outcome: l.Outcome, Duration: l.DurationMS, Why: cmp.Or(l.Reason, l.Change, l.Phase, l.Why, l.Method),
		})
	}
	return log, nil
}

// VerifyAudit implements control.Recorder. It checks what orla audit verify checks.
func (r *Records) VerifyAudit(ctx context.Context) (control.AuditReport, error) {
	cfg := r.Config()
	path := cfg.AuditPath()
	switch path {
	case "":
		return control.AuditReport{}, &control.Error{Code: control.CodeRefused, Message: "there is no audit log: audit_log is not set"}
	case audit.Journal:
		return control.AuditReport{}, &control.Error{
			Code: control.CodeRefused, Message: "the audit log is in the journal", Hint: audit.VerifyJournal,
		}
	}
	found, keyed, err := audit.Check(ctx, cfg.StateDir, path)
	if err != nil {
		return control.AuditReport{}, &control.Error{Code: control.CodeRefused, Message: err.Error()}
	}
	report := control.AuditReport{
		Whole: found.OK(), Lines: found.Lines, Calls: found.Calls, First: found.First, Last: found.Last, Signed: found.Signed, SignedAt: found.At, Unsigned: found.Unsigned,
		Findings: []string{}, More: found.More, Notes: []string{},
	}
	for _, f := range found.Findings {
		report.Findings = append(report.Findings, f.String())
	}
	for _, f := range found.Notes {
		report.Notes = append(report.Notes, f.String())
	}
	if !keyed {
		report.Notes = append(report.Notes, "no key was found, so no signature was checked")
	}
	return report, nil
}

// Packages implements control.Recorder.
func (r *Records) Packages() control.Packages {
	all := control.Packages{Locks: []control.PackageLock{}, Packages: []control.Package{}}
	for _, file := range discovery.LockFiles(r.Config(), r.Home) {
		if slices.ContainsFunc(all.Locks, func(l control.PackageLock) bool { return l.File == file }) {
			continue
		}
		lock, err := lockfile.Read(file)
		if err != nil {
			all.Locks = append(all.Locks, control.PackageLock{File: file, Error: err.Error()})
			continue
		}
		all.Locks = append(all.Locks, control.PackageLock{File: file})
		for i := range lock.Packages {
			p := &lock.Packages[i]
			all.Packages = append(all.Packages, control.Package{
				Name: p.Name, Version: p.Version, Serves: lock.Serving(p.Name) == p,
				Kind: string(p.Source.Kind), Source: cmp.Or(p.Source.Server, p.Source.URL), Registry: p.Source.Registry, Tag: p.Tag, Commit: p.Commit, Digest: p.Digest,
				Permissions: append([]string{}, p.Permissions...), Unenforced: p.Unenforced, Signer: p.Signer, Unsigned: p.Unsigned, Lock: file,
			})
		}
	}
	slices.SortStableFunc(all.Packages, func(a, b control.Package) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
