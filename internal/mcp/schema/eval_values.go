package schema

import (
	"encoding/json"
	"hash/maphash"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// namesOf lists the keys of a map: sorted where misfits are collected, so that they are
// always the same.
func (e *evaluation) namesOf(of map[string]struct{}) []string {
	if e.report != nil && e.spend(4*len(of)) {
		return slices.Sorted(maps.Keys(of))
	}
	return slices.Collect(maps.Keys(of))
}

func (e *evaluation) object(s *jsonschema.Schema, v map[string]any, path []string, left *rest) bool {
	ok := true
	if s.MinProperties != nil && len(v) < *s.MinProperties {
		ok = e.misfit(path, atLeast, *s.MinProperties, "members", len(v))
	}
	if s.MaxProperties != nil && len(v) > *s.MaxProperties {
		ok = e.misfit(path, atMost, *s.MaxProperties, "members", len(v))
	}
	ok = e.required(s.Required, v, path, "is required") && ok
	for _, name := range e.sorted(s.Dependencies) {
		if _, has := v[name]; !has {
			continue
		}
		switch needs := s.Dependencies[name].(type) {
		case []string:
			ok = e.required(needs, v, path, "is required when "+name+" is given") && ok
		case *jsonschema.Schema:
			ok = e.same(needs, v, path, left) && ok
		}
	}
	if !ok && e.enough() {
		return false
	}
	ok = e.members(s, v, path, left) && ok
	if !ok && e.enough() {
		return false
	}
	if s.PropertyNames != nil {
		ok = e.propertyNames(s, v, path) && ok
	}
	for _, name := range keysOf(e, s.DependentSchemas) {
		if _, has := v[name]; has {
			ok = e.same(s.DependentSchemas[name], v, path, left) && ok
		}
	}
	for _, name := range keysOf(e, s.DependentRequired) {
		if _, has := v[name]; has {
			ok = e.required(s.DependentRequired[name], v, path, "is required when "+name+" is given") && ok
		}
	}
	return ok
}

// sorted lists the names of dependencies.
func (e *evaluation) sorted(of map[string]any) []string { return keysOf(e, of) }

// keysOf lists the keys of a map of the schema's: sorted where misfits are collected.
func keysOf[V any](e *evaluation, of map[string]V) []string {
	if len(of) == 0 || !e.spend(len(of)) {
		return nil
	}
	names := slices.Collect(maps.Keys(of))
	if e.report != nil {
		slices.Sort(names)
	}
	return names
}

// required checks that names are members.
func (e *evaluation) required(names []string, v map[string]any, path []string, why string) bool {
	ok := e.spend(len(names))
	for _, name := range names {
		if _, has := v[name]; !has {
			e.misfit(append(path, name), "%s", why)
			if ok = false; e.enough() {
				return false
			}
		}
	}
	return ok
}

// members checks the members of an object, each against the schemas that its name has.
func (e *evaluation) members(s *jsonschema.Schema, v map[string]any, path []string, left *rest) bool {
	if s.Properties == nil && s.PatternProperties == nil && s.AdditionalProperties == nil {
		return true
	}
	ok := true
	each := func(name string) (more bool) {
		at := path
		if e.report != nil {
			at = append(path, name)
		}
		if !e.member(s, name, v[name], at, left) {
			ok = false
			return !e.enough()
		}
		return true
	}
	if e.report == nil {
		for name := range v {
			if !each(name) {
				return false
			}
		}
		return ok
	}
	for _, name := range keysOf(e, v) {
		if !each(name) {
			return false
		}
	}
	return ok
}

func (e *evaluation) member(s *jsonschema.Schema, name string, value any, path []string, left *rest) bool {
	ok, known := e.spend(1), false
	if one := s.Properties[name]; one != nil {
		known = true
		ok = e.child(one, value, path) && ok
	}
	for re, one := range s.PatternProperties {
		if e.matches(re, name) {
			known = true
			ok = e.child(one, value, path) && ok
		}
	}
	if !known {
		switch more := s.AdditionalProperties.(type) {
		case bool:
			known = true
			if !more {
				ok = false
				if e.report != nil {
					e.report.unknown(slices.Clone(path))
				}
			}
		case *jsonschema.Schema:
			known = true
			ok = e.child(more, value, path) && ok
		}
	}
	if known {
		delete(left.members, name)
	}
	return ok && e.err == nil
}

func (e *evaluation) propertyNames(s *jsonschema.Schema, v map[string]any, path []string) bool {
	ok := true
	for _, name := range keysOf(e, v) {
		if !e.quietly(s.PropertyNames, name, &rest{}) {
			e.misfit(path, "must not have a member named %s", inJSON(name))
			if ok = false; e.enough() {
				return false
			}
		}
	}
	return ok
}

func (e *evaluation) list(s *jsonschema.Schema, v []any, path []string, left *rest) bool {
	ok := true
	if s.MinItems != nil && len(v) < *s.MinItems {
		ok = e.misfit(path, atLeast, *s.MinItems, "items", len(v))
	}
	if s.MaxItems != nil && len(v) > *s.MaxItems {
		ok = e.misfit(path, atMost, *s.MaxItems, "items", len(v))
	}
	if s.UniqueItems {
		if i, j, twice := e.duplicates(v); twice {
			ok = e.misfit(path, "items must be unique, but [%d] and [%d] are equal", i, j)
		}
	}
	if !ok && e.enough() {
		return false
	}
	ok = e.items(s, v, path) && ok
	if !ok && e.enough() {
		return false
	}
	return e.contains(s, v, path, left) && ok
}

// items checks the items that have a schema by their index, and the others.
func (e *evaluation) items(s *jsonschema.Schema, v []any, path []string) bool {
	byIndex, more := s.PrefixItems, s.Items2020
	if s.DraftVersion < 2020 {
		switch items := s.Items.(type) {
		case *jsonschema.Schema:
			byIndex, more = nil, items
		case []*jsonschema.Schema:
			byIndex = items
		}
		if _, all := s.Items.(*jsonschema.Schema); !all {
			switch additional := s.AdditionalItems.(type) {
			case bool:
				if !additional && len(v) > len(byIndex) {
					e.misfit(path, "has %d items too many", len(v)-len(byIndex))
					if e.enough() {
						return false
					}
					e.each(byIndex, nil, v[:len(byIndex)], path)
					return false
				}
			case *jsonschema.Schema:
				more = additional
			}
		}
	}
	return e.each(byIndex, more, v, path)
}

// each checks the first items against a schema each, and all others against more, if
// that is not nil.
func (e *evaluation) each(byIndex []*jsonschema.Schema, more *jsonschema.Schema, v []any, path []string) bool {
	ok := true
	for i, item := range v {
		s := more
		if i < len(byIndex) {
			s = byIndex[i]
		}
		if s == nil {
			break
		}
		at := path
		if e.report != nil {
			at = append(path, strconv.Itoa(i))
		}
		if !e.child(s, item, at) {
			if ok = false; e.enough() {
				return false
			}
		}
	}
	return ok
}

func (e *evaluation) contains(s *jsonschema.Schema, v []any, path []string, left *rest) bool {
	if s.Contains == nil {
		return true
	}
	matched := 0
	report := e.report
	e.report = nil
	for i, item := range v {
		if e.child(s.Contains, item, nil) {
			matched++
			if s.DraftVersion >= 2020 {
				delete(left.items, i)
			}
		}
	}
	e.report = report
	const what = "items of the wanted form"
	ok := e.err == nil
	switch {
	case s.MinContains != nil && matched < *s.MinContains:
		ok = e.misfit(path, atLeast, *s.MinContains, what, matched)
	case s.MinContains == nil && matched == 0:
		ok = e.misfit(path, "must have an item of the wanted form")
	}
	if s.MaxContains != nil && matched > *s.MaxContains {
		ok = e.misfit(path, atMost, *s.MaxContains, what, matched)
	}
	return ok
}

// equal reports whether two values are the same one: numbers by their size.
func (e *evaluation) equal(a, b any) bool {
	if !e.spend(1) {
		return false
	}
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for name, value := range a {
			if other, ok := b[name]; !ok || !e.equal(value, other) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, e.equal)
	case string:
		b, ok := b.(string)
		return ok && e.spend(min(len(a), len(b))/64) && a == b
	case json.Number:
		b, ok := b.(json.Number)
		if !ok {
			return false
		}
		if a == b {
			return true
		}
		if !strings.ContainsAny(string(a), ".eE") && !strings.ContainsAny(string(b), ".eE") && a != "-0" && b != "-0" {
			return false
		}
		return e.rational(a).Cmp(e.rational(b)) == 0
	}
	return a == b // nil or a truth value
}

