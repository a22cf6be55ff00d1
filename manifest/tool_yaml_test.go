package manifest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/orla-project/orla/internal/schema"
	"github.com/orla-project/orla/internal/yamldoc"
	"github.com/orla-project/orla/manifest"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestB1B2GoodManifests(t *testing.T) {
	files, err := filepath.Glob("testdata/good/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no testdata: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "tool.yaml", string(read(t, file)), 0o644)
			write(t, dir, "run.sh", "#!/bin/sh\n", 0o644)
			for _, watched := range []string{"src/a", "lib/a"} {
				write(t, dir, watched, "", 0o644)
			}
			r := manifest.Validate(dir)
			if len(r.Problems) > 0 || len(r.Tools) != 1 {
				t.Fatalf("got %d tools and the problems %v", len(r.Tools), texts(r))
			}
			got, err := json.MarshalIndent(r.Tools[0], "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			real, err := filepath.EvalSymlinks(dir)
			if err != nil {
				t.Fatal(err)
			}
			got = bytes.ReplaceAll(got, []byte(real), []byte("PACKAGE"))
			got = append(bytes.ReplaceAll(got, []byte(dir), []byte("PACKAGE")), '\n')
			golden := strings.TrimSuffix(file, ".yaml") + ".json"
			if *update {
				write(t, ".", golden, string(got), 0o644)
			}
			if want := read(t, golden); !bytes.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestB5BadManifests(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no testdata: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			t.Chdir(dir)
			want := map[string]string{}
			for _, f := range archive.Files {
				if f.Name == "faults" || f.Name == "warnings" {
					want[f.Name] = strings.TrimSpace(string(f.Data))
					continue
				}
				write(t, dir, f.Name, string(f.Data), 0o644)
			}
			r := manifest.Validate(".")
			last := len(r.Problems) - 1
			if len(r.Tools) != 0 || last < 0 || r.Problems[last].Severity != manifest.Fault {
				t.Fatalf("got %d tools and the problems %v, want one fault", len(r.Tools), texts(r))
			}
			if got := r.Problems[last].Err.Error(); got != want["faults"] {
				t.Errorf("got\n%s\nwant\n%s", got, want["faults"])
			}
			if _, ok := errors.AsType[yamldoc.Fault](r.Problems[last].Err); !ok {
				t.Errorf("the problem does not unwrap to its faults: %#v", r.Problems[last].Err)
			}
			warnings := manifest.Result{Problems: r.Problems[:last]}
			if got := strings.Join(texts(warnings), "\n"); got != want["warnings"] {
				t.Errorf("got the warnings\n%s\nwant\n%s", got, want["warnings"])
			}
		})
	}
}

func TestB1SemVerIsWhole(t *testing.T) {
	for version, good := range map[string]bool{
		"1.2.3": true, "0.0.0": true, "1.0.0-rc.1": true, "1.0.0+a.b": true, "1.0.0-x-y+z": true,
		"1": false, "1.2": false, "v1.2.3": false, "01.2.3": false, "1.2.3-": false, "1.2.3-01": false, "1.2.3.4": false, "latest": false, "1-a.b.c": false,
	} {
		dir := pack(t, "name: a\nversion: "+version+"\ndescription: x\nentrypoint: run.sh\n")
		if got := len(manifest.Validate(dir).Tools) == 1; got != good {
			t.Errorf("%s: taken %v, want %v", version, got, good)
		}
	}
}

func TestB1TheEntrypointStaysInsideAfterLinks(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "evil.sh")
	write(t, filepath.Dir(outside), "evil.sh", "#!/bin/sh\n", 0o755)
	dir := pack(t, "name: a\nversion: 1.0.0\ndescription: x\nentrypoint: bin/out\n")
	write(t, dir, "bin/in.sh", "#!/bin/sh\n", 0o755)
	for target, good := range map[string]bool{outside: false, "in.sh": true, "../bin/in.sh": true, "../../x": false} {
		link := filepath.Join(dir, "bin", "out")
		if err := os.RemoveAll(link); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		r := manifest.Validate(dir)
		if got := len(r.Tools) == 1; got != good {
			t.Errorf("link to %s: taken %v, want %v: %v", target, got, good, texts(r))
		}
	}
}

