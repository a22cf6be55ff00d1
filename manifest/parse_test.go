package manifest

import (
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/regularfile"
	"github.com/orla-project/orla/internal/schema"
	"github.com/orla-project/orla/internal/yamldoc"
)

// keysOf lists the keys that the parser knows, as paths.
func keysOf(t reflect.Type, prefix string) []string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if _, own := reflect.TypeAssert[json.Unmarshaler](reflect.New(t)); own || t.Kind() != reflect.Struct {
		return nil
	}
	var list []string
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous {
			continue
		}
		list = append(append(list, prefix+name), keysOf(f.Type, prefix+name+".")...)
	}
	return list
}

// keysIn lists the keys that a JSON Schema knows, as paths.
func keysIn(object map[string]any, prefix string) []string {
	properties, ok := object["properties"].(map[string]any)
	if !ok {
		return nil
	}
	var list []string
	for name, below := range properties {
		list = append(list, prefix+name)
		if below, ok := below.(map[string]any); ok {
			list = append(list, keysIn(below, prefix+name+".")...)
		}
	}
	return list
}

func TestB6TheSchemasHaveTheParsersKeys(t *testing.T) {
	// Samples that SPEC B1, B2 and B4 name, so that both cannot be wrong together.
	runtime := []string{
		"startup_timeout_ms", "args", "env", "hot_load.watch", "hot_load.ignore", "hot_load.mode", "hot_load.debounce_ms",
		"restart.initial_ms", "restart.max_ms", "restart.max_failures", "restart.reset_after_ms", "drain_ms", "stop_grace_ms", "timeout",
		"handshake", "tool_prefix", "start", "idle_timeout", "health.interval_ms", "health.timeout_ms", "health.failures",
		"max_concurrency", "inherit_env",
	}
	about := []string{
		"name", "version", "description", "entrypoint", "author", "license", "repository", "homepage", "keywords", "dependencies", "permissions",
		"language", "mcp.input_schema", "mcp.output_schema", "mcp.title", "mcp.annotations.readOnlyHint",
	}
	nested := []string{"runtime.mode", "runtime.arguments", "runtime.output", "runtime.max_output"}
	for _, key := range runtime {
		nested = append(nested, "runtime."+key)
	}
	for title, c := range map[string]struct {
		keys   reflect.Type
		schema []byte
		sample []string
	}{
		"tool.yaml":      {reflect.TypeFor[toolYAML](), SchemaJSON(), slices.Concat(about, nested)},
		"orla-tool.json": {reflect.TypeFor[capsuleJSON](), CapsuleSchemaJSON(), slices.Concat(about, runtime)},
	} {
		var object map[string]any
		if err := json.Unmarshal(c.schema, &object); err != nil {
			t.Fatal(err)
		}
		parser, schema := keysOf(c.keys, ""), keysIn(object, "")
		slices.Sort(parser)
		slices.Sort(schema)
		if !slices.Equal(parser, schema) || object["title"] != title {
			t.Errorf("%s: parser %q\nschema of %q %q", title, parser, object["title"], schema)
		}
		for _, key := range c.sample {
			if !slices.Contains(parser, key) {
				t.Errorf("the parser of %s does not know %s", title, key)
			}
		}
	}
}

