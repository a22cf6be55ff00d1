package simple

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"text/template"
)

// function is what a template can call.
type function struct {
	least int  // how many arguments it must have
	more  bool // whether it may have more
	do    func(r *rendering, args []any) (any, error)
}

// functions are those of text/template. Those without do are evaluated by call.
var functions = map[string]function{
	"and": {1, true, nil},
	"or":  {1, true, nil},
	"not": {1, false, func(_ *rendering, args []any) (any, error) { return !truth(args[0]), nil }},
	"call": {1, true, func(_ *rendering, args []any) (any, error) {
		return nil, fmt.Errorf("non-function of type %T", args[0])
	}}, // no value is one
	"index":    {1, true, index},
	"slice":    {1, true, slice},
	"len":      {1, false, length},
	"eq":       {1, true, equal},
	"ne":       {2, false, unequal},
	"lt":       comparison(func(less, _ bool) bool { return less }),
	"le":       comparison(func(less, same bool) bool { return less || same }),
	"gt":       comparison(func(less, same bool) bool { return !less && !same }),
	"ge":       comparison(func(less, _ bool) bool { return !less }),
	"print":    formatting(fmt.Sprint),
	"println":  formatting(fmt.Sprintln),
	"html":     formatting(template.HTMLEscaper),
	"js":       formatting(template.JSEscaper),
	"urlquery": formatting(template.URLQueryEscaper),
	"printf":   {1, true, (*rendering).printf},
}

// formatting returns a function that formats its arguments.
func formatting(write func(shown ...any) string) function {
	return function{0, true, func(r *rendering, args []any) (any, error) {
		made, err := r.made(args, write)
		if err == nil && len(args) == 1 && isNumber(args[0]) && made == textOf(args[0]) {
			made = negative(made)
		}
		return made, err
	}}
}

// negative returns a text that a number was made into: if it is negative, as a number still, which is a value and not an
// option.
func negative(text any) any {
	s, ok := text.(string)
	if !ok || !strings.HasPrefix(s, "-") || strings.Trim(s, "0123456789.eE+-") != "" {
		return text
	}
	if _, err := strconv.ParseFloat(s, 64); err != nil && !errors.Is(err, strconv.ErrRange) {
		return text // a part of one
	}
	return json.Number(s)
}

// printsNumber reports whether a format prints one number, and no sign of its own.
func printsNumber(format string) bool {
	verb := strings.TrimLeft(strings.TrimPrefix(format, "%"), "+0123456789.")
	return strings.HasPrefix(format, "%") && len(verb) == 1 && strings.Contains("dvfeg", verb)
}

// widened returns a value that is compared or repeated: integers are int64, and numbers that are kept
// as digits are text.
func widened(v any) any {
	switch v := v.(type) {
	case int:
		return int64(v)
	case uint8: // a byte of a string
		return int64(v)
	case json.Number:
		return string(v)
	}
	return v
}

// objectOf returns the members of an object. null has none.
func objectOf(v any) (map[string]any, bool) {
	switch v := v.(type) {
	case map[string]any:
		return v, true
	case null:
		return v, true
	}
	return nil, false
}

// truth reports whether a value is not false, zero, empty or missing.
func truth(v any) bool {
	switch v := widened(v).(type) {
	case nil:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case complex128:
		return v != 0
	}
	n, _ := size(v)
	return n > 0
}

// size returns the number of a value's bytes, elements or members.
func size(v any) (n int, ok bool) {
	switch v := widened(v).(type) {
	case string:
		return len(v), true
	case []any:
		return len(v), true
	}
	object, ok := objectOf(v)
	return len(object), ok
}

func length(_ *rendering, args []any) (any, error) {
	n, ok := size(args[0])
	if !ok {
		return nil, fmt.Errorf("len of type %T", args[0])
	}
	return n, nil
}

