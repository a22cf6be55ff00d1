package resource_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/internal/testing/manifesttest"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/discover"
)

var update = flag.Bool("update", false, "write the golden files again")

// beside makes what files of resources refer to: programs and a module.
func beside(t *testing.T, dir string) {
	t.Helper()
	manifesttest.Write(t, dir, "server.sh", manifesttest.Script, 0o755)
	manifesttest.Write(t, dir, "plain.sh", manifesttest.Script, 0o644)
	manifesttest.Write(t, dir, "echo.wasm", "\x00asm", 0o644)
	manifesttest.Write(t, dir, "bin/npx", manifesttest.Script, 0o755)
	t.Setenv("PATH", filepath.Join(dir, "bin"))
}

// SPEC-TOOLS 1.1, 1.2, 3.5: every field, and what holds where it is left out.
func TestT12GoodResources(t *testing.T) {
	files, err := filepath.Glob("testdata/good/*.[yj]*ml")
	more, _ := filepath.Glob("testdata/good/*.res.json")
	if err != nil || len(files) == 0 || len(more) == 0 {
		t.Fatalf("no testdata: %v", err)
	}
	for _, file := range append(files, more...) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			dir := manifesttest.RealPath(t, t.TempDir())
			beside(t, dir)
			manifesttest.Write(t, dir, filepath.Base(file), string(manifesttest.Read(t, file)), 0o600)
			r := discover.Validate(filepath.Join(dir, filepath.Base(file)))
			if len(r.Problems) > 0 || len(r.Tools)+len(r.Secrets) == 0 {
				t.Fatalf("got %d tools and the problems %v", len(r.Tools), manifesttest.Texts(r))
			}
			got, err := json.MarshalIndent(map[string]any{"Tools": r.Tools, "Secrets": r.Secrets}, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			got = append(bytes.ReplaceAll(got, []byte(dir), []byte("FOLDER")), '\n')
			golden := strings.TrimSuffix(strings.TrimSuffix(file, ".yaml"), ".res.json") + ".golden"
			if *update {
				manifesttest.Write(t, ".", golden, string(got), 0o644)
			}
			if want := manifesttest.Read(t, golden); !bytes.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// SPEC-TOOLS 1.1: every fault of a file with its line and column, and what is allowed.
func TestT11BadResources(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no testdata: %v", err)
	}
	home, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			dir := manifesttest.RealPath(t, t.TempDir())
			t.Chdir(dir)
			beside(t, dir)
			want, at := "", -1
			for i, f := range archive.Files {
				if f.Name == "problems" {
					want, at = string(f.Data), i
					continue
				}
				manifesttest.Write(t, dir, f.Name, string(f.Data), 0o600)
			}
			r := discover.Validate(".")
			got := strings.ReplaceAll(strings.Join(append(manifesttest.Texts(r), "served: "+strings.Join(manifesttest.Names(r), " ")), "\n"), dir, "FOLDER") + "\n"
			if strings.Contains(got, "hunter2") {
				t.Errorf("a secret is told:\n%s", got)
			}
			if *update && at >= 0 {
				archive.Files[at].Data = []byte(got)
				manifesttest.Write(t, home, file, string(txtar.Format(archive)), 0o644)
			}
			if got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			for _, p := range r.Problems {
				_, placed := errors.AsType[yamldoc.Fault](p.Err)
				if p.Severity == manifest.Fault && !placed {
					t.Errorf("a fault that is not at a place: %v", p.Err)
				}
			}
		})
	}
}

