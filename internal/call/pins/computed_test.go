//go:build !race

package pins

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/manifest"
)

// SPEC S2, N4: of many definitions together, a bounded number of changes and findings is shown, and of each one.
func TestS2ManyDefinitionsAreShownInABoundedWay(t *testing.T) {
	s := NewStore("", slog.New(slog.DiscardHandler))
	tool := manifest.Tool{Name: "many", Kind: manifest.Capsule, Source: "/tools/many.yaml"}
	tool.Runtime.Pin = manifest.PinWarn
	p := s.Of(tool)
	const tools = 2 * maxShownTogether
	list := func(of string) map[string]*mcp.Tool {
		all := map[string]*mcp.Tool{}
		for n := range tools {
			all[fmt.Sprint("t", n)] = &mcp.Tool{InputSchema: json.RawMessage(`["` + strings.Repeat(of+`","`, 50) + `"]`)}
		}
		return all
	}
	p.Compare(map[string]*mcp.Tool{"first": {}}, nil)
	p.Compare(list(".ssh"), nil)
	check := func(v View, changes bool) {
		t.Helper()
		shown := 0
		for _, i := range v.Items {
			if i.State == Absent {
				continue
			}
			if len(i.Findings) == 0 || changes && len(i.Changes) == 0 {
				t.Fatalf("of %s: %d findings, %d changes", i.Name, len(i.Findings), len(i.Changes))
			}
			shown += len(i.Findings)
		}
		if shown > maxShownTogether+2*tools {
			t.Errorf("%d findings are shown", shown)
		}
	}
	check(s.All(nil)[0], false)
	v, err := s.Look("many", nil)
	if err != nil {
		t.Fatal(err)
	}
	check(v, true)
	if v, err = s.Look("many--t1", nil); err != nil || len(v.Items[0].Findings) != maxFindings+1 {
		t.Errorf("of one alone: %+v, %v", v, err)
	}
}
