package schema

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// The library compiles schemas, and its Validate is what the tests compare this
// evaluation with. It is not used for values of strangers: it checks a value against a
// schema again for each way that leads to the two, which is exponential in the depth
// of a recursive schema, it keeps an error for each misfit, and nothing ends it.

// A step is about what it takes to check a number against a type. An evaluation may take
// freeSteps, and stepsPerByte for each byte of the value.
const (
	freeSteps    = 1_000_000
	stepsPerByte = 8
	// lookEvery is how many steps may be taken before the context is looked at.
	lookEvery = 4096
)

var errCostly = errors.New("takes too long to check against the schema; send less at once")

// evaluation checks one value against one schema. It belongs to one goroutine.
type evaluation struct {
	ctx    context.Context // of one call of check; an argument of each method otherwise
	of     *compiled
	scope  []string      // the documents of the schemas that led here, if of.anchors matter
	known  map[pair]bool // what has been found out of a shared schema and a value
	left   int64         // steps
	look   int64         // the value of left at which ctx is looked at again
	err    error         // why it ended early; nil if it did not
	report *report       // what misfits go to; nil while only yes or no matters
	forms  int           // how many reports of alternatives report is inside
}

// pair is a schema and a map or list of a value, by its address.
type pair struct {
	schema *jsonschema.Schema
	value  uintptr
	size   int
}

// check reports whether value, decoded from size bytes, fits a schema. Misfits go to r,
// if it is not nil. The error says why it could not be found out.
func (c *compiled) check(ctx context.Context, value any, size int, r *report) (bool, error) {
	return (&evaluation{ctx: ctx, of: c}).check(value, size, r)
}

// check does what compiled.check does.
func (e *evaluation) check(value any, size int, r *report) (bool, error) {
	e.left = freeSteps + stepsPerByte*int64(size)
	e.look = e.left - lookEvery
	if fits := e.child(e.of.root, value, nil); fits || e.err != nil || r == nil {
		return fits && e.err == nil, e.err
	}
	// It does not fit. Misfits are collected as far as a part of the steps reaches.
	e.left, e.report = max(e.left, freeSteps/4), r
	e.look = e.left - lookEvery
	e.child(e.of.root, value, nil)
	return false, context.Cause(e.ctx)
}

// spend takes steps, and reports false if the evaluation has to end.
func (e *evaluation) spend(steps int) bool {
	if e.err != nil {
		return false
	}
	e.left -= int64(steps)
	if e.left >= e.look {
		return true
	}
	e.look = e.left - lookEvery
	switch {
	case e.left < 0:
		e.err = errCostly
	case e.ctx.Err() != nil:
		e.err = context.Cause(e.ctx)
	}
	return e.err == nil
}

// misfit notes one, where they are collected, and returns false.
func (e *evaluation) misfit(path []string, format string, args ...any) bool {
	if e.report != nil {
		e.report.fault(slices.Clone(path), format, args...)
	}
	return false
}

// got is a value for the end of a misfit, where they are collected.
func (e *evaluation) got(v any) string {
	if e.report == nil {
		return ""
	}
	switch v := v.(type) {
	case map[string]any:
		e.spend(4 * len(v))
	case []any:
		e.spend(1)
	}
	return inJSON(v)
}

// enough reports whether a value that does not fit needs no further look.
func (e *evaluation) enough() bool {
	return e.err != nil || e.report == nil || e.report.full()
}

// rest is what of an object or a list no schema has applied to yet; nil maps where
// nobody asks.
type rest struct {
	members map[string]struct{}
	items   map[int]struct{}
}

func (r *rest) empty() bool { return len(r.members) == 0 && len(r.items) == 0 }

// restOf is what of v is left for those keywords of s, or of who asks, that apply to
// what no other schema applied to.
func (e *evaluation) restOf(s *jsonschema.Schema, v any, asked bool) (r rest) {
	switch v := v.(type) {
	case map[string]any:
		if s.AdditionalProperties == nil && (asked || s.UnevaluatedProperties != nil) && e.spend(len(v)) {
			r.members = make(map[string]struct{}, len(v))
			for name := range v {
				r.members[name] = struct{}{}
			}
		}
	case []any:
		from, all := positional(s)
		if !all && (asked || s.UnevaluatedItems != nil) && from < len(v) && e.spend(len(v)) {
			r.items = make(map[int]struct{}, len(v)-from)
			for i := from; i < len(v); i++ {
				r.items[i] = struct{}{}
			}
		}
	}
	return r
}

