package yamldoc

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"gopkg.in/yaml.v3"
)

const (
	// maxDepth is how deep values may be nested, including those of aliases.
	maxDepth = 100
	// maxAliased is how many bytes all aliases of a file together may expand to.
	maxAliased = 4 << 20
)

// An Enum is a string type with a fixed set of values.
type Enum interface {
	Values() []string
}

// decoder decodes one document into structs.
type decoder struct {
	doc     *Doc
	refuse  map[string]string
	top     []field // the fields of the document's struct
	inAlias int     // nesting depth of aliases
	aliased int     // bytes that aliases have expanded to so far
	spent   bool
}

// enter resolves an alias, within the limits. It returns the node to decode, or nil if a limit is reached, and a
// function to call when done.
func (d *decoder) enter(n *yaml.Node, key string, depth int) (*yaml.Node, func()) {
	leave := func() {}
	if depth > maxDepth {
		d.doc.fault(n, key, "is nested more than %d deep", maxDepth)
		return nil, leave
	}
	if n.Kind == yaml.AliasNode {
		d.inAlias++
		leave = func() { d.inAlias-- }
		n = n.Alias
	}
	if d.inAlias > 0 {
		d.aliased += len(n.Value) + 16
		if d.aliased > maxAliased {
			if !d.spent {
				d.doc.fault(n, key, "the file's aliases stand for more than %d bytes", maxAliased)
			}
			d.spent = true
			return nil, leave
		}
	}
	if n.Style&yaml.TaggedStyle != 0 && !slices.Contains(coreTags, n.Tag) {
		tag := n.Tag
		if d.doc.hides(key) {
			tag = "of its value"
		}
		d.doc.fault(n, key, "the tag %s is not supported", tag)
		return nil, leave
	}
	return n, leave
}

var coreTags = []string{"!!str", "!!int", "!!float", "!!bool", "!!null", "!!map", "!!seq", "!!timestamp"}

