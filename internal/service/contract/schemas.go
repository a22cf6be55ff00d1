package contract

import _ "embed" // the schemas

//go:embed request.schema.json
var requestSchema []byte

//go:embed response.schema.json
var responseSchema []byte

// RequestSchema is the JSON Schema of the request to a tool.
func RequestSchema() []byte { return requestSchema }

// ResponseSchema is the JSON Schema of a tool's answer. Decode is slightly more lenient (SPEC-TOOLS
// 2.2).
func ResponseSchema() []byte { return responseSchema }