// positional returns how many items have a schema by their index, and whether all others
// have one as well.
func positional(s *jsonschema.Schema) (from int, all bool) {
	if s.DraftVersion >= 2020 {
		return len(s.PrefixItems), s.Items2020 != nil
	}
	switch items := s.Items.(type) {
	case *jsonschema.Schema:
		return 0, true
	case []*jsonschema.Schema:
		return len(items), s.AdditionalItems != nil
	}
	return 0, s.AdditionalItems != nil
}

// keep keeps of r what is in other as well.
func (r *rest) keep(other rest) {
	for name := range r.members {
		if _, ok := other.members[name]; !ok {
			delete(r.members, name)
		}
	}
	for i := range r.items {
		if _, ok := other.items[i]; !ok {
			delete(r.items, i)
		}
	}
}

// child checks a member or an item.
func (e *evaluation) child(s *jsonschema.Schema, v any, path []string) bool {
	left := e.restOf(s, v, false)
	return e.apply(s, v, path, &left, false)
}

// same checks the value itself against another schema that applies to it.
func (e *evaluation) same(s *jsonschema.Schema, v any, path []string, left *rest) bool {
	asked := !left.empty()
	own := e.restOf(s, v, asked)
	ok := e.apply(s, v, path, &own, asked)
	if ok && asked && e.spend(len(left.members)+len(left.items)) {
		left.keep(own)
	}
	return ok
}

// quietly is same where misfits do not matter.
func (e *evaluation) quietly(s *jsonschema.Schema, v any, left *rest) bool {
	report := e.report
	e.report = nil
	ok := e.same(s, v, nil, left)
	e.report = report
	return ok
}

// dynamic returns the schema that the $dynamicRef or $recursiveRef of s leads to: that of
// the first document on the way here which has one. It returns nil if s has neither.
func (e *evaluation) dynamic(s *jsonschema.Schema) *jsonschema.Schema {
	if next := s.RecursiveRef; next != nil {
		if !next.RecursiveAnchor {
			return next
		}
		return e.outermost(recursiveAnchor, next)
	}
	ref := s.DynamicRef
	if ref == nil {
		return nil
	}
	if ref.Anchor == "" || ref.Ref.DynamicAnchor != ref.Anchor {
		return ref.Ref
	}
	return e.outermost(ref.Anchor, ref.Ref)
}

func (e *evaluation) outermost(anchor string, otherwise *jsonschema.Schema) *jsonschema.Schema {
	for _, document := range e.scope {
		if s := e.of.anchors[document][anchor]; s != nil {
			return s
		}
	}
	return otherwise
}

// enter notes that s is being applied, and returns what ends that.
func (e *evaluation) enter(s *jsonschema.Schema) (leave func()) {
	before := e.scope
	if document := documentOf(s); len(before) == 0 || before[len(before)-1] != document {
		e.scope = append(before, document)
	}
	return func() { e.scope = before }
}

// apply is keywords of which the outcome is kept where several ways lead to the same
// schema and value. asked says that the outcome is not all: left is wanted as well.
func (e *evaluation) apply(s *jsonschema.Schema, v any, path []string, left *rest, asked bool) bool {
	if e.of.anchors != nil {
		defer e.enter(s)()
	}
	at := pair{schema: s}
	if asked || !e.of.shared[s] || !at.locate(v) {
		return e.keywords(s, v, path, left)
	}
	ok, found := e.known[at]
	if found && (ok || e.report == nil) {
		return e.spend(1) && ok
	}
	ok = e.keywords(s, v, path, left)
	if e.err == nil && !found {
		if e.known == nil {
			e.known = map[pair]bool{}
		}
		e.known[at] = ok
	}
	return ok
}

// locate notes where a map or a list is that is not empty.
func (p *pair) locate(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		p.value, p.size = reflect.ValueOf(v).Pointer(), -1
		return len(v) > 0
	case []any:
		p.value, p.size = reflect.ValueOf(v).Pointer(), len(v)
		return len(v) > 0
	}
	return false
}

