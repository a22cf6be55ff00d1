package pins

import (
	"encoding/json"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/manifest"
)

// allocated returns how many bytes do allocates.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// longKey is a definition of many values below a long key.
func longKey(values int) json.RawMessage {
	return json.RawMessage(`{"inputSchema":{"x":{"` + strings.Repeat("k", 10_000) + `":[1` + strings.Repeat(",1", values-1) + `]}}}`)
}

// SPEC S1, N4: what it costs to compare definitions is in proportion to them, also with many values below a long key, and
// what is not shown of the differences is counted.
func TestS1ManyChangesBelowALongKey(t *testing.T) {
	for name, before := range map[string]json.RawMessage{"a list": longKey(2), "nothing": nil, "a text": json.RawMessage(`{"inputSchema":"x"}`)} {
		var all []Change
		var more int
		if got := allocated(func() { all, more = changes(before, longKey(10_002), maxChanges) }); got > 16<<20 {
			t.Errorf("from %s: %d MB are allocated", name, got>>20)
		}
		want, rest := 1, 0
		if name == "a list" {
			want, rest = maxChanges, 10_000-maxChanges
		}
		if len(all) != want || more != rest {
			t.Fatalf("from %s: %d changes and %d more, want %d and %d", name, len(all), more, want, rest)
		}
		if path := all[0].Path; len(path) > maxPath+len("…") || name != "a text" && !strings.HasPrefix(path, "inputSchema.x.kkkk") {
			t.Errorf("from %s: a path of %d bytes: %.60s", name, len(path), path)
		}
	}
}

// SPEC S1, N4: the same of findings.
func TestS1FindingsBelowALongKey(t *testing.T) {
	var all []Finding
	definition := json.RawMessage(strings.Replace(string(longKey(10_000)), "[1", `[".ssh"`, 1))
	if got := allocated(func() { all = findings(definition, maxFindings) }); got > 16<<20 {
		t.Errorf("%d MB are allocated", got>>20)
	}
	if len(all) != 1 || len(all[0].Path) > maxPath+len("…") || !strings.HasPrefix(all[0].Path, "inputSchema.x.kkkk") {
		t.Errorf("%d findings: %.200v", len(all), all)
	}
}

// SPEC N4: what is long is cut, and stays JSON.
func TestN4LongValuesAreCut(t *testing.T) {
	text := strings.Repeat("ä", maxValue)
	for _, c := range []struct{ after, want string }{
		{`{"a":"` + text + `"}`, text[:maxValue] + "…"},
		{`{"a":["` + text + `"]}`, `["` + text[:maxValue-2] + "…"},
		{`{"a":1,"a":"` + text + `"}`, text[:maxValue] + "…"},
	} {
		all, _ := changes(json.RawMessage(`{"a":1}`), json.RawMessage(c.after), maxChanges)
		var got string
		if len(all) != 1 || all[0].Path != "a" || json.Unmarshal(all[0].After, &got) != nil || got != c.want {
			t.Errorf("%.20s: %.200v", c.after, all)
		}
	}
}

// asked is a schema that says when it is encoded.
type asked struct{ then func() }

func (a asked) MarshalJSON() ([]byte, error) {
	a.then()
	return []byte(`{}`), nil
}

// SPEC S2, N4: nobody waits for a provider's pins while its definitions are looked at.
func TestS2NobodyWaitsWhileDefinitionsAreLookedAt(t *testing.T) {
	s := NewStore(t.TempDir(), slog.New(slog.DiscardHandler))
	tool := manifest.Tool{Name: "slow", Kind: manifest.Capsule, Source: "/tools/slow.yaml"}
	tool.Runtime.Pin = manifest.PinWarn
	p := s.Of(tool)
	p.Compare(map[string]*mcp.Tool{"a": {}}, nil)
	var looks, locked int
	p.Compare(map[string]*mcp.Tool{"a": {InputSchema: asked{func() {
		if looks++; !p.mu.TryLock() {
			locked++
			return
		}
		p.mu.Unlock()
	}}}}, nil)
	check := func(what string) {
		t.Helper()
		if looks == 0 || locked > 0 {
			t.Errorf("%s: the definition was made %d times, %d times while the lock was held", what, looks, locked)
		}
	}
	looks, locked = 0, 0
	s.All(nil)
	check("all")
	looks, locked = 0, 0
	if v, err := s.Look("slow", nil); err != nil || len(v.Items) != 1 || len(v.Items[0].Changes) == 0 {
		t.Fatalf("%+v, %v", v, err)
	}
	check("look")
}
