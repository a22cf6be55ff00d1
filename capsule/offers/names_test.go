package offers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/orla-project/orla/capsule/records"
	"github.com/orla-project/orla/manifest"
)

var acceptable = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// SPEC D7: the names that clients see.
func TestNames(t *testing.T) {
	prefix := func(s string) *string { return &s }
	long := strings.Repeat("n", 70)
	for _, test := range []struct {
		name   string
		prefix *string
		own    []string
		want   []string // one that ends in # is followed by a hash
	}{
		{"one keeps its own", nil, []string{"search"}, []string{"search"}},
		{"one without a name has the capsule's", nil, []string{""}, []string{"cap"}},
		{"several have the capsule's before theirs", nil, []string{"a", "b"}, []string{"cap__a", "cap__b"}},
		{"no prefix", prefix(""), []string{"a", "b"}, []string{"a", "b"}},
		{"another prefix", prefix("db."), []string{"a", "b"}, []string{"db.a", "db.b"}},
		{"another prefix before one", prefix("db."), []string{"a"}, []string{"db.a"}},
		{"another prefix before none", prefix("db."), []string{""}, []string{"cap"}},
		{"all that is allowed", nil, []string{"aZ09_.-"}, []string{"aZ09_.-"}},
		{"what is not", nil, []string{"a b/c:d!"}, []string{"a_b_c_d_"}},
		{"not of ASCII", nil, []string{"größe-世界"}, []string{"gr__e-__"}},
		{"not of UTF-8", nil, []string{"a\xffb"}, []string{"a_b"}},
		{"a prefix that is not", prefix("my tools/"), []string{"a"}, []string{"my_tools_a"}},
		{"64 characters", nil, []string{long[:64]}, []string{long[:64]}},
		{"65 characters", nil, []string{long[:65]}, []string{long[:55] + "_#"}},
		{"65 with the prefix", nil, []string{long[:60], "b"}, []string{"cap__" + long[:50] + "_#", "cap__b"}},
		{"64 with the prefix", nil, []string{long[:59], "b"}, []string{"cap__" + long[:59], "cap__b"}},
		{"64 of them, and more of bytes", nil, []string{strings.Repeat("ü", 64)}, []string{strings.Repeat("_", 64)}},
		{"two that become one", nil, []string{"a b", "a/b"}, []string{"cap__a_b_#", "cap__a_b_#"}},
		{"three that become one", nil, []string{"a b", "a/b", "a_b"}, []string{"cap__a_b_#", "cap__a_b_#", "cap__a_b"}},
		{"two that differ in their case", nil, []string{"read", "Read"}, []string{"cap__read_#", "cap__Read_#"}},
		{"two that differ in it once they fit", nil, []string{"a b", "A_b"}, []string{"cap__a_b_#", "cap__A_b"}},
		{"one that looks like another's hash in its case", nil, []string{"a b", "a_b", "a_b_25C9A7A3"}, []string{"cap__a_b_#", "cap__a_b", "cap__a_b_25C9A7A3"}},
		{"one that looks like another's hash", nil, []string{"a b", "a_b", "a_b_25c9a7a3"}, []string{"cap__a_b_#", "cap__a_b", "cap__a_b_25c9a7a3"}},
		{"two that are long and end otherwise", nil, []string{long + "1", long + "2"}, []string{"cap__" + long[:50] + "_#", "cap__" + long[:50] + "_#"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			tool := manifest.Tool{Name: "cap"}
			tool.Runtime.ToolPrefix = test.prefix
			names := namesOf(tool, test.own)
			seen := map[string]bool{}
			for i, own := range test.own {
				got := names[own]
				if !acceptable.MatchString(got) || seen[strings.ToLower(got)] {
					t.Errorf("%q is called %q, which is bad, or taken", own, got)
				}
				seen[strings.ToLower(got)] = true
				plain, hashed := strings.CutSuffix(test.want[i], "#")
				if !hashed && got != plain || hashed && !regexp.MustCompile("^"+regexp.QuoteMeta(plain)+"[0-9a-f]{8}$").MatchString(got) {
					t.Errorf("%q is called %q, want %q", own, got, test.want[i])
				}
			}
		})
	}
}

