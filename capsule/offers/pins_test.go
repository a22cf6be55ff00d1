package offers

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/orla-project/orla/capsule/records"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/pins"
	"github.com/orla-project/orla/manifest"
)

// pinnedIn makes an offering whose definitions are held.
func pinnedIn(t *testing.T, dir string, mod func(*manifest.Tool)) (*Offering, *pins.Store) {
	t.Helper()
	tool := manifest.Tool{Name: "cap", Kind: manifest.Capsule, Source: "/tools/cap/tool.yaml"}
	tool.Runtime.Handshake, tool.Runtime.Pin = manifest.HandshakeMCP, manifest.PinHold
	if mod != nil {
		mod(&tool)
	}
	store := pins.NewStore(dir, slog.New(slog.DiscardHandler))
	return New(tool, nil, store, slog.New(slog.DiscardHandler)), store
}

// shownOf says what is served and what is withheld.
func shownOf(o *Offering) string {
	var held []string
	for _, w := range o.Current().Withheld {
		held = append(held, fmt.Sprintf("%s(%v)", w.Name, w.Tool != nil))
	}
	var prompts []string
	for _, p := range o.Current().Prompts {
		prompts = append(prompts, p.Name)
	}
	slices.Sort(held)
	return fmt.Sprint(toolNames(o), prompts, held)
}

// SPEC N4: what is held is not offered, and changes no name of what is.
func TestN4HeldNamesChangeNoOthers(t *testing.T) {
	const search, add = `{"name":"search","description":"a"}`, `{"name":"add"}`
	for _, c := range []struct {
		name         string
		first, later []string
		prompts      [2][]string
		mod          func(*manifest.Tool)
		want         string
	}{
		{"a second tool is new", []string{search}, []string{search, add}, [2][]string{}, nil, "[search] [] [cap__add(true)]"},
		{"one of two has changed", []string{search, add}, []string{`{"name":"search","description":"b"}`, add}, [2][]string{}, nil, "[cap__add] [] [cap__search(true)]"},
		{"all have changed", []string{search}, []string{`{"name":"search","description":"b"}`}, [2][]string{}, nil, "[] [] [search(true)]"},
		{
			"a new one that collides",
			[]string{`{"name":"a_b"}`, add},
			[]string{`{"name":"a-b"}`, `{"name":"a_b"}`, add},
			[2][]string{},
			func(t *manifest.Tool) { t.Runtime.Generated = true }, "[cap--a-b cap--add] [] []",
		},
		{
			"a prompt has changed and one is new",
			[]string{search},
			[]string{search},
			[2][]string{{`{"name":"p"}`}, {`{"name":"p","description":"x"}`, `{"name":"q"}`}},
			nil,
			"[search] [] [cap__q(false) p(false)]",
		},
		{
			"a capsule without MCP whose only tool has changed",
			[]string{search},
			[]string{`{"name":"search","description":"b"}`},
			[2][]string{},
			func(t *manifest.Tool) { t.Runtime.Handshake = manifest.HandshakeHello }, "[] [] [search(true)]",
		},
		{
			"what is not included",
			[]string{search},
			[]string{search, add},
			[2][]string{},
			func(t *manifest.Tool) { t.Runtime.Generated, t.Runtime.Include = true, []string{"search"} }, "[cap--search] [] []",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, store := pinnedIn(t, t.TempDir(), c.mod)
			o.Set(records.Offered{Tools: raws(c.first...), Prompts: raws(c.prompts[0]...)})
			if len(o.Current().Withheld) > 0 {
				t.Errorf("of the first list, this is held: %s", shownOf(o))
			}
			o.Set(records.Offered{Tools: raws(c.later...), Prompts: raws(c.prompts[1]...)})
			if got := shownOf(o); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			changed := o.Current().Changed
			if _, err := store.Approve("cap", "", "uid 0"); err != nil {
				t.Fatal(err)
			}
			o.Review()
			select {
			case <-changed:
			default:
				t.Error("nobody is told of the approval")
			}
			if len(o.Current().Withheld) > 0 {
				t.Errorf("after the approval: %s", shownOf(o))
			}
		})
	}
}