// value decodes n into v, which is addressable.
func (d *decoder) value(n *yaml.Node, v reflect.Value, key string, depth int) {
	n, leave := d.enter(n, key, depth)
	defer leave()
	if n == nil {
		return
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if u, ok := reflect.TypeAssert[json.Unmarshaler](v.Addr()); ok {
		d.unmarshal(n, u, key, depth)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		if d.wants(n, key, yaml.MappingNode, "a mapping") {
			d.structure(n, v, key, depth)
		}
	case reflect.Map:
		if d.wants(n, key, yaml.MappingNode, "a mapping") {
			d.mapping(n, v, key, depth)
		}
	case reflect.Slice:
		if !d.wants(n, key, yaml.SequenceNode, "a list") {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
		for i, item := range n.Content {
			d.value(item, v.Index(i), indexed(key, i), depth+1)
		}
	default:
		if err := setScalar(n, v); err != nil {
			if d.doc.hides(key) && n.Kind == yaml.ScalarNode && !isNull(n) {
				err = errors.New("is not a valid value; Orla does not show it")
			}
			d.doc.fault(n, key, "%v", err)
		}
	}
}

// wants reports whether n is of the kind, and adds a fault if not.
func (d *decoder) wants(n *yaml.Node, key string, kind yaml.Kind, name string) bool {
	if n.Kind == kind {
		return true
	}
	d.doc.fault(n, key, "wants %s, got %s", name, d.doc.describe(n, key))
	return false
}

// unmarshal passes a subtree to a type that decodes itself.
func (d *decoder) unmarshal(n *yaml.Node, u json.Unmarshaler, key string, depth int) {
	if isNull(n) {
		d.doc.fault(n, key, "wants a value, got nothing")
		return
	}
	raw, ok := d.appendJSON(nil, n, key, depth)
	if !ok {
		return
	}
	if err := u.UnmarshalJSON(raw); err != nil {
		d.doc.fault(n, key, "%v", err)
	}
}

// structure decodes a mapping into a struct.
func (d *decoder) structure(n *yaml.Node, v reflect.Value, key string, depth int) {
	fields := fieldsOf(v.Type())
	if key == "" {
		d.top = fields
	}
	given := map[string]bool{}
	d.entries(n, key, func(name string, k, value *yaml.Node) {
		path := join(key, name)
		given[name] = true
		if reason, ok := d.refuse[name]; ok && key == "" {
			d.doc.fault(k, path, "%s", reason)
			return
		}
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
		if i < 0 {
			meant := ""
			if !d.doc.full() {
				var near string
				meant, near = suggest(name, fields, d.top)
				given[near] = true // this fault is enough
			}
			d.doc.fault(k, path, "unknown key%s", meant)
			return
		}
		d.value(value, v.FieldByIndex(fields[i].index), path, depth+1)
	})
	for _, f := range fields {
		if f.required && !given[f.name] {
			d.doc.Faultf(join(key, f.name), "is required")
		}
	}
}

// mapping decodes a mapping into a map with string keys.
func (d *decoder) mapping(n *yaml.Node, v reflect.Value, key string, depth int) {
	m := reflect.MakeMap(v.Type())
	d.entries(n, key, func(name string, _, value *yaml.Node) {
		item := reflect.New(v.Type().Elem()).Elem()
		d.value(value, item, join(key, name), depth+1)
		m.SetMapIndex(reflect.ValueOf(name).Convert(v.Type().Key()), item)
	})
	v.Set(m)
}

// entries calls each for every entry of a mapping that has a valid key.
func (d *decoder) entries(n *yaml.Node, key string, each func(name string, k, value *yaml.Node)) {
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		switch {
		case k.Kind != yaml.ScalarNode:
			d.doc.fault(k, key, "a key wants to be text, got %s", describe(k))
			continue
		case k.Tag == "!!merge":
			d.doc.fault(k, key, "merge keys (<<) are not supported; repeat the keys")
			continue
		}
		if line, ok := first[k.Value]; ok {
			d.doc.fault(k, join(key, k.Value), "is given twice, first on line %d", line)
			continue
		}
		first[k.Value] = d.line(k)
		each(k.Value, k, n.Content[i+1])
	}
}

// line returns the line of n in the file.
func (d *decoder) line(n *yaml.Node) int {
	if d.doc.position == nil {
		return n.Line
	}
	line, _ := d.doc.position(n.Line, n.Column)
	return line
}

// field is a struct field with its name in files.
type field struct {
	name     string
	index    []int
	required bool
	typ      reflect.Type
}

// typeFields has the result of listFields by its argument: to look a struct type up takes longer than to decode
// a small document into it. There are as many as there are types.
var typeFields sync.Map

// fieldsOf lists the fields of a struct type and of those embedded in it. The list must not be modified.
func fieldsOf(t reflect.Type) []field {
	if known, ok := typeFields.Load(t); ok {
		return known.([]field)
	}
	list := listFields(t)
	typeFields.Store(t, list)
	return list
}

func listFields(t reflect.Type) []field {
	var list []field
	for _, f := range reflect.VisibleFields(t) {
		name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || !f.IsExported() || name == "" || name == "-" {
			continue
		}
		optional := strings.Contains(rest, "omitempty") || strings.Contains(rest, "omitzero")
		list = append(list, field{name: name, index: f.Index, required: !optional, typ: f.Type})
	}
	return list
}

// maxJoined is the length in bytes from which a path stands for all that is below it: many values below a long key
// would each have a long path of their own. No key that is known is that long.
const maxJoined = 1000

func join(key, name string) string {
	switch {
	case key == "":
		return name
	case len(key) > maxJoined:
		return key
	}
	return key + "." + name
}

func indexed(key string, i int) string {
	if len(key) > maxJoined {
		return key
	}
	return key + "[" + strconv.Itoa(i) + "]"
}
