package offers

import (
	"encoding/json"
	"log/slog"
	"slices"
	"testing"

	"github.com/orla-project/orla/capsule/records"
	"github.com/orla-project/orla/manifest"
)

// SPEC D7a: lists are waited for once more when a capsule that was given up is READY, and not when it has said them.
func TestD7aListsAreExpectedOnceMore(t *testing.T) {
	tool := manifest.Tool{Name: "cap", Kind: manifest.Capsule, Source: "/tools/cap/tool.yaml"}
	tool.Runtime.Handshake = manifest.HandshakeMCP
	o := New(tool, nil, nil, slog.New(slog.DiscardHandler))
	if o.Expect() {
		t.Error("they are expected again, while they are waited for")
	}
	o.GiveUp()
	if now := o.Current(); !now.Known || !now.Silent {
		t.Errorf("given up: %+v", now)
	}
	changed := o.Current().Changed
	if !o.Expect() || o.Current().Known || o.Current().Silent {
		t.Errorf("expected: %+v", o.Current())
	}
	<-changed
	if o.GiveUp(); o.Expect() || !o.Current().Known {
		t.Error("they are expected a third time, of a capsule that always ends before it says them")
	}
	o.Set(records.Offered{Tools: []json.RawMessage{json.RawMessage(`{"name":"one","inputSchema":{"type":"object"}}`)}})
	if o.Expect() || !o.Current().Known {
		t.Errorf("said: %+v", o.Current())
	}
}

// SPEC D7a, M8: a version that has never run keeps the tools of the one that it replaces until it says what it offers
// itself, and lists wait for that.
func TestD7aAnUpdateKeepsTheToolsOfTheVersionBefore(t *testing.T) {
	version := func(v string) manifest.Tool {
		tool := manifest.Tool{Name: "cap", Kind: manifest.Capsule, Version: v, Source: "/tools/cap/" + v + "/tool.yaml"}
		tool.Runtime.Handshake = manifest.HandshakeMCP
		return tool
	}
	names := func(o *Offering) (all []string) {
		for _, tool := range o.Current().Tools {
			all = append(all, tool.Name)
		}
		return all
	}
	said := func(names ...string) (said records.Offered) {
		for _, name := range names {
			said.Tools = append(said.Tools, json.RawMessage(`{"name":"`+name+`","inputSchema":{"type":"object"}}`))
		}
		return said
	}
	lists, log := records.NewLists(t.TempDir()), slog.New(slog.DiscardHandler)
	first, second := version("1.0.0"), version("1.1.0")
	New(first, lists, nil, log).Set(said("a", "b"))
	o := New(second, lists, nil, log)
	if got := names(o); !slices.Equal(got, []string{"cap__a", "cap__b"}) || o.Current().Known {
		t.Errorf("before it has said anything there are %q, known %v", got, o.Current().Known)
	}
	if o.GiveUp(); len(names(o)) != 2 {
		t.Errorf("when it says nothing there are %q", names(o))
	}
	lists.Prune([]manifest.Tool{second}) // as each reload does
	third := New(version("1.2.0"), lists, nil, log)
	if got := names(third); len(got) != 2 {
		t.Errorf("of a third, since the second has said nothing, there are %q", got)
	}
	third.Set(said("c", "d"))
	if got := names(third); !slices.Equal(got, []string{"cap__c", "cap__d"}) || !third.Current().Known {
		t.Errorf("it has said what it offers, and there are %q, known %v", got, third.Current().Known)
	}
	lists.Prune(nil)
	if got := names(New(version("1.3.0"), lists, nil, log)); len(got) != 0 {
		t.Errorf("of a tool that was gone there are %q", got)
	}
}