// SPEC-TOOLS 5.1: data is base64, stringData is as it is written and wins.
func TestT51SecretsAreRead(t *testing.T) {
	r := discover.Validate("testdata/good/secrets.yaml")
	want := map[string]string{
		"default/as-in-kubernetes:value": "yes",
		"team/both:value":                "wins",
		"team/both:blob":                 "\x00\xff",
		"team/both:tls.crt":              "a",
		"team/both:number":               "0123",
		"team/both:lines":                "a\nb",
	}
	if got := manifesttest.SecretValues(r); !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A reload keeps what has not changed, so the same files are the same manifests.
func TestT11TheSameFilesAreTheSameTools(t *testing.T) {
	dir := t.TempDir()
	beside(t, dir)
	for _, name := range []string{"every_key.yaml", "kinds.yaml", "servers.yaml", "secrets.yaml"} {
		manifesttest.Write(t, dir, name, string(manifesttest.Read(t, "testdata/good/"+name)), 0o600)
	}
	first := discover.Validate(dir)
	if len(first.Tools) < 10 {
		t.Fatalf("got %q", manifesttest.Names(first))
	}
	for range 3 {
		if again := discover.Validate(dir); !reflect.DeepEqual(again, first) {
			t.Fatalf("at first\n%+v\nand then\n%+v", first, again)
		}
	}
}

// SPEC-TOOLS 7: what names the folder that a resource's file is in does not show
// it to a process that is isolated, by whatever way.
func TestT7AFolderOfResourcesIsNotExposed(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	manifesttest.Write(t, dir, "sub/x", "x", 0o644)
	if err := os.Symlink(".", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	server := manifest.Tool{Kind: manifest.Capsule, Dir: dir, Path: "npx"}
	server.Runtime.Generated = true
	server.Run.Args = []string{".", "./", dir, "link", "sub/..", "..", "sub"}
	if got := server.Exposed(); !slices.Equal(got, []string{filepath.Join(dir, "sub")}) {
		t.Errorf("an McpServer sees %q", got)
	}
	command := manifest.Tool{Kind: manifest.Cli, Dir: dir, Resource: &manifest.Resource{CLI: &manifest.CLI{WorkingDir: dir}}}
	if got := command.Exposed(); len(got) > 0 {
		t.Errorf("a command sees %q", got)
	}
}

// SPEC-TOOLS 8.5: clients are told what somebody wrote, and no default.
func TestT85HintsAreOnlyOfWrittenClasses(t *testing.T) {
	for spec, want := range map[string]string{
		`type: cli, cli: {command: sh, args: ["-c", "{{.a}}"]}, runtime: {isolation_mode: none}`: `null`,
		`endpoint: "http://a"`: `null`,
		`endpoint: "http://a", risk_level: critical, runtime: {isolation_mode: none}`: `null`,
		`endpoint: "http://a", operation_classes: []`:                                 `null`,
		`type: mcp, mcp_server_ref: s, mcp_tool_name: t, risk_level: low`:             `null`,
		`endpoint: "http://a", operation_classes: [read]`:                             `{"openWorldHint":true,"readOnlyHint":true}`,
		`endpoint: "http://a", operation_classes: [read, write]`:                      `{"openWorldHint":true}`,
		`endpoint: "http://a", operation_classes: [delete]`:                           `{"destructiveHint":true,"openWorldHint":true}`,
		`type: mcp, mcp_server_ref: s, mcp_tool_name: t, operation_classes: [admin]`:  `{"destructiveHint":true,"openWorldHint":true}`,
		`endpoint: "http://a", risk_level: high, operation_classes: [read]`:           `{"openWorldHint":true,"readOnlyHint":true}`,
	} {
		at := filepath.Join(t.TempDir(), "a.yaml")
		if err := os.WriteFile(at, []byte("{apiVersion: orloj.dev/v1, kind: Tool, metadata: {name: a}, spec: {"+spec+"}}"), 0o644); err != nil {
			t.Fatal(err)
		}
		found := discover.Validate(at)
		if len(found.Tools) != 1 {
			t.Errorf("%s: %+v", spec, found)
			continue
		}
		got, err := json.Marshal(found.Tools[0].Listed().Annotations)
		if err != nil {
			t.Fatal(err)
		}
		var said map[string]any
		if err := json.Unmarshal(got, &said); err != nil {
			t.Fatal(err)
		}
		for _, usual := range []string{"readOnlyHint", "idempotentHint"} { // that is what their absence means
			if said[usual] == false {
				delete(said, usual)
			}
		}
		if got, err = json.Marshal(said); err != nil || string(got) != want {
			t.Errorf("%s: got %s, want %s", spec, got, want)
		}
	}
}

// SPEC S2: a value of a Secret is not longer than any key or certificate.
func TestS2AValueOfASecretIsBounded(t *testing.T) {
	for name, keys := range map[string]string{
		"as text":   "stringData: {value: " + strings.Repeat("x", secret.MaxValue+1) + "}",
		"as base64": "data: {value: " + base64.StdEncoding.EncodeToString(make([]byte, secret.MaxValue+1)) + "}",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			manifesttest.Write(t, dir, "secret.yaml", "apiVersion: orloj.dev/v1\nkind: Secret\nmetadata: {name: a}\nspec: {"+keys+"}\n", 0o600)
			r := discover.Validate(dir)
			if len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Err.Error(), "must have at most 65536 bytes, has 65537") {
				t.Errorf("the problems are %v", r.Problems)
			}
		})
	}
}
