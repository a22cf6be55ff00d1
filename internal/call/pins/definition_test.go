package pins

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/manifest"
)

func digestOf(t *mcp.Tool) Digest { return new(definer).tool(t, "own").digest }

// SPEC N4: everything in a definition that a model reads counts, and how it is written does not.
func TestN4WhatADefinitionIs(t *testing.T) {
	yes := true
	full := func() *mcp.Tool {
		return &mcp.Tool{
			Name: "own", Title: "Own", Description: "does <it>", InputSchema: json.RawMessage(`{"type":"object","properties":{"a":{"description":"ä"},"b":{}}}`),
			OutputSchema: json.RawMessage(`{"type":"object"}`), Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true},
		}
	}
	for name, same := range map[string]func(*mcp.Tool){
		"nothing": func(*mcp.Tool) {},
		"spaces and order": func(t *mcp.Tool) {
			t.InputSchema = json.RawMessage(` {"properties":{"b":{ }, "a":{"description":"\u00e4"}},"type":"object"}`)
		},
		"the listed name": func(t *mcp.Tool) { t.Name = "notes__own" },
		"_meta":           func(t *mcp.Tool) { t.Meta = mcp.Meta{"x": 1} },
	} {
		tool := full()
		if same(tool); digestOf(tool) != digestOf(full()) {
			t.Errorf("%s makes another definition", name)
		}
	}
	for name, other := range map[string]func(*mcp.Tool){
		"title":        func(t *mcp.Tool) { t.Title = "" },
		"description":  func(t *mcp.Tool) { t.Description += " " },
		"input schema": func(t *mcp.Tool) { t.InputSchema = json.RawMessage(`{"type":"object"}`) },
		"text in a schema": func(t *mcp.Tool) {
			t.InputSchema = json.RawMessage(strings.Replace(string(t.InputSchema.(json.RawMessage)), "ä", "a", 1))
		},
		"no output schema":         func(t *mcp.Tool) { t.OutputSchema = nil },
		"annotations":              func(t *mcp.Tool) { t.Annotations.DestructiveHint = &yes },
		"no annotations":           func(t *mcp.Tool) { t.Annotations = nil },
		"title in the wrong place": func(t *mcp.Tool) { t.Title, t.Description = t.Description, t.Title },
	} {
		tool := full()
		if other(tool); digestOf(tool) == digestOf(full()) || sameTool(tool, full()) {
			t.Errorf("%s: it is the same definition", name)
		}
	}
	if new(definer).tool(full(), "own").digest == new(definer).tool(full(), "other").digest {
		t.Error("the name does not count")
	}
	prompt := func() *mcp.Prompt {
		return &mcp.Prompt{Name: "p", Title: "P", Description: "d", Arguments: []*mcp.PromptArgument{{Name: "a", Description: "b", Required: true}}}
	}
	for name, other := range map[string]func(*mcp.Prompt){
		"title": func(p *mcp.Prompt) { p.Title = "" }, "description": func(p *mcp.Prompt) { p.Description = "" },
		"arguments": func(p *mcp.Prompt) { p.Arguments = nil }, "text of an argument": func(p *mcp.Prompt) { p.Arguments[0].Description = "c" },
	} {
		p := prompt()
		if other(p); new(definer).prompt(p, "p").digest == new(definer).prompt(prompt(), "p").digest || samePrompt(p, prompt()) {
			t.Errorf("prompt: %s: it is the same definition", name)
		}
	}
	// What is too large for a canonical form has a digest of what was sent, which no definition with one has.
	large := full()
	large.Description = strings.Repeat("x", 300<<10)
	if d := new(definer).tool(large, "own"); d.canonical || d.digest == (Digest{}) {
		t.Errorf("%v %v", d.canonical, d.digest)
	}
	again := full()
	again.Description = large.Description
	if digestOf(large) != digestOf(again) {
		t.Error("the same large definition is another one")
	}
}