// duplicates returns the first two items of a list that are equal.
func (e *evaluation) duplicates(v []any) (i, j int, twice bool) {
	seen := make(map[uint64][]int, min(len(v), 1024))
	var hash maphash.Hash
	hash.SetSeed(itemsSeed)
	for j, item := range v {
		hash.Reset()
		e.hash(&hash, item)
		sum := hash.Sum64()
		for _, i := range seen[sum] {
			if e.equal(v[i], item) {
				return i, j, true
			}
		}
		if !e.spend(4) {
			return 0, 0, false
		}
		seen[sum] = append(seen[sum], j)
	}
	return 0, 0, false
}

var itemsSeed = maphash.MakeSeed()

// hash adds a value to a hash, so that what is equal has the same one.
func (e *evaluation) hash(h *maphash.Hash, v any) {
	switch v := v.(type) {
	case map[string]any:
		_ = h.WriteByte('{') // a hash never fails
		if !e.spend(4 * len(v)) {
			return
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			e.hash(h, name)
			e.hash(h, v[name])
		}
	case []any:
		_ = h.WriteByte('[')
		if !e.spend(len(v)) {
			return
		}
		for _, item := range v {
			e.hash(h, item)
		}
		_ = h.WriteByte(']')
	case string:
		e.spend(1 + len(v)/64)
		_ = h.WriteByte('"')
		_, _ = h.WriteString(v)
		_ = h.WriteByte('"')
	case json.Number:
		_ = h.WriteByte('0')
		if !strings.ContainsAny(string(v), ".eE") && v != "-0" {
			_, _ = h.WriteString(string(v))
			return
		}
		_, _ = h.WriteString(e.rational(v).RatString())
	case bool:
		_ = h.WriteByte('f')
		if v {
			_ = h.WriteByte('t')
		}
	default:
		_ = h.WriteByte('n')
	}
}
