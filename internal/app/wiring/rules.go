package wiring

import (
	"fmt"
	"slices"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/doctor"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/call/governance"
	"github.com/orla-project/orla/manifest"
)

// ExamineRules reports the governance documents that deny every call: those that cannot be read, and those that are gone
// (docs/decisions/0059). It changes nothing. validating is the command that shows what is wrong with documents.
func ExamineRules(cfg *config.Loaded, found manifest.Result, validating string) []doctor.Finding {
	const check = "rules"
	read := slices.Clone(found.Problems)
	found.Problems = slices.Clone(read)
	gate := governance.Gate{Partial: true, Memory: stateFile(cfg, "rules")}
	gate.Set(&found, cfg)
	var findings []doctor.Finding
	for _, p := range found.Problems {
		if !p.Denies {
			continue
		}
		f := doctor.Finding{Check: check, Level: doctor.Fail, Text: p.Path + " " + p.Err.Error()}
		same := func(other manifest.Problem) bool { return other.Path == p.Path && other.Err.Error() == p.Err.Error() }
		if slices.ContainsFunc(read, same) {
			f.Text, f.Fix = fmt.Sprintf("%s: %v; every call is denied", p.Path, p.Err), validating
		}
		findings = append(findings, f)
	}
	if len(findings) > 0 {
		return findings
	}
	text := "there are no governance documents"
	if r := found.Rules; !r.Empty() {
		text = terminal.Count(len(r.Roles)+len(r.Policies)+len(r.Permissions), "governance document") + " in order"
	}
	return []doctor.Finding{{Check: check, Level: doctor.OK, Text: text}}
}