// SPEC N4: what is not text has no canonical form that would be the same for other text.
func TestN4WhatIsNotTextCounts(t *testing.T) {
	seen := map[Digest]string{}
	for _, schema := range []string{`{"description":"\udc48"}`, `{"description":"\udc49"}`, `{"description":"\ufffd"}`, "{\"description\":\"\xff\"}", "{\"description\":\"\xfe\"}"} {
		d := digestOf(&mcp.Tool{InputSchema: json.RawMessage(schema)})
		if other, twice := seen[d]; twice {
			t.Errorf("%q and %q have the same digest", schema, other)
		}
		seen[d] = schema
	}
}

// SPEC N4: that there are more findings than are shown is said.
func TestN4FindingsAreBounded(t *testing.T) {
	properties := map[string]any{}
	for n := range maxFindings {
		properties[fmt.Sprint("a", n)] = map[string]any{"description": "reads .env"}
	}
	schema := map[string]any{"properties": properties}
	few := findings(new(definer).tool(&mcp.Tool{InputSchema: schema}, "own").text, maxFindings)
	properties["z"] = map[string]any{"description": "reads ~/.ssh/id_rsa"}
	many := findings(new(definer).tool(&mcp.Tool{InputSchema: schema}, "own").text, maxFindings)
	if len(few) != maxFindings || len(many) != maxFindings+1 || many[maxFindings].Text != "there are more that are not shown" {
		t.Errorf("%d findings, and %d with another: %+v", len(few), len(many), many[len(many)-1])
	}
}

// SPEC N4: digests are read strictly.
func TestN4Digests(t *testing.T) {
	var d Digest
	want := digestOf(&mcp.Tool{})
	if err := d.UnmarshalText([]byte(want.String())); err != nil || d != want {
		t.Errorf("%v %v", d, err)
	}
	for _, bad := range []string{"", "sha256:", want.String()[7:], strings.ToUpper(want.String()), want.String() + "00", "sha256:" + want.String(), want.String()[:20]} {
		if d.UnmarshalText([]byte(bad)) == nil {
			t.Errorf("%q is a digest", bad)
		}
	}
}

// SPEC N4: a difference is shown by path, also within schemas.
func TestN4Changes(t *testing.T) {
	for _, c := range []struct{ before, after, want string }{
		{`{"a":1}`, `{"a":1}`, ""},
		{`{"description":"x"}`, `{"description":"y"}`, `description: "x" -> "y"`},
		{
			`{"i":{"properties":{"p":{"type":"string"}}}}`, `{"i":{"properties":{"p":{"type":"number"},"q":{"type":"string","enum":[1]}}}}`,
			`i.properties.p.type: "string" -> "number"; i.properties.q.enum:  -> [1]; i.properties.q.type:  -> "string"`,
		},
		{`{"a":{"b":1}}`, `{}`, `a: {"b":1} -> `},
		{`{"a":[1,2]}`, `{"a":[1,3,4]}`, `a[1]: 2 -> 3; a[2]:  -> 4`},
		{`{"a":1}`, `{"a":1.0}`, `a: 1 -> 1.0`},
		{`{"a":null}`, `{"a":{}}`, `a: null -> {}`},
		{`{"a b":1,"c.d":"<"}`, `{"a b":2,"c.d":">"}`, `["a b"]: 1 -> 2; ["c.d"]: "<" -> ">"`},
		{`{"a":1,"a":2}`, `{"a":2}`, `: {"a":1,"a":2} -> {"a":2}`},
		{"", `{"a":{"b":1},"c":[]}`, `a.b:  -> 1; c:  -> []`},
		{"", `{}`, `:  -> {}`},
	} {
		var before json.RawMessage
		if c.before != "" {
			before = json.RawMessage(c.before)
		}
		var got []string
		all, _ := changes(before, json.RawMessage(c.after), maxChanges)
		for _, change := range all {
			got = append(got, fmt.Sprintf("%s: %s -> %s", change.Path, change.Before, change.After))
		}
		if text := strings.Join(got, "; "); text != c.want {
			t.Errorf("%s and %s: %s, want %s", c.before, c.after, text, c.want)
		}
	}
}

