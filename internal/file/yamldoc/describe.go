package yamldoc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
)

// SchemaOptions has the title and the id of a generated schema.
type SchemaOptions struct {
	Title       string
	Description string
	ID          string // its $id; "" for none
}

// A selfDescribed type returns the JSON Schema of its values, if that does not follow from its kind.
// The method is called on a zero value.
type selfDescribed interface {
	JSONSchema() string
}

// Schema returns the JSON Schema (2020-12), indented, of the files that Decode accepts for a T.
// Descriptions are those of the fields' jsonschema tags.
func Schema[T any](opts SchemaOptions) (json.RawMessage, error) {
	s, err := schemaOf(reflect.TypeFor[T]())
	if err != nil {
		return nil, err
	}
	return describeAs(s, opts)
}

// SchemaOneOf is Schema for files that are one of several types of structs.
func SchemaOneOf(opts SchemaOptions, of ...reflect.Type) (json.RawMessage, error) {
	whole := &jsonschema.Schema{Type: "object"}
	for _, t := range of {
		s, err := schemaOf(t)
		if err != nil {
			return nil, err
		}
		whole.OneOf = append(whole.OneOf, s)
	}
	return describeAs(whole, opts)
}

// schemaOf returns the schema of the values that decode into a t.
func schemaOf(t reflect.Type) (*jsonschema.Schema, error) {
	types := map[reflect.Type]*jsonschema.Schema{}
	if err := collect(t, types); err != nil {
		return nil, err
	}
	s, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: types})
	if err != nil {
		return nil, err
	}
	refuseNull(s)
	return s, nil
}

// describeAs returns the complete schema of a file as JSON.
func describeAs(s *jsonschema.Schema, opts SchemaOptions) (json.RawMessage, error) {
	s.Schema = "https://json-schema.org/draft/2020-12/schema"
	s.ID, s.Title, s.Description = opts.ID, opts.Title, opts.Description
	compact, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, compact, "", "  "); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// collect finds the selfDescribed types below t.
func collect(t reflect.Type, types map[reflect.Type]*jsonschema.Schema) error {
	if _, ok := types[t]; ok {
		return nil
	}
	if t.Kind() == reflect.Pointer {
		return collect(t.Elem(), types)
	}
	var text []byte
	switch zero := reflect.New(t).Elem().Interface().(type) {
	case selfDescribed:
		text = []byte(zero.JSONSchema())
	case Enum:
		enum, err := json.Marshal(zero.Values())
		if err != nil {
			return err
		}
		text = fmt.Appendf(nil, `{"type":"string","enum":%s}`, enum)
	}
	if text != nil {
		s := new(jsonschema.Schema)
		if err := json.Unmarshal(text, s); err != nil {
			return fmt.Errorf("schema of %s: %w", t, err)
		}
		types[t] = s
		return nil
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Map:
		return collect(t.Elem(), types)
	case reflect.Struct:
		for _, f := range fieldsOf(t) {
			if err := collect(f.typ, types); err != nil {
				return err
			}
		}
	}
	return nil
}

// refuseNull removes null from the schema, which the generator allows for pointers and slices:
// Decode requires a value for every key.
func refuseNull(s *jsonschema.Schema) {
	if i := slices.Index(s.Types, "null"); i >= 0 {
		s.Types = slices.Delete(s.Types, i, i+1)
	}
	switch len(s.Types) {
	case 0:
		s.Types = nil
	case 1:
		s.Type, s.Types = s.Types[0], nil
	}
	for below := range maps.Values(s.Properties) {
		refuseNull(below)
	}
	for _, below := range []*jsonschema.Schema{s.Items, s.AdditionalProperties} {
		if below != nil {
			refuseNull(below)
		}
	}
}
