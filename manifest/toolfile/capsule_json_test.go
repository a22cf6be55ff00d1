package toolfile_test

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/manifesttest"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/discover"
)

// packCapsule makes a package with an orla-tool.json, and goes there.
func packCapsule(t *testing.T, capsuleJSON string) {
	t.Helper()
	t.Chdir(t.TempDir())
	manifesttest.Write(t, ".", "orla-tool.json", capsuleJSON, 0o644)
	manifesttest.Write(t, ".", "run.sh", manifesttest.Script, 0o644)
	manifesttest.Write(t, ".", "lib/a", "", 0o644)
}

// SPEC B4: an orla-tool.json is the tool.yaml that the warning tells how to make.
func TestB4CapsuleJSONIsTheSameAsToolYAML(t *testing.T) {
	for name, c := range map[string]struct{ json, yaml string }{
		"what RFC 2 requires": {
			`{"name": "a", "version": "1.0.0", "entrypoint": "run.sh"}`,
			"name: a\nversion: 1.0.0\ndescription: \nentrypoint: run.sh\nruntime: {mode: capsule}\n",
		},
		"every key of RFC 2": {
			`{
	"name": "a", "version": "1.2.3", "entrypoint": "run.sh",
	"language": "python",
	"hot_load": {"watch": ["./", "lib"], "mode": "restart", "debounce_ms": 50},
	"env": {"LOG_LEVEL": "debug", "PATH_\/\ud83d\ude00": "\u00e9"},
	"args": ["--fast"],
	"startup_timeout_ms": 700
}
`,
			`name: a
version: 1.2.3
description:
entrypoint: run.sh
runtime:
  mode: capsule
  hot_load: {watch: [./, lib], mode: restart, debounce_ms: 50}
  env: {LOG_LEVEL: debug, PATH_/😀: é}
  args: [--fast]
  startup_timeout_ms: 700
`,
		},
		"the keys of tool.yaml": {
			`{"name":"a","version":"1.0.0","entrypoint":"run.sh","description":"d","author":"Ada","mcp":{"input_schema":{"q":"string"}},` +
				`"timeout":"1m","max_concurrency":2,"inherit_env":false,"handshake":"mcp","start":"lazy","idle_timeout":60,"drain_ms":1,"stop_grace_ms":2,` +
				`"health":{"interval_ms":9},"restart":{"max_failures":0}}`,
			`name: a
version: 1.0.0
description: d
entrypoint: run.sh
mcp: {input_schema: {q: string}}
runtime:
  mode: capsule
  timeout: 1m
  max_concurrency: 2
  inherit_env: false
  handshake: mcp
  start: lazy
  idle_timeout: 60
  drain_ms: 1
  stop_grace_ms: 2
  health: {interval_ms: 9}
  restart: {max_failures: 0}
`,
		},
		"a byte order mark": {
			"\xef\xbb\xbf{\"name\": \"a\",\r\n \"version\": \"1.0.0\", \"entrypoint\": \"run.sh\"}\r\n",
			"name: a\nversion: 1.0.0\ndescription:\nentrypoint: run.sh\nruntime: {mode: capsule}\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			packCapsule(t, c.json)
			r := discover.Validate(".")
			if len(r.Tools) != 1 || strings.Join(manifesttest.Texts(r), "\n") != "warning orla-tool.json: "+manifesttest.Deprecated || r.Problems[0].Tool != "a" {
				t.Fatalf("got %d tools and the problems %v", len(r.Tools), manifesttest.Texts(r))
			}
			got := r.Tools[0]
			if got.Kind != manifest.Capsule || got.Source != "orla-tool.json" {
				t.Errorf("got a %s from %s", got.Kind, got.Source)
			}

			none := strings.Contains(c.yaml, "description:\n") || strings.Contains(c.yaml, "description: \n")
			text := c.yaml
			if none {
				text = strings.Replace(strings.Replace(c.yaml, "description: \n", "description: d\n", 1), "description:\n", "description: d\n", 1)
			}
			manifesttest.Write(t, ".", "tool.yaml", text, 0o644)
			r = discover.Validate(".")
			if len(r.Tools) != 1 {
				t.Fatalf("tool.yaml: %v", manifesttest.Texts(r))
			}
			want := r.Tools[0]
			if want.Source = "orla-tool.json"; none {
				want.Description = ""
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("orla-tool.json gives\n%+v\ntool.yaml gives\n%+v", got, want)
			}
		})
	}
}

