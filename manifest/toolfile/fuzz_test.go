package toolfile

import (
	"encoding/json"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/internal/testing/manifesttest"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/keys"
)

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
		parser, schema := manifesttest.ParserKeys(c.keys, ""), manifesttest.SchemaKeys(object, "")
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

func FuzzParseManifest(f *testing.F) {
	manifesttest.AddSeeds(f, "testdata/good/*.yaml")
	manifesttest.AddSeeds(f, "testdata/bad/*.txtar")
	f.Add([]byte(`{"name":"a","mcp":{"input_schema":{"a":"string","b?":"integer?"}}}`))
	f.Add([]byte("a: &a [*a]\nb: &b {<<: *b}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		tool, d, _ := parseToolYAML("tool.yaml", data)
		manifesttest.Sound(t, tool, d.Doc.Err())
		if tool.Name != "" && !manifest.ValidName(tool.Name) {
			t.Fatalf("name %q", tool.Name)
		}
	})
}

func FuzzCapsuleJSON(f *testing.F) {
	manifesttest.AddSeeds(f, "testdata/bad/capsule_json*.txtar")
	f.Add([]byte(`{"name":"a","version":"1.0.0","entrypoint":"run.sh","hot_load":{"watch":["./"]},"env":{"A":"\u00e9\/"},"drain_ms":1e3}`))
	f.Add([]byte("\xef\xbb\xbf{\n 'a': 1}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := yamldoc.NotJSON("orla-tool.json", data); err != nil {
			manifesttest.Sound(t, manifest.Tool{}, err)
			return
		}
		tool, d, _ := parseCapsuleJSON("orla-tool.json", data)
		manifesttest.Sound(t, tool, d.Doc.Err())
		if tool.Kind != manifest.Capsule || tool.Name != "" && !manifest.ValidName(tool.Name) {
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
			manifesttest.Sound(t, manifest.Tool{}, err)
			return
		}
		if b == nil {
			return
		}
		tool := manifest.Tool{InputSchema: json.RawMessage(keys.AnyObject)}
		_, err = applyBlock(&tool, "a.sh", b.body, b.position)
		manifesttest.Sound(t, tool, err)
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
		case (err != nil || !ok) && !reflect.DeepEqual(i, manifest.Interpreter{}):
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
		_, d, _ := parseToolYAML("f", []byte(text.String()))
		return d.Doc.Err().Error()
	}
	first := faults()
	for range 3 {
		if again := faults(); again != first {
			t.Fatalf("at first\n%s\nand then\n%s", first, again)
		}
	}
}