func TestB3ShortFormOrJSONSchema(t *testing.T) {
	for name, c := range map[string]struct{ yaml, want string }{
		"types alone are the short form": {
			`{path: string, limit: "integer?"}`,
			`{"type":"object","properties":{"path":{"type":"string"},"limit":{"type":"integer"}},"required":["path"],"additionalProperties":false}`,
		},
		"all may be left out": {
			`{path: "string?"}`,
			`{"type":"object","properties":{"path":{"type":"string"}},"additionalProperties":false}`,
		},
		"type: object is JSON Schema": {
			"{type: object}", `{"type":"object"}`,
		},
		"type: string is an argument called type": {
			"{type: string}", `{"type":"object","properties":{"type":{"type":"string"}},"required":["type"],"additionalProperties":false}`,
		},
		"arguments may be called as keywords are": {
			"{title: string, items: array}",
			`{"type":"object","properties":{"title":{"type":"string"},"items":{"type":"array"}},"required":["title","items"],"additionalProperties":false}`,
		},
		"a keyword's value that is no type is JSON Schema": {
			"{title: My arguments, additionalProperties: false}",
			`{"type":"object","title":"My arguments","additionalProperties":false}`,
		},
		"properties alone are JSON Schema": {
			"{properties: {path: {type: string}}}",
			`{"type":"object","properties":{"path":{"type":"string"}}}`,
		},
		"a reference is JSON Schema": {
			"{$ref: '#/$defs/a', $defs: {a: {required: [b]}}}",
			`{"type":"object","$ref":"#/$defs/a","$defs":{"a":{"required":["b"]}}}`,
		},
		"an argument with a default may be left out": {
			"{n: {type: integer, default: 1.50}}",
			`{"type":"object","properties":{"n":{"type":"integer","default":1.50}},"additionalProperties":false}`,
		},
		"names are quoted as JSON wants": {
			`{"a\x7f\"<": string}`,
			`{"type":"object","properties":{"a` + "\x7f" + `\"\u003c":{"type":"string"}},"required":["a` + "\x7f" + `\"\u003c"],"additionalProperties":false}`,
		},
		"an empty mapping is any object": {"{}", `{"type":"object"}`},
	} {
		t.Run(name, func(t *testing.T) {
			r := manifest.Validate(pack(t, "name: a\nversion: 1.0.0\ndescription: x\nentrypoint: run.sh\nmcp: {input_schema: "+c.yaml+"}\n"))
			if len(r.Tools) != 1 {
				t.Fatalf("problems %v", texts(r))
			}
			if got := string(r.Tools[0].InputSchema); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if _, err := schema.CompileInput(r.Tools[0].InputSchema); err != nil {
				t.Error(err)
			}
		})
	}
}

const idleRetry = "has no effect on a call that was sent, as the tool is annotated neither readOnlyHint nor idempotentHint: a second attempt could do its work twice"

func TestB2KeysWithoutEffectAreWarnedOf(t *testing.T) {
	for runtime, want := range map[string]string{
		"{hot_load: {}}":               "tool.yaml:5:11: runtime.hot_load: has no effect without runtime.mode: capsule",
		"{drain_ms: 1}":                "tool.yaml:5:21: runtime.drain_ms: has no effect without runtime.mode: capsule",
		"{mode: capsule, output: mcp}": "tool.yaml:5:34: runtime.output: has no effect on a capsule",
		"{mode: capsule, timeout: 1, env: {}, tool_prefix: a}":                 "",
		"{mode: capsule, hot_load: {debounce_ms: 2000}}":                       "",
		"{retry: {max_attempts: 1}}":                                           "",
		"{mode: capsule, retry: {max_attempts: 2}}":                            "", // its tools are annotated one by one
		"{retry: {max_attempts: 2}}\nmcp: {annotations: {readOnlyHint: true}}": "",
		"{retry: {max_attempts: 2}}":                                           "tool.yaml:5:11: runtime.retry: " + idleRetry,
		"{mode: capsule, retry: {max_attempts: 2}}\nmcp: {}":                   "tool.yaml:5:26: runtime.retry: " + idleRetry,
		"{mode: capsule, hot_load: {debounce_ms: 2001}}":                       "tool.yaml:5:50: runtime.hot_load.debounce_ms: has the effect of 2000: no change waits longer for its reload",
		"{mode: capsule, tool_prefix: a}\nmcp: {}":                             "tool.yaml:5:39: runtime.tool_prefix: has no effect beside mcp, which makes the capsule one tool called as it is",
		"{mode: capsule, hot_load: {watch: [run.sh, src]}}":                    `tool.yaml:5:53: runtime.hot_load.watch[1]: "src" does not exist in the package; nothing is watched there until it does`,
	} {
		dir := pack(t, "name: a\nversion: 1.0.0\ndescription: x\nentrypoint: run.sh\nruntime: "+runtime+"\n")
		t.Chdir(dir)
		r := manifest.Validate(".")
		got := ""
		for _, p := range r.Problems {
			got += p.Err.Error()
		}
		if got != want || len(r.Tools) != 1 {
			t.Errorf("%s: got %d tools and %q, want %q", runtime, len(r.Tools), got, want)
		}
	}
}

// SPEC D11: the longest stop fits into the supervisor's budget for one, which is 20 s.
func TestD11TheLongestStopFitsTheStopBudget(t *testing.T) {
	if manifest.MaxStop+time.Second > 20*time.Second {
		t.Errorf("%s is too long", manifest.MaxStop)
	}
}

// SPEC E1: what is watched is the package's own, after links are resolved.
func TestE1WatchedPathsStayInsideAfterLinks(t *testing.T) {
	outside := t.TempDir()
	dir := pack(t, "name: a\nversion: 1.0.0\ndescription: x\nentrypoint: run.sh\nruntime: {mode: capsule, hot_load: {watch: [src]}}\n")
	write(t, dir, "lib/a", "", 0o644)
	for target, good := range map[string]bool{outside: false, "lib": true, "lib/a": true, "..": false} {
		src := filepath.Join(dir, "src")
		if err := os.RemoveAll(src); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, src); err != nil {
			t.Fatal(err)
		}
		r := manifest.Validate(dir)
		switch {
		case good && len(r.Tools) == 1 && len(r.Problems) == 0:
		case !good && len(r.Tools) == 0 && strings.HasSuffix(r.Problems[0].Err.Error(), `tool.yaml:5:45: runtime.hot_load.watch[0]: "src" is a link that leaves the package`):
		default:
			t.Errorf("link to %s: got %d tools and %v", target, len(r.Tools), texts(r))
		}
	}
}