func index(_ *rendering, args []any) (any, error) {
	item := args[0]
	for i, at := range args {
		if item == nil {
			return nil, errors.New("index of nil")
		}
		if i == 0 {
			continue
		}
		if object, ok := objectOf(item); ok {
			key, ok := at.(string)
			if !ok {
				return nil, fmt.Errorf("value has type %T; should be string", at)
			}
			item = object[key]
			continue
		}
		n, ok := size(item)
		if !ok {
			return nil, fmt.Errorf("can't index item of type %T", item)
		}
		place, err := position(at, n-1)
		if err != nil {
			return nil, err
		}
		if list, ok := item.([]any); ok {
			item = list[place]
		} else {
			item = widened(item).(string)[place] //nolint:forcetypeassert // it has a size
		}
	}
	return item, nil
}

// position returns an index from 0 to last.
func position(v any, last int) (int, error) {
	i, ok := widened(v).(int64)
	switch {
	case !ok:
		return 0, fmt.Errorf("cannot index slice/array with type %T", v)
	case i < 0 || i > int64(last):
		return 0, fmt.Errorf("index out of range: %d", i)
	}
	return int(i), nil
}

func slice(_ *rendering, args []any) (any, error) {
	text, isText := widened(args[0]).(string)
	list, isList := args[0].([]any)
	from, most := [3]int{0, len(text) + len(list), cap(list)}, len(text)+cap(list)
	switch {
	case !isText && !isList:
		return nil, fmt.Errorf("can't slice item of type %T", args[0])
	case len(args) > 4 || isText && len(args) > 3:
		return nil, fmt.Errorf("too many slice indexes: %d", len(args)-1)
	}
	for i, arg := range args[1:] {
		var err error
		if from[i], err = position(arg, most); err != nil {
			return nil, err
		}
	}
	switch {
	case from[0] > from[1]:
		return nil, fmt.Errorf("invalid slice index: %d > %d", from[0], from[1])
	case isText:
		return text[from[0]:from[1]], nil
	case from[1] > from[2]:
		return nil, fmt.Errorf("invalid slice index: %d > %d", from[1], from[2])
	}
	return list[from[0]:from[1]:from[2]], nil
}

// equal reports whether the first value is the same as one of the others.
func equal(r *rendering, args []any) (any, error) {
	if len(args) == 1 {
		return nil, errors.New("missing argument for comparison")
	}
	if err := r.reads(args...); err != nil {
		return false, err
	}
	for _, other := range args[1:] {
		if is, err := same(args[0], other); is || err != nil {
			return is, err
		}
	}
	return false, nil
}

// unequal is for any two values, also those without an order.
func unequal(r *rendering, args []any) (any, error) {
	is, err := equal(r, args)
	return is != true, err
}

// same reports whether two values are equal. Lists and objects can be compared only with what is missing.
func same(a, b any) (bool, error) {
	a, b = widened(a), widened(b)
	if absent(a) || absent(b) {
		_, objectA := objectOf(a)
		_, objectB := objectOf(b)
		if a == nil || b == nil || objectA && objectB {
			return absent(a) && absent(b), nil
		}
	}
	kind := reflect.TypeOf(a)
	if kind != reflect.TypeOf(b) || !kind.Comparable() {
		return false, fmt.Errorf("incompatible types for comparison: %T and %T", a, b)
	}
	return a == b, nil
}

// absent reports whether a value is missing or null.
func absent(v any) bool {
	object, isObject := objectOf(v)
	return v == nil || isObject && object == nil
}

// reads counts texts that are compared.
func (r *rendering) reads(values ...any) error {
	for _, v := range values {
		if text, ok := v.(string); ok {
			if err := r.work.read(len(text)); err != nil {
				return err
			}
		}
	}
	return nil
}

// comparison returns a function that compares two values by their order.
func comparison(holds func(less, same bool) bool) function {
	return function{2, false, func(r *rendering, args []any) (any, error) {
		if err := r.reads(args...); err != nil {
			return nil, err
		}
		var less bool
		a, b := widened(args[0]), widened(args[1])
		switch x := a.(type) {
		case int64:
			y, _ := b.(int64)
			less = x < y
		case float64:
			y, _ := b.(float64)
			less = x < y
		case string:
			y, _ := b.(string)
			less = x < y
		default:
			return nil, errors.New("invalid type for comparison")
		}
		if reflect.TypeOf(a) != reflect.TypeOf(b) {
			return nil, fmt.Errorf("incompatible types for comparison: %T and %T", a, b)
		}
		return holds(less, a == b), nil
	}}
}
