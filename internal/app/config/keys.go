package config

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// jsonKey returns the name of a field in files.
func jsonKey(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return name
}

// settings returns the fields of a section of the configuration, with those of embedded structs, in the
// order of their declaration.
func settings(section reflect.Type) []reflect.StructField {
	return slices.DeleteFunc(reflect.VisibleFields(section), func(f reflect.StructField) bool { return f.Anonymous })
}

// Keys lists the configuration's keys, in the order of Config.
func Keys() []string {
	var names []string
	for _, field := range settings(reflect.TypeFor[Config]()) {
		names = append(names, jsonKey(field))
	}
	return names
}

// Value returns the field of a key.
func Value(c *Config, key string) reflect.Value {
	fields := settings(reflect.TypeFor[Config]())
	i := slices.IndexFunc(fields, func(f reflect.StructField) bool { return jsonKey(f) == key })
	return reflect.ValueOf(c).Elem().FieldByIndex(fields[i].Index)
}

// set sets a key to a value from the environment or a flag, which is text.
func set(c *Config, key, text string) error {
	field := Value(c, key)
	if u, ok := reflect.TypeAssert[encoding.TextUnmarshaler](field.Addr()); ok {
		return u.UnmarshalText([]byte(text))
	}
	switch field.Kind() {
	case reflect.String:
		field.SetString(text)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("wants true or false, got %q", text)
		}
		field.SetBool(b)
	case reflect.Int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("wants a whole number, got %q", text)
		}
		field.SetInt(int64(n))
	case reflect.Float64:
		x, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("wants a number, got %q", text)
		}
		field.SetFloat(x)
	case reflect.Slice:
		if field.Type() != reflect.TypeFor[[]string]() {
			return errFileOnly
		}
		var list []string
		for part := range strings.SplitSeq(text, ",") {
			if part = strings.TrimSpace(part); part != "" {
				list = append(list, part)
			}
		}
		field.Set(reflect.ValueOf(list))
	default:
		return errFileOnly
	}
	return nil
}

var errFileOnly = errors.New("can be set in the configuration file only")

// Schema returns the JSON Schema of orla.yaml.
func Schema() (json.RawMessage, error) {
	return yamldoc.Schema[Config](yamldoc.SchemaOptions{Title: "orla.yaml", Description: "Configuration of Orla."})
}

// KeyHelp is the path of a key of the configuration, and what it means.
type KeyHelp struct{ Key, Help string }

// describe lists the keys of a section, each followed by those below it.
func describe(section reflect.Type, path string) []KeyHelp {
	var list []KeyHelp
	for _, field := range settings(section) {
		key := path + jsonKey(field)
		list = append(list, KeyHelp{key, field.Tag.Get("jsonschema")})
		switch t := field.Type; {
		case t.Kind() == reflect.Struct:
			list = append(list, describe(t, key+".")...)
		case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
			list = append(list, describe(t.Elem(), key+"[].")...)
		}
	}
	return list
}

// Described lists every key of the configuration, in the order of Config.
func Described() []KeyHelp { return describe(reflect.TypeFor[Config](), "") }

// Text returns a value for people.
func Text(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case fmt.Stringer:
		return x.String()
	case []string:
		return strings.Join(x, ",")
	case AuthConfig:
		var names []string
		for _, t := range x.Tokens {
			names = append(names, t.Name)
		}
		if x.OAuth.Issuer != "" {
			names = append(names, httpfront.IssuedPrefix+x.OAuth.Issuer)
		}
		return strings.Join(names, ",")
	case TracingConfig:
		return x.Endpoint
	case ApprovalsConfig:
		return x.text()
	}
	return fmt.Sprint(v.Interface())
}
