package keys_test

import (
	"testing"

	"github.com/orla-project/orla/internal/mcp/schema"
	"github.com/orla-project/orla/internal/testing/manifesttest"
	"github.com/orla-project/orla/manifest/discover"
)

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
		"a keyword's value that is not a type is JSON Schema": {
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
			r := discover.Validate(manifesttest.Pack(t, "name: a\nversion: 1.0.0\ndescription: x\nentrypoint: run.sh\nmcp: {input_schema: "+c.yaml+"}\n"))
			if len(r.Tools) != 1 {
				t.Fatalf("problems %v", manifesttest.Texts(r))
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