// The schema of resources has a part for each kind, with the keys of its type.
func TestT11TheResourceSchemaHasTheParsersKeys(t *testing.T) {
	var whole struct {
		OneOf []map[string]any `json:"oneOf"`
	}
	if err := json.Unmarshal(ResourceSchemaJSON(), &whole); err != nil {
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
		parser, schema := keysOf(c.keys, ""), keysIn(whole.OneOf[i], "")
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

// sound checks what holds of every file, whatever is in it.
func sound(t *testing.T, tool Tool, err error) {
	t.Helper()
	if err != nil {
		faults, ok := errors.AsType[yamldoc.Faults](err)
		if !ok {
			t.Fatalf("got %#v, want Faults", err)
		}
		for _, f := range faults {
			if f.Line < 1 || f.Column < 1 || f.Msg == "" {
				t.Fatalf("a fault that points nowhere: %#v", f)
			}
		}
		return
	}
	if _, err := schema.CompileInput(tool.InputSchema); err != nil {
		t.Fatalf("input schema %s: %v", tool.InputSchema, err)
	}
	if tool.OutputSchema == nil {
		return
	}
	if _, err := schema.CompileObject(tool.OutputSchema); err != nil {
		t.Fatalf("output schema %s: %v", tool.OutputSchema, err)
	}
}

func addTestdata(f *testing.F, pattern string) {
	f.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
}

func FuzzParseManifest(f *testing.F) {
	addTestdata(f, "testdata/good/*.yaml")
	addTestdata(f, "testdata/bad/*.txtar")
	f.Add([]byte(`{"name":"a","mcp":{"input_schema":{"a":"string","b?":"integer?"}}}`))
	f.Add([]byte("a: &a [*a]\nb: &b {<<: *b}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		tool, d, _ := parseManifest("tool.yaml", data)
		sound(t, tool, d.doc.Err())
		if tool.Name != "" && !validName(tool.Name) {
			t.Fatalf("name %q", tool.Name)
		}
	})
}

func FuzzResource(f *testing.F) {
	addTestdata(f, "testdata/resources/good/*.yaml")
	addTestdata(f, "testdata/resources/bad/*.txtar")
	f.Add([]byte("{apiVersion: orloj.dev/v1, kind: Tool, metadata: {name: a}, spec: {input_schema: {a: string}, endpoint: 'http://[::1%25a]:1'}}"))
	f.Add([]byte("apiVersion: orloj.dev/v1\nkind: Secret\nmetadata: {name: a}\ndata: {a: *b}\n--- &a [*a]\n...\n"))
	here := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, name := range []string{"a.yaml", "a.json"} {
			list, err := readDeclarations(file{display: name, dir: here}, data)
			sound(t, Tool{InputSchema: json.RawMessage(anyObject)}, err)
			for _, d := range list {
				tool := d.tool
				if tool.Name == "" {
					tool.InputSchema = json.RawMessage(anyObject)
				}
				sound(t, tool, d.doc.Err())
				if err := d.doc.Err(); err == nil {
					soundDeclaration(t, d)
				}
			}
		}
	})
}

// soundDeclaration checks what holds of every resource that is in order.
func soundDeclaration(t *testing.T, d *declaration) {
	t.Helper()
	switch r := d.tool.Resource; {
	case d.name == "" || d.secret.Data != nil:
	case !validName(d.tool.Name), d.tool.Run.Timeout <= 0, d.tool.Retry.MaxAttempts < 1:
		t.Fatalf("%+v", d.tool)
	case r == nil && (d.tool.Kind != Capsule || (d.tool.Path == "") == (d.tool.Runtime.Remote == nil)):
		t.Fatalf("an McpServer that is none: %+v", d.tool)
	case r == nil:
	case d.tool.Kind == Cli:
		soundCLI(t, d.tool)
	case d.tool.Kind == Wasm:
		if w := r.WASM; d.tool.Isolation.Mode != IsolationWASM || w.Module == "" || w.Entrypoint == "" || w.Fuel < 1 || w.MaxMemory < 64<<10 ||
			!w.PullSecret.IsZero() && !strings.HasPrefix(w.Module, "oci://") {
			t.Fatalf("%+v", w)
		}
	case d.tool.Isolation.Mode != IsolationNone, (d.tool.Kind == MCP) == (r.Server == ""), (d.tool.Kind == MCP) != (r.Endpoint == ""),
		r.Auth.IsZero() != r.Auth.Secret.IsZero(), len(r.OperationClasses) == 0:
		t.Fatalf("%+v", r)
	case d.tool.Kind == MCP:
	default:
		if u, err := url.Parse(r.Endpoint); err != nil || u.Hostname() == "" || u.User != nil {
			t.Fatalf("endpoint %q: %v", r.Endpoint, err)
		}
	}
}

func FuzzCapsuleJSON(f *testing.F) {
	addTestdata(f, "testdata/bad/capsule_json*.txtar")
	f.Add([]byte(`{"name":"a","version":"1.0.0","entrypoint":"run.sh","hot_load":{"watch":["./"]},"env":{"A":"\u00e9\/"},"drain_ms":1e3}`))
	f.Add([]byte("\xef\xbb\xbf{\n 'a': 1}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := yamldoc.NotJSON("orla-tool.json", data); err != nil {
			sound(t, Tool{}, err)
			return
		}
		tool, d, _ := parseCapsuleJSON("orla-tool.json", data)
		sound(t, tool, d.doc.Err())
		if tool.Kind != Capsule || tool.Name != "" && !validName(tool.Name) {
			t.Fatalf("a %s called %q", tool.Kind, tool.Name)
		}
	})
}

