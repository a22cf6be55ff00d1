package contract

import _ "embed" // the schemas

//go:embed request.schema.json
var requestSchema []byte

//go:embed response.schema.json
var responseSchema []byte

// RequestSchema is the JSON Schema of what a tool is sent.
func RequestSchema() []byte { return requestSchema }

// ResponseSchema is the JSON Schema of what a tool should answer. Decode takes a
// little more than it allows (SPEC-TOOLS 2.2).
func ResponseSchema() []byte { return responseSchema }
