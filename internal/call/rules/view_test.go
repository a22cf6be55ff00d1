package rules_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/manifest"
)

// SPEC-TOOLS 8.6: callers with one View have the same lists, over random documents, roles and toolsets. Callers who have the same roles
// and toolsets have one View, however many entries they have, unless a rule names one of them.
func TestT86CallersWithOneViewHaveTheSameLists(t *testing.T) {
	tools := []string{"fetch", "write", "srv__a"}
	shared := 0
	for seed := range uint64(needs.Rounds(200, 400)) {
		r := rand.New(rand.NewPCG(seed, 86))
		documents := manifest.Rules{Roles: []manifest.Role{
			{Reference: refs("reader")[0], Permissions: []manifest.Right{{Tool: "fetch"}}}, {Reference: refs("writer")[0], Permissions: []manifest.Right{{Tool: "write"}, {Tool: "srv__a"}}},
		}}
		names := []string{"ann", "Ann", "bob", "eve", "staff", "Staff"}
		for i := range r.IntN(3) {
			documents.Policies = append(documents.Policies, manifest.Policy{Reference: refs(fmt.Sprint("p", i))[0], Systems: refs(some(r, 2, names...)...), Blocked: refs(some(r, 2, tools...)...)})
		}
		for i := range r.IntN(3) {
			documents.Permissions = append(documents.Permissions, manifest.Permission{
				Reference: refs(fmt.Sprint("t", i))[0], Tool: refs(append(tools, "*")[r.IntN(4)])[0], Scoped: r.IntN(2) == 0, Agents: refs(some(r, 2, names...)...),
				Required: some(r, 1, manifest.Right{Tool: "fetch"}, manifest.Right{Tool: "*"}),
			})
		}
		var bindings []rules.Binding
		for _, name := range names {
			b := rules.Binding{Caller: name, Roles: refs(some(r, 2, "reader", "writer", "none")...), Toolsets: refs(some(r, 1, "web", "all")...)}
			if name == "staff" || name == "Staff" {
				b.Caller, b.Group = "", name
			}
			if r.IntN(4) > 0 {
				bindings = append(bindings, b)
			}
		}
		set := rules.New(documents, bindings, []rules.Toolset{{Name: "web", Tools: []string{"fe*"}}, {Name: "all", Tools: []string{"*"}}})
		lists, first := map[string]string{}, map[string]rules.Caller{}
		for range 30 {
			c := rules.Caller{Name: append(names[:4:4], "zoe")[r.IntN(5)], Groups: some(r, 2, "staff", "Staff", "others")}
			list := ""
			for _, tool := range tools {
				target := rules.NewTarget([]string{tool}, nil, nil, nil)
				list += fmt.Sprint(tool, set.Calls(c, target), set.Reads(c, target), " ")
			}
			view := set.View(c)
			before, seen := lists[view]
			if seen && before != list {
				t.Fatalf("seed %d: %+v and %+v have the view %q, and may use %s and %s\n%+v\n%+v", seed, first[view], c, view, before, list, documents, bindings)
			}
			if seen && first[view].Name != c.Name {
				shared++
			}
			if !seen {
				lists[view], first[view] = list, c
			}
		}
	}
	if shared < 100 {
		t.Errorf("%d pairs of callers have one view; the test has to try more", shared)
	}
	web := refs("reader")
	set := rules.New(manifest.Rules{Roles: []manifest.Role{{Reference: refs("reader")[0]}}, Policies: []manifest.Policy{{Reference: refs("no")[0], Systems: refs("eve"), Blocked: refs("fetch")}}},
		[]rules.Binding{{Caller: "ann", Roles: web, MaySpeakFor: []string{"x"}}, {Caller: "bob", Roles: web, At: "b"}, {Caller: "eve", Roles: web}, {Group: "staff", Roles: web}, {Caller: "zoe"}}, nil)
	if ann := set.View(rules.Caller{Name: "ann"}); ann != set.View(rules.Caller{Name: "bob", Groups: []string{"staff"}}) || ann == set.View(rules.Caller{Name: "eve"}) || ann == set.View(rules.Caller{Name: "zoe"}) {
		t.Error("the views of callers with one role are not the same, or that of somebody else is")
	}
	if set.View(rules.Caller{Name: "zoe"}) != set.View(rules.Caller{Name: "nobody"}) {
		t.Error("who has an entry without roles has a view of its own")
	}
}