// SPEC N4: what an operator should look at is found in every text, and usual definitions have no findings.
func TestN4Findings(t *testing.T) {
	for _, c := range []struct {
		text string
		kind FindingKind
	}{
		{"zero\u200bwidth", Hidden},
		{"joiner\u200dhere", Hidden},
		{"\u202eturned", Hidden},
		{"\u2066turned", Hidden},
		{"mark\ufeff", Hidden},
		{"tags \U000E0041\U000E0042", Hidden},
		{"soft\u00adhyphen", Hidden},
		{"escape\x1b[2J", Hidden},
		{"nul\x00", Hidden},
		{"filler\u3164", Hidden},
		{"selector \U000E0101", Hidden},
		{"read ~/.ssh/id_rsa", Sensitive},
		{"cat /etc/passwd", Sensitive},
		{"the .env file", Sensitive},
		{"$HOME/.aws/credentials", Sensitive},
		{"~/.cursor/mcp.json", Sensitive},
		{"/proc/self/environ", Sensitive},
		{"reads a file", ""},
		{"Ω größe 世界 😀 é", ""},
		{"line\nline\ttab", ""},
		{"process.env is read", ""},
		{"sets the environment", ""},
		{"an ssh server", ""},
	} {
		for path, definition := range map[string]any{
			"description":                          map[string]any{"description": c.text},
			"inputSchema.properties.p.description": map[string]any{"inputSchema": map[string]any{"properties": map[string]any{"p": map[string]any{"description": c.text}}}},
			"inputSchema.enum[1]":                  map[string]any{"inputSchema": map[string]any{"enum": []any{1, c.text}}},
		} {
			raw, err := json.Marshal(definition)
			if err != nil {
				t.Fatal(err)
			}
			got := findings(raw, maxFindings)
			switch {
			case c.kind == "" && len(got) > 0:
				t.Errorf("%q: %v", c.text, got)
			case c.kind != "" && (len(got) != 1 || got[0].Kind != c.kind || got[0].Path != path):
				t.Errorf("%q in %s: %v, want %s", c.text, path, got, c.kind)
			}
		}
	}
	if got := findings([]byte(`{"inputSchema":{"properties":{"a\u200b":{}}}}`), maxFindings); len(got) != 1 {
		t.Errorf("the name of a property: %v", got)
	}
	var many []string
	for range 100 {
		many = append(many, `"\u200b"`)
	}
	if got := findings([]byte("["+strings.Join(many, ",")+"]"), maxFindings); len(got) != maxFindings+1 {
		t.Errorf("%d findings, want %d", len(got), maxFindings+1)
	}
}