// keywords checks v against all that s says. It follows the order of the library.
func (e *evaluation) keywords(s *jsonschema.Schema, v any, path []string, left *rest) bool {
	if !e.spend(1) {
		return false
	}
	if s.Bool != nil {
		return *s.Bool || e.misfit(path, "is not allowed")
	}
	if !e.value(s, v, path) {
		return false
	}
	ok := true
	if s.Ref != nil {
		ok = e.same(s.Ref, v, path, left)
		if s.DraftVersion < 2019 {
			return ok
		}
	}
	if !ok && e.enough() {
		return false
	}
	switch v := v.(type) {
	case map[string]any:
		ok = e.object(s, v, path, left) && ok
	case []any:
		ok = e.list(s, v, path, left) && ok
	case string:
		ok = e.text(s, v, path) && ok
	case json.Number:
		ok = e.number(s, v, path) && ok
	}
	if !ok && e.enough() {
		return false
	}
	if next := e.dynamic(s); next != nil {
		ok = e.same(next, v, path, left) && ok
	}
	ok = e.combined(s, v, path, left) && ok
	if !ok && e.enough() {
		return false
	}
	return e.unevaluated(s, v, path, left) && ok
}

// combined checks the keywords that combine schemas.
func (e *evaluation) combined(s *jsonschema.Schema, v any, path []string, left *rest) bool {
	ok := true
	if s.Not != nil && e.quietly(s.Not, v, left) {
		ok = e.misfit(path, "has a form that is not allowed, got %s", e.got(v))
	}
	for _, one := range s.AllOf {
		if !e.same(one, v, path, left) {
			if ok = false; e.enough() {
				return false
			}
		}
	}
	if len(s.AnyOf) > 0 && !e.anyOf(s.AnyOf, v, left) {
		ok = e.alternatives(s.AnyOf, v, path)
	}
	if len(s.OneOf) > 0 {
		switch e.countOf(s.OneOf, v, left) {
		case 0:
			ok = e.alternatives(s.OneOf, v, path)
		case 1:
		default:
			ok = e.misfit(path, "matches more than one of the forms, but must match exactly one, got %s", e.got(v))
		}
	}
	if s.If != nil {
		branch := s.Else
		if e.quietly(s.If, v, left) {
			branch = s.Then
		}
		if branch != nil {
			ok = e.same(branch, v, path, left) && ok
		}
	}
	return ok && e.err == nil
}

// anyOf reports whether v fits one of some forms. Where what is left matters, all of them
// are looked at.
func (e *evaluation) anyOf(forms []*jsonschema.Schema, v any, left *rest) (fits bool) {
	for _, form := range forms {
		if e.quietly(form, v, left) {
			if fits = true; left.empty() {
				return true
			}
		}
	}
	return fits
}

// countOf counts the forms that v fits, up to two.
func (e *evaluation) countOf(forms []*jsonschema.Schema, v any, left *rest) (fit int) {
	for _, form := range forms {
		if e.quietly(form, v, left) {
			if fit++; fit == 2 {
				return fit
			}
		}
	}
	return fit
}

const (
	// mostForms is how many forms a misfit describes.
	mostForms = 4
	// deepestForms is how many levels of forms within forms are described.
	deepestForms = 2
)

// alternatives puts what each of some forms wants into one misfit.
func (e *evaluation) alternatives(forms []*jsonschema.Schema, v any, path []string) bool {
	if e.enough() {
		return false
	}
	if e.forms >= deepestForms {
		return e.misfit(path, "fits none of the forms that it may have, got %s", e.got(v))
	}
	outer := e.report
	var texts []string
	for i, form := range forms {
		if len(texts) == mostForms {
			texts = append(texts, fmt.Sprintf("%d other forms", len(forms)-i))
			break
		}
		e.report = &report{root: outer.root, most: maxMisfits}
		e.forms++
		e.same(form, v, path, &rest{})
		e.forms--
		if text := e.report.asForm(path); text != "" && !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	e.report = outer
	return e.misfit(path, "%s", strings.Join(texts, "; or "))
}

func (e *evaluation) unevaluated(s *jsonschema.Schema, v any, path []string, left *rest) bool {
	ok := true
	switch v := v.(type) {
	case map[string]any:
		if s.UnevaluatedProperties == nil {
			break
		}
		for _, name := range e.namesOf(left.members) {
			if !e.child(s.UnevaluatedProperties, v[name], append(path, name)) {
				if ok = false; e.enough() {
					return false
				}
			}
		}
		left.members = nil
	case []any:
		if s.UnevaluatedItems == nil {
			break
		}
		for i := range v {
			if _, has := left.items[i]; has && !e.child(s.UnevaluatedItems, v[i], append(path, strconv.Itoa(i))) {
				if ok = false; e.enough() {
					return false
				}
			}
		}
		left.items = nil
	}
	return ok
}
