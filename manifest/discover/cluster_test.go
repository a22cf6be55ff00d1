package discover_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/manifesttest"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/discover"
)

// text is a custom resource as JSON.
func text(kind, name, spec string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"orloj.dev/v1","kind":%q,"metadata":{"name":%q,"namespace":"ops"},"spec":%s}`, kind, name, spec)
}

// document is a custom resource.
func document(dir, kind, name, spec string) *discover.Document {
	return documentOf(dir, kind+"/"+name, kind != "Tool" && kind != "McpServer", text(kind, name, spec))
}

// documentOf is a custom resource with any text.
func documentOf(dir, source string, rule bool, text []byte) *discover.Document {
	d := &discover.Document{Source: source, Dir: dir, Rule: rule}
	d.Set(text)
	return d
}

// only returns the problems of one path.
func only(r manifest.Result, path string) (list []manifest.Problem) {
	for _, p := range r.Problems {
		if p.Path == path {
			list = append(list, p)
		}
	}
	return list
}

// SPEC P2: a command that Orla's image does not have cannot be installed there, so the error says what to do in a cluster.
func TestP2AnAbsentCommandOfACluster(t *testing.T) {
	dir := t.TempDir()
	c := &discover.Cluster{Documents: []*discover.Document{document(dir, "McpServer", "files", `{"transport":"stdio","command":"no-such-command"}`)}}
	r := discover.Tools(discover.Options{ToolsDir: dir, Cluster: c})
	const want = `McpServer/files: spec.command: "no-such-command" is not in PATH of Orla; use an isolation_mode with an image, or transport http`
	if got := only(r, "McpServer/files"); len(got) != 1 || got[0].Err.Error() != want {
		t.Errorf("%v, want %s", manifesttest.Texts(r), want)
	}
}

// SPEC P2: a faulty resource among a thousand affects no other one, and its messages name it, without lines.
func TestP2AFaultyResourceAmongMany(t *testing.T) {
	c, dir := &discover.Cluster{}, t.TempDir()
	for i := range 1000 {
		c.Documents = append(c.Documents, document(dir, "Tool", fmt.Sprint("t", i), `{"endpoint":"http://127.0.0.1/x","auth":{"secretRef":"key"}}`))
	}
	c.Documents = append(c.Documents, document(dir, "Tool", "faulty", `{"endpiont":"x"}`), &discover.Document{Source: "Tool/large", Fault: errors.New("is too large")})
	absent := filepath.Join(t.TempDir(), "tools")
	r := discover.Tools(discover.Options{ToolsDir: absent, Cluster: c})
	if len(r.Tools) != 1000 || len(r.Problems) != 2 {
		t.Fatalf("%d tools; problems %v", len(r.Tools), manifesttest.Texts(r))
	}
	if got := only(r, "Tool/faulty")[0]; got.Tool != "faulty" || got.Denies || !strings.HasPrefix(got.Err.Error(), "Tool/faulty: spec.endpi") {
		t.Errorf("%+v", got)
	}
	if got := r.Tools[0]; got.Source != "Tool/t0" || got.Resource.Auth.Secret.Namespace != "ops" {
		t.Errorf("%+v", got)
	}
}

// SPEC P2: after a change of one resource only that one is read again; what depends on files of this machine always is.
func TestP2OnlyWhatChangedIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	c := &discover.Cluster{}
	all := func() {
		c.Documents = nil
		for i := range 200 {
			c.Documents = append(c.Documents, document(dir, "Tool", fmt.Sprint("t", i), `{"endpoint":"http://127.0.0.1/x","description":"old"}`))
		}
		c.Documents = append(c.Documents, document(dir, "McpServer", "process", `{"transport":"stdio","command":"./server.sh"}`))
	}
	find := func() (descriptions map[string]string) {
		descriptions = map[string]string{}
		for _, tool := range discover.Tools(discover.Options{ToolsDir: dir, Cluster: c}).Tools {
			descriptions[tool.Name] = tool.Description
		}
		return descriptions
	}
	first := testing.AllocsPerRun(1, func() { all(); find() })
	if got := find(); len(got) != 200 {
		t.Fatalf("%d tools", len(got))
	}
	c.Documents[7] = document(dir, "Tool", "t7", `{"endpoint":"http://127.0.0.1/x","description":"new"}`)
	if err := os.WriteFile(filepath.Join(dir, "server.sh"), []byte("#!/bin/sh\n"), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	if got := find(); len(got) != 201 || got["t7"] != "new" || got["t8"] != "old" {
		t.Errorf("%d tools, %q, %q", len(got), got["t7"], got["t8"])
	}
	if again := testing.AllocsPerRun(1, func() { find() }); again > first/10 {
		t.Errorf("%v allocations, and %v when all is new", again, first)
	}
	c.Documents = c.Documents[:100]
	if got := find(); len(got) != 101 {
		t.Errorf("%d tools are left", len(got))
	}
}

// SPEC P2: what is remembered of a resource in place of its text is all that it says.
func TestP2NothingIsForgottenOfAResource(t *testing.T) {
	dir := t.TempDir()
	c := &discover.Cluster{}
	for name, document := range map[string]*discover.Document{
		"http":     document(dir, "Tool", "http", `{"endpoint":"http://127.0.0.1/x","description":"d","input_schema":{"city":"string"},"auth":{"secretRef":"key"}}`),
		"all":      document(dir, "Tool", "all", `{"endpoint":"http://127.0.0.1/x","risk_level":"high","capabilities":["a.b"],"operation_classes":["read"],"output_schema":{"type":"object"},"runtime":{"timeout":"3s","retry":{"max_attempts":3}}}`),
		"mcp":      document(dir, "Tool", "mcp", `{"type":"mcp","mcp_server_ref":"remote","mcp_tool_name":"x"}`),
		"nowhere":  document(dir, "Tool", "nowhere", `{"type":"mcp","mcp_server_ref":"gone","mcp_tool_name":"x"}`),
		"remote":   document(dir, "McpServer", "remote", `{"transport":"http","endpoint":"http://127.0.0.1/mcp"}`),
		"process":  document(dir, "McpServer", "process", `{"transport":"stdio","command":"sh"}`),
		"external": document(dir, "Tool", "external", `{"type":"external","endpoint":"http://127.0.0.1/x"}`),
		"hook":     document(dir, "Tool", "hook", `{"type":"webhook-callback","endpoint":"http://127.0.0.1/x"}`),
		"faulty":   document(dir, "Tool", "faulty", `{"endpiont":"x"}`),
		"cli":      document(dir, "Tool", "cli", `{"type":"cli","cli":{"command":"sh"},"runtime":{"isolation_mode":"none"}}`),
		"policy":   document(dir, "AgentPolicy", "policy", `{"apply_mode":"global","blocked_tools":["x"]}`),
	} {
		c.Documents = []*discover.Document{document}
		find := func() manifest.Result { return discover.Tools(discover.Options{ToolsDir: dir, Cluster: c}) }
		first, texts := find(), ""
		for range 2 {
			again := find()
			texts = fmt.Sprint(manifesttest.Texts(again))
			if !reflect.DeepEqual(again, first) || len(again.Tools)+len(again.Problems)+len(again.Rules.Policies) == 0 {
				t.Errorf("%s: first %+v\nthen  %+v", name, first, again)
			}
		}
		if (name == "faulty" || name == "nowhere" || name == "mcp" || name == "all") != (len(first.Problems) > 0) {
			t.Errorf("%s: %s", name, texts)
		}
	}
}

// SPEC P2: a process that a custom resource describes is known as such, with its command as it is written there.
func TestP2AServerOfAClusterIsKnownAsSuch(t *testing.T) {
	tools := t.TempDir()
	text := "apiVersion: orloj.dev/v1\nkind: McpServer\nmetadata: {name: filed}\nspec: {transport: stdio, command: sh}\n"
	if err := os.WriteFile(filepath.Join(tools, "server.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := discover.Tools(discover.Options{ToolsDir: tools, Cluster: &discover.Cluster{Documents: []*discover.Document{
		document(tools, "McpServer", "process", `{"transport":"stdio","command":"sh"}`),
		document(tools, "McpServer", "remote", `{"transport":"http","endpoint":"http://127.0.0.1/mcp"}`),
	}}})
	want := map[string]string{"filed": "", "process": "sh", "remote": ""}
	if len(r.Tools) != len(want) {
		t.Fatalf("%d tools; problems %v", len(r.Tools), manifesttest.Texts(r))
	}
	for _, tool := range r.Tools {
		if got := tool.Runtime.FromCluster; got != want[tool.Name] {
			t.Errorf("%s: %q, want %q", tool.Name, got, want[tool.Name])
		}
	}
}

// SPEC P2: what is in the project's folder serves before a resource of its name, and both before the user's. A path is
// relative to the folder of the resources.
func TestP2ResourcesNextToFolders(t *testing.T) {
	tools, user := t.TempDir(), t.TempDir()
	write := func(dir, name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil { //nolint:gosec // programs
			t.Fatal(err)
		}
	}
	write(tools, "both", "#!/bin/sh\n")
	write(tools, "server.sh", "#!/bin/sh\n")
	write(user, "mine", "#!/bin/sh\n")
	r := discover.Tools(discover.Options{ToolsDir: tools, UserDir: user, Cluster: &discover.Cluster{Documents: []*discover.Document{
		document(tools, "McpServer", "server", `{"transport":"stdio","command":"./server.sh"}`),
		document(tools, "Tool", "both", `{"endpoint":"http://127.0.0.1/x"}`),
		document(tools, "Tool", "mine", `{"endpoint":"http://127.0.0.1/x"}`),
	}}})
	var sources []string
	for _, tool := range r.Tools {
		sources = append(sources, tool.Name+"="+strings.TrimPrefix(tool.Source, tools+"/"))
	}
	if got, want := strings.Join(sources, " "), "both=both mine=Tool/mine server=McpServer/server"; got != want {
		t.Errorf("got %s; want %s; problems %v", got, want, manifesttest.Texts(r))
	}
	if got := only(r, "Tool/both"); len(got) != 1 || !strings.Contains(got[0].Err.Error(), "conflict") {
		t.Errorf("problems %v", manifesttest.Texts(r))
	}
}

// SPEC P2: a rule that is faulty, too large or not known denies every call, and one that is right is in force.
func TestP2RulesOfAClusterFailClosed(t *testing.T) {
	for name, c := range map[string]struct {
		cluster discover.Cluster
		denies  bool
	}{
		"right":     {discover.Cluster{Documents: []*discover.Document{document("", "AgentPolicy", "a", `{"apply_mode":"global","blocked_tools":["x"]}`)}}, false},
		"faulty":    {discover.Cluster{Documents: []*discover.Document{document("", "AgentPolicy", "a", `{"blocked_tools":["x"]}`)}}, true},
		"too large": {discover.Cluster{Documents: []*discover.Document{{Source: "AgentRole/a", Rule: true, Fault: errors.New("has 2 MB")}}}, true},
		"no JSON":   {discover.Cluster{Documents: []*discover.Document{documentOf("", "AgentRole/a", true, []byte("{"))}}, true},
		"not known": {discover.Cluster{Problems: []manifest.Problem{{Path: "kubernetes/agentroles", Severity: manifest.Fault, Err: errors.New("forbidden"), Denies: true}}}, true},
		"a tool":    {discover.Cluster{Documents: []*discover.Document{documentOf("", "Tool/a", false, []byte("{"))}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := discover.Tools(discover.Options{ToolsDir: t.TempDir(), Cluster: &c.cluster})
			denies := len(r.Problems) > 0 && r.Problems[0].Denies
			if denies != c.denies || !c.denies && name == "right" && len(r.Rules.Policies) != 1 {
				t.Errorf("denies: %v; problems %v; rules %+v", denies, manifesttest.Texts(r), r.Rules)
			}
		})
	}
}

// BenchmarkOneThousandResources compares resources of a cluster with files of a folder.
func BenchmarkOneThousandResources(b *testing.B) {
	c, dir, none := &discover.Cluster{}, b.TempDir(), b.TempDir()
	fill := func() {
		c.Documents = nil
		for i := range 1000 {
			c.Documents = append(c.Documents, document(none, "Tool", fmt.Sprint("t", i), oneOfMany))
		}
	}
	for i := range 1000 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("t", i, ".json")), text("Tool", fmt.Sprint("t", i), oneOfMany), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	cluster := discover.Options{ToolsDir: none, Cluster: c}
	for name, one := range map[string]struct {
		before  func()
		options discover.Options
	}{"cluster": {fill, cluster}, "again": {func() {}, cluster}, "folder": {func() {}, discover.Options{ToolsDir: dir}}} {
		fill()
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				one.before()
				if r := discover.Tools(one.options); len(r.Tools) != 1000 {
					b.Fatal(manifesttest.Texts(r))
				}
			}
		})
	}
}

const oneOfMany = `{"endpoint":"http://127.0.0.1/x","description":"Says something.","input_schema":{"city":"string"},"auth":{"secretRef":"key"}}`