// SPEC N4: a tool that has the name of another provider's is found, however it is written.
func TestN4ShadowedNames(t *testing.T) {
	s := NewStore("", slog.New(slog.DiscardHandler))
	list := func(provider string, names ...string) {
		tool := manifest.Tool{Name: provider, Kind: manifest.Capsule, Source: "/tools/" + provider + ".yaml"}
		tool.Runtime.Pin = manifest.PinWarn
		all := map[string]*mcp.Tool{}
		for _, name := range names {
			all[name] = &mcp.Tool{Name: name}
		}
		s.Of(tool).Compare(all, nil)
	}
	list("mail", "send_mail", "read")
	list("evil", "Send-Mail", "hello", "own")
	got := map[string]string{}
	for _, v := range s.All(map[string][]string{"hello": {"hello"}, "evil": {"evil--own"}}) {
		for _, i := range v.Items {
			for _, f := range i.Findings {
				got[v.Provider+" "+i.Own] = f.Text
			}
		}
	}
	want := map[string]string{
		"mail send_mail": "a tool of this name is also there from evil", "evil Send-Mail": "a tool of this name is also there from mail",
		"evil hello": "a tool of this name is also there from hello",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// SPEC N4: a name means a provider, or one thing of one provider.
func TestN4NamesOfItems(t *testing.T) {
	s := NewStore(t.TempDir(), slog.New(slog.DiscardHandler))
	for _, provider := range []string{"a_b", "c"} {
		tool := manifest.Tool{Name: provider, Kind: manifest.Capsule, Source: "/tools/" + provider + ".yaml"}
		tool.Runtime.Pin = manifest.PinHold
		p := s.Of(tool)
		p.Compare(map[string]*mcp.Tool{"x_y": {}, "z": {}}, map[string]*mcp.Prompt{"z": {}})
		p.Named(map[string]string{"x_y": "shared", "z": provider + "__z"}, map[string]string{"z": provider + "__z"})
	}
	for name, want := range map[string]string{
		"a_b": "a_b:3", "c": "c:3", "a_b__x_y": "a_b:1", "a_b--x_y": "a_b:1", "a-b--x-y": "a_b:1", "c__z": "c:2", "shared": "ambiguous", "x_y": "unknown", "": "unknown",
	} {
		c, err := s.choose(name)
		got := "unknown"
		switch {
		case err == nil:
			got = fmt.Sprintf("%s:%d", c.of.name, len(c.items))
		case strings.Contains(err.Error(), "may be of a_b, c"):
			got = "ambiguous"
		}
		if got != want {
			t.Errorf("%q is %s, want %s (%v)", name, got, want, err)
		}
	}
}

// SPEC N4: a file is bounded: what is gone longest is forgotten first, and large definitions are kept as digests.
func TestN4AFileIsBounded(t *testing.T) {
	f := &file{Tools: map[string]kept{}, Prompts: map[string]kept{}}
	listed := map[item]*listedItem{}
	for n := range 3 * maxAbsent {
		name := fmt.Sprintf("t%04d", n)
		f.Tools[name] = kept{Digest: Digest{1}, Accepted: time.Unix(int64(n), 0), Definition: json.RawMessage(`"` + strings.Repeat("x", 8<<10) + `"`)}
		if n < maxAbsent {
			listed[item{Tool, name}] = &listedItem{}
		}
	}
	f.bound(listed)
	if len(f.Tools) != 2*maxAbsent {
		t.Errorf("%d are kept, want %d", len(f.Tools), 2*maxAbsent)
	}
	size := 0
	f.each(func(i item, k kept) {
		size += len(k.Definition)
		if _, is := listed[i]; !is && i.name < fmt.Sprintf("t%04d", 2*maxAbsent) {
			t.Errorf("%s is kept, and newer ones are not", i.name)
		}
	})
	if size > maxKeptAll {
		t.Errorf("%d bytes of definitions are kept, want %d at most", size, maxKeptAll)
	}

	s := NewStore(t.TempDir(), slog.New(slog.DiscardHandler))
	tool := manifest.Tool{Name: "big", Kind: manifest.Capsule, Source: "/tools/big.yaml"}
	tool.Runtime.Pin = manifest.PinHold
	p := s.Of(tool)
	odd := "<&> \u2028 \U000E0041"
	p.Compare(map[string]*mcp.Tool{"large": {Description: strings.Repeat("x", maxKept)}, "odd": {Description: odd, InputSchema: json.RawMessage(`{"description":"<&>"}`)}}, nil)
	files, err := filepath.Glob(filepath.Join(s.dir, "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	got, err := readFile(files[0])
	if err != nil {
		t.Fatal(err) // the digests are checked too
	}
	if got.Tools["large"].Definition != nil || got.Tools["odd"].Definition == nil {
		t.Errorf("%d bytes of the large one, and %d of the other are kept", len(got.Tools["large"].Definition), len(got.Tools["odd"].Definition))
	}
	p.Compare(map[string]*mcp.Tool{"large": {Description: "small"}}, nil)
	v, err := s.Look("big", nil)
	if err != nil || len(v.Items) != 1 || v.Items[0].Before != nil || v.Items[0].Was == (Digest{}) || !slices.ContainsFunc(v.Items[0].Changes, func(c Change) bool { return c.Path == "description" }) {
		t.Errorf("%+v, %v", v, err)
	}
}
