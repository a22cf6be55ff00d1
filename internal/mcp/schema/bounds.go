package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// The validator calls itself for each level of a value, and within a level for
// each schema that applies to it. These bounds keep the product far below what
// fits on a stack, and a single level from taking for ever.
const (
	maxDepth    = 512    // levels of a value or a schema
	maxChain    = 128    // schemas that lead to one another within a level
	maxSteps    = 20_000 // schemas that apply within a level, counted as often as they do
	maxDigits   = 1000   // characters of a number
	maxExponent = 400    // a float64 ends at 308
)

// bounded returns a fault for a value that is too deep or holds a number that
// takes too long to reckon with.
func bounded(value any, path []string) *Fault {
	if len(path) > maxDepth {
		return &Fault{Msg: fmt.Sprintf("is nested more than %d deep", maxDepth)}
	}
	switch value := value.(type) {
	case map[string]any:
		for name, item := range value {
			if f := bounded(item, append(path, name)); f != nil {
				return f
			}
		}
	case []any:
		for i, item := range value {
			if f := bounded(item, append(path, strconv.Itoa(i))); f != nil {
				return f
			}
		}
	case json.Number:
		return boundedNumber(value.String(), path)
	}
	return nil
}

func boundedNumber(digits string, path []string) *Fault {
	if len(digits) > maxDigits {
		return &Fault{Path: path, Msg: fmt.Sprintf("must be a number of at most %d digits", maxDigits)}
	}
	if i := strings.IndexAny(digits, "eE"); i >= 0 {
		exponent, err := strconv.Atoi(strings.TrimPrefix(digits[i+1:], "+"))
		if err != nil || exponent > maxExponent || exponent < -maxExponent {
			return &Fault{Path: path, Msg: fmt.Sprintf("must be a number between 1e-%d and 1e%[1]d, got %s", maxExponent, shorten(digits))}
		}
	}
	return nil
}

// weight is what checking one value against a schema costs within its level.
type weight struct {
	chain, steps int
	done         bool // false while it is being reckoned
}

// The compiler looks through all schemas that it has seen for each new one, and keeps an
// error for each value that does not belong where it is. These bounds keep both small.
const (
	maxObjects = 5000   // in a schema, and as many truth values, which may be schemas too
	maxValues  = 50_000 // of any kind in it
	maxNested  = 128    // levels of it: each subschema has its whole path

	maxPaths = 2 << 20 // bytes of the paths to all objects and truth values of it, together
)

// What a compiled schema takes, in bytes: for each object or truth value, each value and each instruction
// of a pattern. It was measured.
const (
	perObject      = 1 << 10
	perValue       = 40
	perInstruction = 128
	perPath        = 4 // for each byte of a path
)

// small counts the parts of a schema, and what it takes but for its patterns. It returns a fault for one with
// too many parts.
func small(doc any) (weight int64, f *Fault) {
	objects, truths, values, deepest, paths := 0, 0, 0, 0, 0
	var count func(value any, level, path int)
	count = func(value any, level, path int) {
		values++
		deepest = max(deepest, level)
		switch value := value.(type) {
		case map[string]any:
			objects++
			for _, key := range [...]string{"$id", "id"} { // it is a part of the address of all below
				id, _ := value[key].(string)
				path += len(id)
			}
			paths += path
			for name, item := range value {
				count(item, level+1, path+lengthInPath(name))
			}
		case []any:
			for _, item := range value {
				count(item, level+1, path+len("/0000"))
			}
		case bool: // it may be a schema
			truths++
			paths += path
		}
	}
	count(doc, 0, 0)
	switch {
	case deepest > maxNested:
		f = &Fault{Msg: fmt.Sprintf("is nested more than %d deep", maxNested)}
	case objects > maxObjects:
		f = &Fault{Msg: fmt.Sprintf("has %d objects, more than the %d allowed", objects, maxObjects)}
	case truths > maxObjects:
		f = &Fault{Msg: fmt.Sprintf("has %d truth values, more than the %d allowed", truths, maxObjects)}
	case values > maxValues:
		f = &Fault{Msg: fmt.Sprintf("has %d values, more than the %d allowed", values, maxValues)}
	case paths > maxPaths:
		f = &Fault{Msg: fmt.Sprintf("has names that are too long for so many objects below them: their paths have %d bytes, more than the %d allowed", paths, maxPaths)}
	}
	return int64(perObject*(objects+truths) + perValue*values + perPath*paths), f
}

// lengthInPath is how many bytes a name takes in the path to what is below it, where most characters but letters
// and digits are escaped.
func lengthInPath(name string) int {
	n := 1 + len(name)
	for i := range len(name) {
		if c := name[i] | 0x20; (c < 'a' || c > 'z') && (name[i] < '0' || name[i] > '9') {
			n += 2
		}
	}
	return n
}

