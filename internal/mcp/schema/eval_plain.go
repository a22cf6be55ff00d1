package schema

import (
	"encoding/json"
	"math/big"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// value checks what does not depend on the parts of v.
func (e *evaluation) value(s *jsonschema.Schema, v any, path []string) bool {
	if s.Types != nil && !s.Types.IsEmpty() && !e.hasType(s.Types, v) {
		return e.misfit(path, "must be %s, got %s", withArticles(s.Types.ToStrings()), e.got(v))
	}
	if s.Const != nil && !e.equal(v, *s.Const) {
		return e.misfit(path, "must be %s, got %s", inJSON(*s.Const), e.got(v))
	}
	if s.Enum != nil && !slices.ContainsFunc(s.Enum.Values, func(item any) bool { return e.equal(v, item) }) {
		if e.report == nil {
			return false
		}
		return e.misfit(path, "must be %s, got %s", oneOf(s.Enum.Values), e.got(v))
	}
	if s.Format != nil && !e.formatted(s.Format, v) {
		return e.misfit(path, "must be a valid %s, got %s", s.Format.Name, e.got(v))
	}
	return true
}

func (e *evaluation) hasType(types *jsonschema.Types, v any) bool {
	kind := ""
	switch v := v.(type) {
	case nil:
		kind = "null"
	case bool:
		kind = "boolean"
	case string:
		kind = "string"
	case []any:
		kind = "array"
	case map[string]any:
		kind = "object"
	case json.Number:
		if has(types, "number") {
			return true
		}
		if !has(types, "integer") {
			return false
		}
		return !strings.ContainsAny(v.String(), ".eE") || e.rational(v).IsInt()
	}
	return has(types, kind)
}

// has reports whether types has one of a name.
func has(types *jsonschema.Types, kind string) bool {
	var one jsonschema.Types
	one.Add(kind)
	return *types&one != 0
}

// rational returns a number, whose size is bounded, as one to compute with.
func (e *evaluation) rational(n json.Number) *big.Rat {
	e.spend(8 + len(n)/4)
	r, ok := new(big.Rat).SetString(n.String())
	if !ok { // it is JSON
		return new(big.Rat)
	}
	return r
}

func (e *evaluation) formatted(format *jsonschema.Format, v any) bool {
	text, ok := v.(string)
	if !ok {
		return true
	}
	if !e.spend(len(text) / 4) {
		return false
	}
	if format.Name == "regex" { // the library's would use, and spend, what the schema's patterns may
		return len(text) <= maxPattern && e.spend(16*len(text)+stepsToParse*min(costToParse(text), maxParsed)) && compiles(text)
	}
	return format.Validate(text) == nil
}

func (e *evaluation) text(s *jsonschema.Schema, v string, path []string) bool {
	ok := true
	if s.MinLength != nil || s.MaxLength != nil {
		e.spend(len(v) / 16)
		n := utf8.RuneCountInString(v)
		if s.MinLength != nil && n < *s.MinLength {
			ok = e.misfit(path, atLeast, *s.MinLength, "characters", n)
		}
		if s.MaxLength != nil && n > *s.MaxLength {
			ok = e.misfit(path, atMost, *s.MaxLength, "characters", n)
		}
	}
	if s.Pattern != nil && !e.matches(s.Pattern, v) {
		ok = e.misfit(path, "must match the pattern %s, got %s", shorten(s.Pattern.String()), e.got(v))
	}
	return ok
}

const (
	atLeast = "must have at least %d %s, got %d"
	atMost  = "must have at most %d %s, got %d"
)

// matches matches a text. An expression may look at each character once for each of its
// instructions.
func (e *evaluation) matches(re jsonschema.Regexp, text string) bool {
	size := 1
	if p, ok := re.(*pattern); ok {
		size += p.size
	}
	return e.spend(1+len(text)/8+len(text)*size/16) && re.MatchString(text)
}

func (e *evaluation) number(s *jsonschema.Schema, v json.Number, path []string) bool {
	if s.Minimum == nil && s.Maximum == nil && s.ExclusiveMinimum == nil && s.ExclusiveMaximum == nil && s.MultipleOf == nil {
		return true
	}
	n, ok := e.rational(v), true
	for _, bound := range []struct {
		is   *big.Rat
		fits func(sign int) bool
		want string
	}{
		{s.Minimum, func(sign int) bool { return sign >= 0 }, "at least"},
		{s.Maximum, func(sign int) bool { return sign <= 0 }, "at most"},
		{s.ExclusiveMinimum, func(sign int) bool { return sign > 0 }, "above"},
		{s.ExclusiveMaximum, func(sign int) bool { return sign < 0 }, "below"},
	} {
		if bound.is != nil && !bound.fits(n.Cmp(bound.is)) {
			ok = e.misfit(path, "must be %s %s, got %s", bound.want, decimal(bound.is), e.got(v))
		}
	}
	if s.MultipleOf != nil && e.spend(16) && !new(big.Rat).Quo(n, s.MultipleOf).IsInt() {
		ok = e.misfit(path, "must be a multiple of %s, got %s", decimal(s.MultipleOf), e.got(v))
	}
	return ok
}
