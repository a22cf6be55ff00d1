package resource

import (
	"encoding/json"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/testing/manifesttest"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/keys"
)

// The schema of resources has a part for each kind, with the keys of its type.
func TestT11TheResourceSchemaHasTheParsersKeys(t *testing.T) {
	var whole struct {
		OneOf []map[string]any `json:"oneOf"`
	}
	if err := json.Unmarshal(SchemaJSON(), &whole); err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		keys   reflect.Type
		sample []string // of SPEC-TOOLS 1.2, 3.5 and 5.1, so that both cannot be wrong together
	}{
		{reflect.TypeFor[toolResource](), []string{
			"metadata.namespace", "spec.type", "spec.endpoint", "spec.capabilities", "spec.operation_classes", "spec.risk_level", "spec.runtime.timeout",
			"spec.runtime.isolation_mode", "spec.runtime.retry.max_attempts", "spec.runtime.retry.jitter", "spec.auth.profile", "spec.auth.secretRef",
			"spec.auth.headerName", "spec.auth.tokenURL", "spec.auth.scopes", "spec.mcp_server_ref", "spec.mcp_tool_name", "spec.cli.command",
			"spec.cli.env_from", "spec.cli.stdin_from_input", "spec.cli.resources.pids_limit", "spec.wasm.module", "spec.wasm.max_memory_bytes",
			"spec.wasm.enable_wasi", "spec.input_schema", "spec.output_schema", "spec.description",
		}},
		{reflect.TypeFor[serverResource](), []string{
			"spec.transport", "spec.command", "spec.args", "spec.env", "spec.endpoint", "spec.auth.secretRef", "spec.tool_filter.include",
			"spec.reconnect.max_attempts", "spec.reconnect.backoff", "spec.idle_timeout", "spec.default_tool_runtime.retry.backoff",
		}},
		{reflect.TypeFor[secretResource](), []string{"spec.data", "spec.stringData", "stringData"}},
	} {
		parser, schema := manifesttest.ParserKeys(c.keys, ""), manifesttest.SchemaKeys(whole.OneOf[i], "")
		slices.Sort(parser)
		slices.Sort(schema)
		if !slices.Equal(parser, schema) {
			t.Errorf("%s: parser %q\nschema %q", c.keys, parser, schema)
		}
		for _, key := range c.sample {
			if !slices.Contains(parser, key) {
				t.Errorf("the parser of %s does not know %s", c.keys, key)
			}
		}
	}
}

func FuzzResource(f *testing.F) {
	manifesttest.AddSeeds(f, "testdata/good/*.yaml")
	manifesttest.AddSeeds(f, "testdata/bad/*.txtar")
	f.Add([]byte("{apiVersion: orloj.dev/v1, kind: Tool, metadata: {name: a}, spec: {input_schema: {a: string}, endpoint: 'http://[::1%25a]:1'}}"))
	f.Add([]byte("apiVersion: orloj.dev/v1\nkind: Secret\nmetadata: {name: a}\ndata: {a: *b}\n--- &a [*a]\n...\n"))
	here := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, name := range []string{"a.yaml", "a.json"} {
			list, _, err := Parse(File{Display: name, Dir: here}, data)
			manifesttest.Sound(t, manifest.Tool{InputSchema: json.RawMessage(keys.AnyObject)}, err)
			for _, d := range list {
				tool := d.Tool
				if tool.Name == "" {
					tool.InputSchema = json.RawMessage(keys.AnyObject)
				}
				manifesttest.Sound(t, tool, d.Doc.Err())
				if err := d.Doc.Err(); err == nil {
					soundDeclaration(t, d)
				}
			}
		}
	})
}

