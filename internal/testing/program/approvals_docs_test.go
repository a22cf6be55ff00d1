package program

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// approvalID finds ids of approvals, and whatBegins the beginnings that people write.
var (
	approvalID = regexp.MustCompile(`ap-[a-z2-7]{16}`)
	whatBegins = regexp.MustCompile(`ap-[a-z2-7]{3}\b`)
	person     = regexp.MustCompile(`user:[a-z0-9]+\([0-9]+\)`)
	spans      = regexp.MustCompile(`\d+m(\d+s)?|\d+s ago|\d+s\b`)
	ruleAt     = regexp.MustCompile(`/\S*/ask\.yaml`)
)

// The walk of docs/GOVERNANCE.md from nothing to a decision prints what the page shows.
func TestT87TheWalkOfThePage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	page := section(t, "docs/GOVERNANCE.md", "Ask a person")
	walk, _, _ := strings.Cut(page, "\n### ")
	files := map[string]string{"sh": "tools/wipe", "yaml": "tools/ask.yaml"}
	for _, block := range fence.FindAllStringSubmatch(walk, -1) {
		if name := files[block[1]]; name != "" {
			testkit.WriteTool(t, dir, name, block[2])
			files[block[1]] = "orla.yaml" // the second of the YAML blocks
		}
	}
	o := serveThere(t, dir)
	client := control.NewClient(o.status().Socket)
	ids := map[string]string{} // of the page to those of here
	same := func(text string) string {
		text = whatBegins.ReplaceAllString(approvalID.ReplaceAllString(text, "ID"), "ID")
		text = spans.ReplaceAllString(person.ReplaceAllString(varying.ReplaceAllString(text, "…"), "WHO"), "SPAN")
		return strings.Join(strings.Fields(ruleAt.ReplaceAllString(text, "RULE")), " ")
	}
	steps := 0
	for _, block := range indented(walk) {
		for _, id := range approvalID.FindAllString(block, -1) {
			if _, known := ids[id[:6]]; !known {
				ids[id[:6]] = ""
			}
		}
		for _, step := range strings.Split("\n"+block, "\n$ ")[1:] {
			steps++
			command, want := splitStep(step)
			command = whatBegins.ReplaceAllStringFunc(strings.TrimSpace(command), func(begin string) string { return ids[begin] })
			if before, ok := strings.CutSuffix(command, "&"); ok {
				shellAs(t, o, dir, "("+before+") >/dev/null 2>&1 &\n")
				testkit.Eventually(t, "the call waits", func() bool {
					list, err := client.Approvals(t.Context(), control.ApprovalQuery{Phase: "Pending"})
					if err != nil || len(list) != 1 {
						return false
					}
					// The ids of the page come in the order of the calls.
					order := slices.Compact(approvalID.FindAllString(walk, -1))
					for _, id := range order {
						if ids[id[:6]] == list[0].ID {
							return false
						}
						if ids[id[:6]] == "" {
							ids[id[:6]] = list[0].ID
							return true
						}
					}
					return false
				})
				continue
			}
			ok := func(got string) bool { return same(got) == same(want) }
			got := shellAs(t, o, dir, command+" || true\n")
			if strings.HasPrefix(command, "cat ") { // the call ends a moment after the decision
				testkit.Eventually(t, "the answer is there: "+want, func() bool {
					got = shellAs(t, o, dir, command+"\n")
					return ok(got)
				})
			}
			if !ok(got) {
				t.Errorf("$ %s\nprints\n%s\nthe page has\n%s\n(%s, %s)", command, got, want, same(got), same(want))
			}
		}
	}
	if steps < 9 {
		t.Errorf("only %d steps were found", steps)
	}
	if refused := indented(page[len(walk):]); len(refused) == 0 || !strings.Contains(refused[0], "may not approve its calls: an agent with a shell could do the same") {
		t.Errorf("the page shows %s", fmt.Sprint(refused))
	}
}