// SPEC P3: a prefix that is given holds for an McpServer too: where it runs for all replicas, its tools have their own
// names.
func TestP3AServerUnderItsOwnNames(t *testing.T) {
	none, tool := "", manifest.Tool{Name: "my.server"}
	tool.Runtime.Generated, tool.Runtime.ToolPrefix = true, &none
	for _, own := range [][]string{{"a_b"}, {"a_b", "c.d"}} {
		for name, got := range namesOf(tool, own) {
			if got != name {
				t.Errorf("%q is called %q", name, got)
			}
		}
	}
}

// SPEC-TOOLS 3.5: the tools of an McpServer are SERVER--TOOL, a single one too,
// with - for _ and . in both; two that collide end in a hash.
func TestGeneratedNames(t *testing.T) {
	long := strings.Repeat("n", 70)
	for _, test := range []struct {
		name, server string
		own          []string
		want         []string // one that ends in # is followed by a hash
	}{
		{"one", "files", []string{"read_file"}, []string{"files--read-file"}},
		{"several", "my_own.files", []string{"a.b", "c_d", "e"}, []string{"my-own-files--a-b", "my-own-files--c-d", "my-own-files--e"}},
		{"what MCP does not allow", "s", []string{"a b/c"}, []string{"s--a-b-c"}},
		{"two that collide", "s", []string{"a_b", "a.b"}, []string{"s--a-b-#", "s--a-b-#"}},
		{"one of them is written so", "s_1", []string{"a_b", "a-b"}, []string{"s-1--a-b-#", "s-1--a-b"}},
		{"too long", "s", []string{long}, []string{"s--" + long[:52] + "-#"}},
		{"64 characters", "s", []string{long[:61]}, []string{"s--" + long[:61]}},
	} {
		t.Run(test.name, func(t *testing.T) {
			tool := manifest.Tool{Name: test.server}
			tool.Runtime.Generated = true
			names := namesOf(tool, test.own)
			backwards := slices.Clone(test.own)
			slices.Reverse(backwards)
			again := namesOf(tool, backwards)
			for i, own := range test.own {
				got := names[own]
				plain, hashed := strings.CutSuffix(test.want[i], "#")
				if !hashed && got != plain || hashed && !regexp.MustCompile("^"+regexp.QuoteMeta(plain)+"[0-9a-f]{8}$").MatchString(got) {
					t.Errorf("%q is called %q, want %q", own, got, test.want[i])
				}
				if len(got) > maxName || again[own] != got {
					t.Errorf("%q is called %q, and %q in another order", own, got, again[own])
				}
			}
		})
	}
}

// SPEC-TOOLS 3.5: tool_filter.include leaves the named tools, by the server's own
// names, and one warning of those that it does not have. An original can be
// looked up all the same.
func TestIncludedTools(t *testing.T) {
	var log bytes.Buffer
	tool := server()
	tool.Runtime.Generated, tool.Runtime.Include = true, []string{"read_file", "gone", "gone_too"}
	o := New(tool, nil, nil, slog.New(slog.NewJSONHandler(&log, nil)))
	if _, known := o.Original("read_file"); known {
		t.Error("a tool is known before the server has listed any")
	}
	said := records.Offered{Tools: raws(`{"name":"read_file"}`, `{"name":"write_file","description":"writes"}`)}
	o.Set(said)
	o.Set(said)
	if got := toolNames(o); !slices.Equal(got, []string{"walker--read-file"}) {
		t.Errorf("it offers %q", got)
	}
	if tool, known := o.Original("write_file"); !known || tool == nil || tool.Name != "write_file" || tool.Description != "writes" {
		t.Errorf("the original of what is not included is %+v, %v", tool, known)
	}
	if tool, known := o.Original("walker--read-file"); !known || tool != nil {
		t.Errorf("by a client's name there is the original %+v, %v", tool, known)
	}
	if n := strings.Count(log.String(), `"missing":["gone","gone_too"]`); n != 1 {
		t.Errorf("there are %d warnings of what is missing, want one", n)
	}
}

// SPEC D7: a hash is one of the thing's own name: it stays what it is whatever
// else the capsule offers, and in whatever order.
func TestHashesDoNotDependOnTheOrder(t *testing.T) {
	tool := manifest.Tool{Name: "cap"}
	var own []string
	for i := range 20 {
		own = append(own, strings.Repeat("n", 60)+fmt.Sprint(i))
	}
	give := func(own []string) map[string]string {
		return namesOf(tool, own)
	}
	all := give(own)
	backwards := slices.Clone(own)
	slices.Reverse(backwards)
	for _, others := range [][]string{backwards, own[3:9], append([]string{"more"}, backwards[:5]...)} {
		for o, name := range give(others) {
			if o != "more" && name != all[o] {
				t.Errorf("%q is called %q, and %q beside others", o, name, all[o])
			}
		}
	}
	if name := give([]string{own[0], "x"})[own[0]]; name != "cap__"+strings.Repeat("n", 50)+"_db6f9c15" {
		t.Errorf("in this release it is called %q: clients know it by another name", name)
	}
}