// soundDeclaration checks what holds of every resource that is in order.
func soundDeclaration(t *testing.T, d *Declaration) {
	t.Helper()
	switch r := d.Tool.Resource; {
	case d.Name == "" || d.Secret.Data != nil:
	case !manifest.ValidName(d.Tool.Name), d.Tool.Run.Timeout <= 0, d.Tool.Retry.MaxAttempts < 1:
		t.Fatalf("%+v", d.Tool)
	case r == nil && (d.Tool.Kind != manifest.Capsule || (d.Tool.Path == "") == (d.Tool.Runtime.Remote == nil)):
		t.Fatalf("an McpServer that is none: %+v", d.Tool)
	case r == nil:
	case d.Tool.Kind == manifest.Cli:
		soundCLI(t, d.Tool)
	case d.Tool.Kind == manifest.Wasm:
		if w := r.WASM; d.Tool.Isolation.Mode != manifest.IsolationWASM || w.Module == "" || w.Entrypoint == "" || w.Fuel < 1 || w.MaxMemory < 64<<10 ||
			!w.PullSecret.IsZero() && !strings.HasPrefix(w.Module, "oci://") {
			t.Fatalf("%+v", w)
		}
	case d.Tool.Isolation.Mode != manifest.IsolationNone, (d.Tool.Kind == manifest.MCP) == (r.Server == ""), (d.Tool.Kind == manifest.MCP) != (r.Endpoint == ""),
		r.Auth.IsZero() != r.Auth.Secret.IsZero(), len(r.OperationClasses) == 0:
		t.Fatalf("%+v", r)
	case d.Tool.Kind == manifest.MCP:
	default:
		if u, err := url.Parse(r.Endpoint); err != nil || u.Hostname() == "" || u.User != nil {
			t.Fatalf("endpoint %q: %v", r.Endpoint, err)
		}
	}
}

// What is passed by unread is data for certain, and most data is.
func TestT11WhatMayHoldResources(t *testing.T) {
	for head, want := range map[string]bool{
		"apiVersion: orloj.dev/v1":    true,
		"# hello\nkind: Tool\n":       true,
		"kind: \"Secret\" # it is":    true,
		"'kind' : McpServer":          true,
		"\ufeffkind: AgentRole":       true,
		"---\nkind: Tool":             true,
		"a: b\r\nkind: Tool\r\n":      true,
		"# a\n--- {a: b, kind: Tool}": true,
		`{"a": {"kind": "Tool"}}`:     true, // mayDeclare knows better
		"kind: Toolbox":               false,
		"kind: Tools":                 false,
		"items:\n  kind: Tool":        false,
		"items:\n- kind: Tool":        false,
		"mankind: Tool":               false,
		"kind Tool":                   false,
		"":                            false,
		"kind":                        false,
		"kind:":                       false,
		"a kind: Tool is what this text is all about": false,
	} {
		if got := mayHold([]byte(head)); got != want {
			t.Errorf("%q: got %v", head, got)
		}
	}
	for text, want := range map[string]bool{
		`{"kind": 1}`: true, `{"apiVersion": "a"}`: true, `{`: true, "\ufeff{\"kind\": 1}": true,
		`{"a": {"kind": "Tool"}}`: false, `[{"kind": "Tool"}]`: false, `1`: false,
	} {
		if got := mayDeclare([]byte(text)); got != want {
			t.Errorf("%q: got %v", text, got)
		}
	}
}

// soundCLI checks what holds of every tool of type cli that is in order: nothing of
// it can be taken for an option of the engine that runs it.
func soundCLI(t *testing.T, tool manifest.Tool) {
	t.Helper()
	cli, at := tool.Resource.CLI, tool.Isolation
	for _, word := range []string{cli.Command, cli.WorkingDir, at.Image, at.Network} {
		if strings.HasPrefix(word, "-") || strings.ContainsFunc(word, isControl) {
			t.Fatalf("%q in %+v %+v", word, cli, at)
		}
	}
	if cli.Command == "" || at.Mode == "" || at.Mode == manifest.IsolationWASM || strings.ContainsAny(at.Image+at.Network, " ,=") ||
		at.Image == "" && (at.Mode == manifest.IsolationContainer || at.Mode == manifest.IsolationKubernetes) ||
		at.Mode == manifest.IsolationNone && at.Resources != (manifest.Resources{}) || at.Network != "" && at.Mode != manifest.IsolationContainer ||
		tool.Path != "" && !regularfile.Within(tool.Dir, tool.Path) || cli.WorkingDir != "" && !filepath.IsAbs(cli.WorkingDir) {
		t.Fatalf("%+v %+v", cli, at)
	}
}
