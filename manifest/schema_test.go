package manifest_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/schema"
	"github.com/orla-project/orla/internal/yamldoc"
	"github.com/orla-project/orla/manifest"
)

// free is any document, for reading YAML as JSON.
type free struct {
	Doc yamldoc.JSON `json:"doc"`
}

// asJSON returns a YAML mapping as JSON.
func asJSON(t *testing.T, text []byte) json.RawMessage {
	t.Helper()
	indented := "doc:\n  " + strings.ReplaceAll(string(text), "\n", "\n  ")
	var f free
	if _, err := yamldoc.Decode("", []byte(indented), &f, yamldoc.Options{}); err != nil {
		t.Fatal(err)
	}
	return json.RawMessage(f.Doc)
}

func toolYAMLSchema(t *testing.T) *schema.Schema {
	t.Helper()
	s, err := schema.CompileObject(manifest.SchemaJSON())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestB6GoodManifestsFitTheSchema(t *testing.T) {
	s := toolYAMLSchema(t)
	files, err := filepath.Glob("testdata/good/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no testdata: %v", err)
	}
	for _, file := range files {
		if err := s.ValidateOutput(t.Context(), asJSON(t, read(t, file))); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestB6BadManifestsDoNotFitTheSchema(t *testing.T) {
	s := toolYAMLSchema(t)
	const required = `"name":"a","version":"1.0.0","description":"x","entrypoint":"run.sh"`
	for _, doc := range []string{
		`{}`, `[]`,
		`{"name":["a"],"version":"1.0.0","description":"x","entrypoint":"run.sh"}`,
		`{` + required + `,"timeout":5}`,
		`{` + required + `,"runtime":{"mode":"capsul"}}`,
		`{` + required + `,"runtime":{"timeout":"soon"}}`,
		`{` + required + `,"runtime":{"timeout":null}}`,
		`{` + required + `,"runtime":{"args":"-v"}}`,
		`{` + required + `,"runtime":{"args":null}}`,
		`{` + required + `,"runtime":{"env":{"A":{}}}}`,
		`{` + required + `,"runtime":{"inherit_env":"HOME"}}`,
		`{` + required + `,"runtime":{"hot_load":{"debounce":1}}}`,
		`{` + required + `,"mcp":{"annotations":{"read_only_hint":true}}}`,
		`{` + required + `,"mcp":{"input_schema":"string"}}`,
	} {
		if err := s.ValidateOutput(t.Context(), json.RawMessage(doc)); err == nil {
			t.Errorf("%s fits", doc)
		}
	}
}

func TestB6CapsuleJSONFitsItsSchema(t *testing.T) {
	s, err := schema.CompileObject(manifest.CapsuleSchemaJSON())
	if err != nil {
		t.Fatal(err)
	}
	const required = `"name":"a","version":"1.0.0","entrypoint":"run.sh"`
	for doc, fits := range map[string]bool{
		`{` + required + `}`: true,
		`{` + required + `,"language":"go","hot_load":{"watch":["./"],"mode":"restart","debounce_ms":1},"env":{"A":"b"},"args":["c"],"startup_timeout_ms":1}`: true,
		`{` + required + `,"description":"d","mcp":{"title":"t"},"drain_ms":1,"idle_timeout":"5m"}`:                                                           true,
		`{"name":"a","version":"1.0.0"}`:             false,
		`{` + required + `,"runtime":{}}`:            false,
		`{` + required + `,"mode":"capsule"}`:        false,
		`{` + required + `,"hot_load":{"mode":"x"}}`: false,
		`{` + required + `,"args":null}`:             false,
	} {
		if err := s.ValidateOutput(t.Context(), json.RawMessage(doc)); (err == nil) != fits {
			t.Errorf("%s: got %v, want it to fit: %v", doc, err, fits)
		}
	}
}

func TestB6TheSchemaTellsEditorsWhatKeysMean(t *testing.T) {
	raw := manifest.SchemaJSON()
	for _, want := range []string{`"title": "tool.yaml"`, `"$schema": "https://json-schema.org/draft/2020-12/schema"`, `"description": "Reload when files change"`} {
		if !bytes.Contains(raw, []byte(want)) {
			t.Errorf("the schema lacks %s", want)
		}
	}
}

// SPEC-TOOLS 1.1: what the parser takes fits the schema, and what has another form does not.
func TestT11ResourcesFitTheirSchema(t *testing.T) {
	s, err := schema.CompileObject(manifest.ResourceSchemaJSON())
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/resources/good/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no testdata: %v", err)
	}
	fitting := 0
	for _, file := range files {
		docs, _ := yamldoc.Documents(read(t, file), 100)
		for _, d := range docs {
			text := bytes.TrimSuffix(d.Data, []byte("...\n"))
			if _, below, marked := bytes.Cut(text, []byte("---\n")); marked {
				text = below
			}
			text = bytes.ReplaceAll(text, []byte(" 0123"), []byte(" '0123'")) // no number of JSON
			if err := s.ValidateOutput(t.Context(), asJSON(t, text)); err != nil {
				t.Errorf("%s:%d: %v", file, d.Line, err)
			}
			fitting++
		}
	}
	if fitting < 10 {
		t.Errorf("only %d documents", fitting)
	}
	const tool, server, held = `"apiVersion":"orloj.dev/v1","kind":"Tool","metadata":{"name":"a"}`,
		`"apiVersion":"orloj.dev/v1","kind":"McpServer","metadata":{"name":"a"}`,
		`"apiVersion":"orloj.dev/v1","kind":"Secret","metadata":{"name":"a"}`
	for doc, fits := range map[string]bool{
		`{` + tool + `,"spec":{}}`:                                      true,
		`{` + tool + `,"spec":{"runtime":{"retry":{"backoff":0.5}}}}`:   true,
		`{` + server + `,"spec":{"transport":"stdio","args":["-y",1]}}`: true,
		`{` + held + `,"stringData":{"value":1}}`:                       true,
		`{` + tool + `}`: false,
		`{` + tool + `,"spec":{"transport":"stdio"}}`:                                        false,
		`{` + tool + `,"spec":{"type":"queue"}}`:                                             false,
		`{` + tool + `,"spec":{"runtime":{"timeout":"soon"}}}`:                               false,
		`{` + tool + `,"spec":{"operation_classes":["raed"]}}`:                               false,
		`{` + tool + `,"spec":{"operation_classes":null}}`:                                   false,
		`{` + tool + `,"spec":{"auth":{"secretref":"x"}}}`:                                   false,
		`{` + tool + `,"spec":{},"status":{}}`:                                               false,
		`{` + server + `,"spec":{}}`:                                                         false,
		`{` + server + `,"spec":{"transport":"stdio","env":{"A":"b"}}}`:                      false,
		`{` + server + `,"spec":{"transport":"stdio","env":[{"value":1}]}}`:                  false,
		`{` + held + `,"spec":{"stringData":{"value":[1]}}}`:                                 false,
		`{"apiVersion":"v1","kind":"Tool","metadata":{"name":"a"},"spec":{}}`:                false,
		`{"apiVersion":"orloj.dev/v1","kind":"AgentRole","metadata":{"name":"a"},"spec":{}}`: false,
		`{"apiVersion":"orloj.dev/v1","kind":"Tool","metadata":{},"spec":{}}`:                false,
		`[]`: false,
	} {
		if err := s.ValidateOutput(t.Context(), json.RawMessage(doc)); (err == nil) != fits {
			t.Errorf("%s: got %v, want it to fit: %v", doc, err, fits)
		}
	}
}
