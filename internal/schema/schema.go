// Package schema checks JSON values against JSON Schemas (drafts 4 to 2020-12)
// and says of every misfit which argument it is about. Schemas may come from
// strangers: nothing outside a schema is ever read, and one that would cost too
// much to compile or to check is refused.
//
// Its invariant: a Schema that Compile returned can be used on any JSON value.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/orla-project/orla/internal/fault"
	"github.com/orla-project/orla/internal/rawjson"
)

// Schema is a compiled JSON Schema. It is safe for concurrent use.
type Schema struct {
	compiled func() *jsonschema.Schema
	// open: any object fits, so that nothing needs to be decoded.
	open bool
	// shallow, if not nil, tells of most arguments that they fit.
	shallow *shallow
}

// Validate checks a call's arguments, which must be well-formed JSON. Nothing
// and null stand for no arguments. The error is nil or a *fault.Error of
// fault.InvalidInput that names every argument that does not fit.
func (s *Schema) Validate(args json.RawMessage) error {
	args = bytes.TrimSpace(args)
	if len(args) == 0 || string(args) == "null" {
		args = json.RawMessage("{}")
	}
	if args[0] != '{' {
		f := fault.New(fault.InvalidInput, "arguments: must be a JSON object, got %s", shorten(string(args)))
		f.Logged = "arguments: must be a JSON object"
		return f
	}
	if s.open || s.shallow != nil && s.shallow.fits(args) {
		return nil
	}
	if misfits, where := s.misfits(args); misfits != "" {
		f := fault.New(fault.InvalidInput, "arguments: %s", misfits)
		f.Logged = strings.TrimSpace("arguments that do not fit: " + where)
		return f
	}
	return nil
}

// ValidateOutput checks what a tool answered. The error names everything that
// does not fit, or says that raw is not JSON.
func (s *Schema) ValidateOutput(raw json.RawMessage) error {
	if s.open && json.Valid(raw) && bytes.TrimSpace(raw)[0] == '{' {
		return nil
	}
	if misfits, _ := s.misfits(raw); misfits != "" {
		return errors.New(misfits)
	}
	return nil
}

// large is the size from which it matters how fast arguments are decoded.
const large = 4 << 10

func decode(raw []byte) (any, error) {
	if len(raw) >= large && rawjson.Valid(raw) {
		return rawjson.Decode(raw)
	}
	return jsonschema.UnmarshalJSON(bytes.NewReader(raw))
}

// misfits lists what in raw does not fit, and its names alone, or returns "".
func (s *Schema) misfits(raw []byte) (list, where string) {
	// The validator is not ours and meets what strangers wrote on both sides.
	// Its Validate keeps no state, so nothing is left half done.
	defer func() {
		if r := recover(); r != nil {
			list = fmt.Sprintf("cannot be checked: %v", r)
		}
	}()
	value, err := decode(raw)
	if err != nil {
		return fmt.Sprintf("is not JSON: %v", err), ""
	}
	if f := bounded(value, nil); f != nil {
		return f.String(), strings.Join(f.Path, ".")
	}
	err = s.compiled().Validate(value)
	if err == nil {
		return "", ""
	}
	verr, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return err.Error(), ""
	}
	r := report{root: value, known: s.compiled().Properties}
	r.add(verr)
	return r.String(), r.names()
}