// SPEC A2, B4: tool.yaml replaces orla-tool.json, broken or not.
func TestB4ToolYAMLWinsAndTheWarningSaysSo(t *testing.T) {
	const hidden = "warning %/orla-tool.json: is ignored, since the tool.yaml next to it replaces it (RFC 3); remove it"
	r := search(t, func() {
		for _, dir := range []string{"tools/both", "tools/pack/1.0.0", "tools/broken"} {
			manifesttest.WritePackage(t, dir, filepath.Base(dir), "1.0.0")
			manifesttest.Write(t, dir, "orla-tool.json", "nonsense", 0o644)
		}
		manifesttest.Write(t, "tools", "broken/tool.yaml", "name: [a]\nversion: 1.0.0\ndescription: x\nentrypoint: run.sh\n", 0o644)
		manifesttest.Write(t, "tools", "pack/1.0.0/tool.yaml", "name: pack\nversion: 1.0.0\ndescription: x\nentrypoint: run.sh\n", 0o644)
		manifesttest.Write(t, "tools", "folder/orla-tool.json/run.sh", manifesttest.Script, 0o755)
	})
	manifesttest.Expect(t, r, []string{"both", "pack", "run"}, []string{
		strings.Replace(hidden, "%", "tools/both", 1),
		strings.Replace(hidden, "%", "tools/broken", 1),
		"error tools/broken/tool.yaml: tools/broken/tool.yaml:1:7: name: wants a string, got a list",
		strings.Replace(hidden, "%", "tools/pack/1.0.0", 1),
	})
	manifesttest.Expect(t, discover.Validate("tools/both/orla-tool.json"), []string{"both"}, []string{strings.Replace(hidden, "%", "tools/both", 1)})
}

// SPEC A2: a package is opaque, whichever file describes it.
func TestA2ACapsuleJSONMakesAPackage(t *testing.T) {
	r := search(t, func() {
		manifesttest.Write(t, "tools", "caps/orla-tool.json", `{"name": "caps", "version": "1.0.0", "entrypoint": "run.sh"}`, 0o644)
		manifesttest.Write(t, "tools", "caps/run.sh", manifesttest.Script, 0o644)
		manifesttest.Write(t, "tools", "caps/inner.sh", manifesttest.Script, 0o755)
		manifesttest.Write(t, "tools", "caps/inner/tool.yaml", "x", 0o644)
	})
	manifesttest.Expect(t, r, []string{"caps"}, []string{"warning tools/caps/orla-tool.json: " + manifesttest.Deprecated})
	manifesttest.Expect(t, discover.Validate("tools/caps/orla-tool.json"), []string{"caps"}, []string{"warning tools/caps/orla-tool.json: " + manifesttest.Deprecated})
}

// SPEC B5: what YAML takes and JSON does not is a fault with its place.
func TestB4ACapsuleJSONIsJSON(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "1:1: is not JSON: unexpected end of JSON input",
		"{":                               "1:2: is not JSON: unexpected end of JSON input",
		"{\"name\": \"a\",\n}":            "2:1: is not JSON: invalid character '}' looking for beginning of object key string",
		"{\"name\": \"é\", 'version': 1}": "1:15: is not JSON: invalid character '\\'' looking for beginning of object key string",
		"{}\n// done\n":                   "2:1: is not JSON: invalid character '/' after top-level value",
		"# a comment\n{}":                 "1:1: is not JSON: invalid character '#' looking for beginning of value",
		"{\"a\": 0x10}":                   "1:8: is not JSON: invalid character 'x' after object key:value pair",
		"{\"a\": yes}":                    "1:7: is not JSON: invalid character 'y' looking for beginning of value",
		"{} {}":                           "1:4: is not JSON: invalid character '{' after top-level value",
		"[]":                              "1:1: the top level wants a mapping (key: value), got a list",
		"{\"name\": \"\xff\"}":            "1:11: byte 0xff is not UTF-8; save the file as UTF-8",
		"{\"a\": \"" + strings.Repeat("x", 1<<20): "1:1: the file has 1048577 bytes, more than the 1048576 allowed",
	} {
		packCapsule(t, text)
		r := discover.Validate(".")
		want = "warning orla-tool.json: " + manifesttest.Deprecated + "\nerror orla-tool.json: orla-tool.json:" + want
		if got := strings.Join(manifesttest.Texts(r), "\n"); got != want || len(r.Tools) > 0 {
			t.Errorf("%.30q: got %d tools and\n%s\nwant\n%s", text, len(r.Tools), got, want)
		}
	}
}