func FuzzBlock(f *testing.F) {
	f.Add([]byte("#!/bin/sh\n# /// tool\n# timeout: 5\n# mcp:\n#   input_schema: {a: string}\n# ///\n"), 20)
	f.Add([]byte("\xef\xbb\xbf// /// tool\r\n//title: x\r\n// ///"), 3)
	f.Add([]byte("/* x */\n-- /// tool\n-- runtime: {output: mcp}\n-- output: mcp\n"), 0)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		b, unsure, err := findBlock("a.sh", data, true)
		if unsure {
			t.Fatal("unsure of a whole file")
		}
		// What is found in part of a file for certain, the whole file has.
		if cut > 0 && cut < len(data) {
			part, unsure, perr := findBlock("a.sh", data[:cut], false)
			if !unsure && ((perr == nil) != (err == nil) || !reflect.DeepEqual(part, b)) {
				t.Fatalf("cut at %d: %+v, %v; whole: %+v, %v", cut, part, perr, b, err)
			}
		}
		if err != nil {
			sound(t, Tool{}, err)
			return
		}
		if b == nil {
			return
		}
		tool := Tool{InputSchema: json.RawMessage(anyObject)}
		_, err = applyBlock(&tool, "a.sh", b.body, b.position)
		sound(t, tool, err)
	})
}

func FuzzShebang(f *testing.F) {
	for _, line := range []string{"#!/bin/sh -e\r\n", "#!/usr/bin/env -S A=1 python3 -u", "#!/usr/bin/env python3", "\xef\xbb\xbf#! /usr/bin/env -S \"a b\"", "#!", "x"} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		i, ok, err := ParseShebang(line)
		switch {
		case err == nil && ok && i.Name == "":
			t.Fatalf("%q: no name", line)
		case (err != nil || !ok) && !reflect.DeepEqual(i, Interpreter{}):
			t.Fatalf("%q: %+v beside %v, %v", line, i, ok, err)
		case i.Path != "" && filepath.IsAbs(i.Path) == i.Local:
			t.Fatalf("%q: path %q", line, i.Path)
		}
		for _, arg := range slices.Concat([]string{i.Name, i.Path}, i.Args, i.Env) {
			if strings.ContainsAny(arg, "\x00\n") {
				t.Fatalf("%q: %+v holds what no argument can", line, i)
			}
		}
	})
}

// Faults that are logged when they are new must be the same each time.
func TestTheSameFileHasTheSameFaults(t *testing.T) {
	var text strings.Builder
	text.WriteString("name: x\nversion: 1.0.0\ndescription: d\nentrypoint: x\nruntime:\n  env:\n")
	for i := range 300 {
		text.WriteString(`    "a=` + strconv.Itoa(i) + "\": x\n")
	}
	faults := func() string {
		_, d, _ := parseManifest("f", []byte(text.String()))
		return d.doc.Err().Error()
	}
	first := faults()
	for range 3 {
		if again := faults(); again != first {
			t.Fatalf("at first\n%s\nand then\n%s", first, again)
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
func soundCLI(t *testing.T, tool Tool) {
	t.Helper()
	cli, at := tool.Resource.CLI, tool.Isolation
	for _, word := range []string{cli.Command, cli.WorkingDir, at.Image, at.Network} {
		if strings.HasPrefix(word, "-") || strings.ContainsFunc(word, isControl) {
			t.Fatalf("%q in %+v %+v", word, cli, at)
		}
	}
	if cli.Command == "" || at.Mode == "" || at.Mode == IsolationWASM || strings.ContainsAny(at.Image+at.Network, " ,=") ||
		at.Image == "" && (at.Mode == IsolationContainer || at.Mode == IsolationKubernetes) ||
		at.Mode == IsolationNone && at.Resources != (Resources{}) || at.Network != "" && at.Mode != IsolationContainer ||
		tool.Path != "" && !regularfile.Within(tool.Dir, tool.Path) || cli.WorkingDir != "" && !filepath.IsAbs(cli.WorkingDir) {
		t.Fatalf("%+v %+v", cli, at)
	}
}
