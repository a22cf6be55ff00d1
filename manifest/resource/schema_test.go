package resource_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/internal/mcp/schema"
	"github.com/orla-project/orla/internal/testing/manifesttest"
	"github.com/orla-project/orla/manifest/resource"
)

// SPEC-TOOLS 1.1: what the parser takes fits the schema, and what has another form does not.
func TestT11ResourcesFitTheirSchema(t *testing.T) {
	s, err := schema.CompileObject(resource.SchemaJSON())
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/good/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no testdata: %v", err)
	}
	fitting := 0
	for _, file := range files {
		for _, d := range yamldoc.Documents(manifesttest.Read(t, file)) {
			text := bytes.TrimSuffix(d.Data, []byte("...\n"))
			if _, below, marked := bytes.Cut(text, []byte("---\n")); marked {
				text = below
			}
			text = bytes.ReplaceAll(text, []byte(" 0123"), []byte(" '0123'")) // no number of JSON
			if err := s.ValidateOutput(t.Context(), manifesttest.AsJSON(t, text)); err != nil {
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
		`{"apiVersion":"orloj.dev/v1","kind":"AgentRole","metadata":{"name":"a"},"spec":{}}`: true,
		`{"apiVersion":"orloj.dev/v1","kind":"Tool","metadata":{},"spec":{}}`:                false,
		`[]`: false,
	} {
		if err := s.ValidateOutput(t.Context(), json.RawMessage(doc)); (err == nil) != fits {
			t.Errorf("%s: got %v, want it to fit: %v", doc, err, fits)
		}
	}
}
