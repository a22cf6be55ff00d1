package toolfile_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/orla-project/orla/internal/mcp/schema"
	"github.com/orla-project/orla/internal/testing/manifesttest"
	"github.com/orla-project/orla/manifest/toolfile"
)

func toolYAMLSchema(t *testing.T) *schema.Schema {
	t.Helper()
	s, err := schema.CompileObject(toolfile.SchemaJSON())
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
		if err := s.ValidateOutput(t.Context(), manifesttest.AsJSON(t, manifesttest.Read(t, file))); err != nil {
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
	s, err := schema.CompileObject(toolfile.CapsuleSchemaJSON())
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
	raw := toolfile.SchemaJSON()
	for _, want := range []string{`"title": "tool.yaml"`, `"$schema": "https://json-schema.org/draft/2020-12/schema"`, `"description": "Reload when files change"`} {
		if !bytes.Contains(raw, []byte(want)) {
			t.Errorf("the schema lacks %s", want)
		}
	}
}