// SPEC N4: an alias asks whether a tool may be called, by the server's own name: not before it is known what the tool
// is, and not while it is held, included or not.
func TestN4AHeldToolIsNotCalledByItsOwnName(t *testing.T) {
	o, _ := pinnedIn(t, t.TempDir(), func(t *manifest.Tool) { t.Runtime.Generated, t.Runtime.Include = true, []string{"other"} })
	if err := o.Withholds("search"); fault.CodeOf(err) != fault.NotReady {
		t.Errorf("before its list is known: %v", err)
	}
	o.Set(records.Offered{Tools: raws(`{"name":"search"}`)})
	if err := o.Withholds("search"); err != nil {
		t.Error(err)
	}
	o.Set(records.Offered{Tools: raws(`{"name":"search","title":"S"}`, `{"name":"add"}`)})
	for own, want := range map[string]string{"search": "has changed", "add": "is new"} {
		if err := o.Withholds(own); fault.CodeOf(err) != fault.PermissionDenied || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "orla pins approve cap--"+own) {
			t.Errorf("%s: %v", own, err)
		}
	}
	// Under warn nothing is refused.
	warned, _ := pinnedIn(t, t.TempDir(), func(t *manifest.Tool) { t.Runtime.Pin = manifest.PinWarn })
	if err := warned.Withholds("search"); err != nil {
		t.Error(err)
	}
}

// SPEC N4: a capsule that is one tool is not served while what was accepted cannot be read.
func TestN4APlainCapsuleWithUnreadablePins(t *testing.T) {
	dir := t.TempDir()
	hello := func(t *manifest.Tool) { t.Runtime.Handshake = manifest.HandshakeHello }
	o, _ := pinnedIn(t, dir, hello)
	o.Set(records.Offered{Tools: raws(`{"name":"search"}`)})
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if err := os.WriteFile(files[0], nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o, _ = pinnedIn(t, dir, hello)
	o.Set(records.Offered{})
	if got := shownOf(o); got != "[] [] [cap(true)]" {
		t.Error(got)
	}
}

// SPEC N4, D7: a list of which most was read before means the same as if all of it were new, and what is the same JSON is
// not decoded again.
func TestN4AListThatWasReadBefore(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	tool := manifest.Tool{Name: "cap", Kind: manifest.Capsule, Source: "/tools/cap/tool.yaml"}
	tool.Runtime.Handshake = manifest.HandshakeMCP
	quiet := slog.New(slog.DiscardHandler)
	kept := New(tool, nil, nil, quiet)
	items := []string{`{"name":""}`, `[]`, `{"name":"a","name":"b"}`, `{"name":"t1","description":"other"}`, `{"name":"t2","annotations":{"readOnlyHint":true},"_meta":{"a":1}}`}
	for i := range 8 {
		items = append(items, fmt.Sprintf(`{"name":"t%d","inputSchema":{"type":"object","title":"%d"}}`, i, i))
	}
	var list []json.RawMessage
	for round := range 300 {
		before := kept.tools
		switch at := random.IntN(len(list) + 1); {
		case round%50 == 49:
			random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		case len(list) < 6 || random.IntN(2) == 0 && len(list) < 20:
			list = slices.Insert(list, at, json.RawMessage(items[random.IntN(len(items))]))
		case at < len(list) && random.IntN(2) == 0:
			list[at] = json.RawMessage(items[random.IntN(len(items))])
		case at < len(list):
			list = slices.Delete(list, at, at+1)
		}
		said := records.Offered{}
		for _, item := range list {
			said.Tools = append(said.Tools, slices.Clone(item)) // as it comes: bytes of its own
		}
		kept.Set(said)
		fresh := New(tool, nil, nil, quiet)
		fresh.Set(said)
		a, b := *kept.current.Load(), *fresh.current.Load()
		a.Changed, b.Changed = nil, nil
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("round %d, %s: it offers\n%+v\nand if all is new\n%+v", round, list, a, b)
		}
		for i, item := range said.Tools {
			for j, old := range before.raw {
				if string(old) == string(item) && before.read[j] != nil && kept.tools.read[i].InputSchema != nil && !slices.Contains(before.read, kept.tools.read[i]) {
					t.Fatalf("round %d: %s was decoded again", round, item)
				}
			}
		}
	}
}
