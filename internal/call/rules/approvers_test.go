package rules_test

import (
	"slices"
	"testing"

	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/manifest"
)

// SPEC-TOOLS 8.7: where two rules ask for an approval, only who may decide for both may, and there is always one. A rule
// that does not say who has the default; it is not a rule that lets all decide.
func TestT87OfTwoRulesWhoMayDecideForBothMay(t *testing.T) {
	means := []manifest.Approver{manifest.ApproverClient, manifest.ApproverOperator, manifest.ApproverPasskey}
	var lists [][]manifest.Approver
	for mask := range 1 << len(means) {
		var list []manifest.Approver
		for i, how := range means {
			if mask&(1<<i) != 0 {
				list = append(list, how)
			}
		}
		lists = append(lists, list)
	}
	// may says, without the code under test, whether one of the means is good for a rule.
	may := func(list []manifest.Approver, how manifest.Approver, caller, class string) bool {
		if len(list) == 0 {
			switch how {
			case manifest.ApproverClient:
				return caller == "stdio" && class != "delete" && class != "admin"
			default:
				return true
			}
		}
		return slices.Contains(list, how) || how == manifest.ApproverPasskey && slices.Contains(list, manifest.ApproverOperator)
	}
	for _, caller := range []string{"ann", "stdio"} {
		for _, class := range []string{"read", "delete"} {
			target := rules.NewTarget([]string{"wipe"}, nil, []manifest.OperationClass{manifest.OperationClass(class)}, nil)
			for _, a := range lists {
				for _, b := range lists {
					var documents manifest.Rules
					for i, list := range [][]manifest.Approver{a, b} {
						documents.Permissions = append(documents.Permissions, manifest.Permission{
							Reference: refs([]string{"p", "q"}[i])[0], Tool: refs([]string{"wipe", "*"}[i])[0],
							Operations: []manifest.OperationRule{{Class: "*", Verdict: manifest.ApprovalRequired, Approvers: list}},
						})
					}
					got := rules.New(documents, nil, nil).Decide(rules.Caller{Name: caller}, target)
					if got.Verdict != manifest.ApprovalRequired || len(got.Approvers) == 0 {
						t.Fatalf("%s, %s, %v and %v: %+v", caller, class, a, b, got)
					}
					nobody := !slices.ContainsFunc(means, func(how manifest.Approver) bool {
						return may(a, how, caller, class) && may(b, how, caller, class)
					})
					for _, how := range means {
						want := may(a, how, caller, class) && may(b, how, caller, class) || nobody && how == manifest.ApproverPasskey
						if how.In(got.Approvers) != want {
							t.Errorf("%s, %s, %v and %v: %s may decide: %t, want %t (%v)", caller, class, a, b, how, !want, want, got.Approvers)
						}
					}
				}
			}
		}
	}
}