// compiled is a compiled schema, and what an evaluation has to know of it.
type compiled struct {
	root *jsonschema.Schema
	// shared are the schemas that more than one other schema leads to: of all others, each
	// is applied to a value once at most.
	shared map[*jsonschema.Schema]bool
	// anchors are the schemas that a $dynamicRef may lead to, by document and name; nil
	// if there is no such reference.
	anchors map[string]map[string]*jsonschema.Schema

	weight int64 // bytes that it takes, more or less
}

// recursiveAnchor is the name of a $recursiveAnchor, which has none.
const recursiveAnchor = "#"

// documentOf is the address of the document that a schema is in.
func documentOf(s *jsonschema.Schema) string {
	document, _, _ := strings.Cut(s.Location, "#")
	return document
}

// graphOf finds all schemas of a root. It refuses those that refer to themselves without
// going down a level of the value, and those that multiply: ten definitions that each name
// the next one ten times are ten thousand million steps.
func graphOf(root *jsonschema.Schema) (*compiled, error) {
	c := &compiled{root: root, shared: map[*jsonschema.Schema]bool{}}
	weights := map[*jsonschema.Schema]*weight{}
	anchors := map[string]map[string]*jsonschema.Schema{}
	dynamic := false
	seen := map[*jsonschema.Schema]bool{root: true}
	todo := []*jsonschema.Schema{root}
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if err := weigh(s, weights); err != nil {
			return nil, err
		}
		dynamic = dynamic || s.DynamicRef != nil || s.RecursiveRef != nil
		for name, is := range map[string]bool{s.DynamicAnchor: s.DynamicAnchor != "", recursiveAnchor: s.RecursiveAnchor} {
			if document := documentOf(s); is {
				if anchors[document] == nil {
					anchors[document] = map[string]*jsonschema.Schema{}
				}
				anchors[document][name] = s
			}
		}
		for _, next := range append(sameLevel(s), levelBelow(s)...) {
			switch {
			case next == nil:
			case seen[next]:
				c.shared[next] = true
			default:
				seen[next] = true
				todo = append(todo, next)
			}
		}
	}
	if dynamic {
		c.shared, c.anchors = nil, anchors // what a schema says depends on the way to it
	}
	return c, nil
}

func weigh(s *jsonschema.Schema, weights map[*jsonschema.Schema]*weight) error {
	if w, ok := weights[s]; ok {
		if !w.done {
			return faulty(pointer(s.Location), "refers to itself")
		}
		return nil
	}
	w := &weight{chain: 1, steps: 1}
	weights[s] = w
	for _, next := range sameLevel(s) {
		if next == nil {
			continue
		}
		if err := weigh(next, weights); err != nil {
			return err
		}
		w.chain = max(w.chain, 1+weights[next].chain)
		w.steps += weights[next].steps
		if w.chain > maxChain || w.steps > maxSteps {
			return faulty(pointer(s.Location), "combines too many schemas to be checked")
		}
	}
	w.done = true
	return nil
}

// sameLevel lists the schemas that apply to the same value as s. Some may be nil.
func sameLevel(s *jsonschema.Schema) []*jsonschema.Schema {
	all := []*jsonschema.Schema{s.Ref, s.Not, s.If, s.Then, s.Else}
	if s.DynamicRef != nil {
		all = append(all, s.DynamicRef.Ref)
	}
	all = append(all, s.RecursiveRef)
	all = append(all, s.AllOf...)
	all = append(all, s.AnyOf...)
	all = append(all, s.OneOf...)
	all = slices.AppendSeq(all, maps.Values(s.DependentSchemas))
	for _, below := range s.Dependencies {
		if below, ok := below.(*jsonschema.Schema); ok {
			all = append(all, below)
		}
	}
	return all
}

// levelBelow lists the schemas that apply to members and items. Some may be nil.
func levelBelow(s *jsonschema.Schema) []*jsonschema.Schema {
	all := []*jsonschema.Schema{
		s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020, s.UnevaluatedItems, s.ContentSchema,
	}
	all = slices.AppendSeq(all, maps.Values(s.Properties))
	all = slices.AppendSeq(all, maps.Values(s.PatternProperties))
	for _, below := range []any{s.AdditionalProperties, s.Items, s.AdditionalItems} {
		switch below := below.(type) {
		case *jsonschema.Schema:
			all = append(all, below)
		case []*jsonschema.Schema:
			all = append(all, below...)
		}
	}
	return append(all, s.PrefixItems...)
}