// server is a manifest of an MCP server.
func server() manifest.Tool {
	return manifest.Tool{Name: "walker", Runtime: manifest.Runtime{Handshake: manifest.HandshakeMCP}}
}

// offering returns what a capsule offers that has said something.
func offering(said records.Offered) *Offering {
	o := New(server(), nil, nil, slog.New(slog.DiscardHandler))
	o.Set(said)
	return o
}

func toolNames(o *Offering) (names []string) {
	for _, tool := range o.Current().Tools {
		names = append(names, tool.Name)
	}
	return names
}

func raws(texts ...string) (all []json.RawMessage) {
	for _, text := range texts {
		all = append(all, json.RawMessage(text))
	}
	return all
}

// SPEC D7: tools and prompts are called by the names that clients know, and the
// capsule is asked by its own.
func TestOwnNames(t *testing.T) {
	o := offering(records.Offered{
		Tools:   raws(`{"name":"only"}`),
		Prompts: raws(`{"name":"one"}`, `{"name":"two words"}`, `{"name":""}`, `5`),
	})
	if got := o.OwnTool("only"); got != "only" {
		t.Errorf("the tool is asked for as %q", got)
	}
	var prompts []string
	for _, p := range o.Current().Prompts {
		prompts = append(prompts, p.Name)
	}
	if want := []string{"walker__one", "walker__two_words"}; !slices.Equal(prompts, want) || len(o.Current().Tools) != 1 {
		t.Errorf("it offers the prompts %q and %d tools, want %q", prompts, len(o.Current().Tools), want)
	}
	for _, test := range []struct{ params, want string }{
		{`{"name":"walker__two_words","arguments":{"n":12345678901234567890}}`, `{"name":"two words","arguments":{"n":12345678901234567890}}`},
		{`{"ref":{"type":"ref/prompt","name":"walker__one"}}`, `{"ref":{"name":"one","type":"ref/prompt"}}`},
		{`{"n\u0061me":"walker__\u006fne","x":"<","name":"walker__one"}`, `{"name":"one","x":"<"}`},
		{`{"arguments":{"a":"<\n"}, "name":"unknown"}`, `{"arguments":{"a":"<\n"}, "name":"unknown"}`},
		{`{"ref":{"ref":{"name":"walker__one"}}}`, `{"ref":{"ref":{"name":"walker__one"}}}`}, // only the first one is a reference
		{`{"ref":{"type":"ref/resource","uri":"x:"}}`, `{"ref":{"type":"ref/resource","uri":"x:"}}`},
		{`{"name":"unknown"}`, `{"name":"unknown"}`},
		{`{"name":5}`, `{"name":5}`},
		{`[]`, `[]`},
	} {
		if got := o.OwnPrompt(json.RawMessage(test.params)); string(got) != test.want {
			t.Errorf("%s becomes %s, want %s", test.params, got, test.want)
		}
	}

	large := json.RawMessage(`{"name":"walker__one","arguments":{"a":"` + strings.Repeat("<a ", 1<<20) + `"}}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	own := o.OwnPrompt(large)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; len(own) > len(large) || took > uint64(2*len(large)) {
		t.Errorf("params of %d bytes become %d bytes, and take %d bytes of memory", len(large), len(own), took)
	}

	o = offering(records.Offered{Tools: raws(`{"name":"a b"}`, `{"name":"a b"}`, `{"name":"c"}`, `{"name":""}`, `"x"`), Prompts: raws(`{"name":"one"}`)})
	if got := toolNames(o); !slices.Equal(got, []string{"walker__a_b", "walker__c"}) || o.Current().Prompts[0].Name != "one" {
		t.Errorf("it offers %q and the prompt %q", got, o.Current().Prompts[0].Name)
	}
	if got := o.OwnTool("walker__a_b"); got != "a b" {
		t.Errorf("the tool is asked for as %q", got)
	}
}
