package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// maxMisfits is how many misfits of one value are listed.
const maxMisfits = 10

// report collects what does not fit, in words that a model can act on.
type report struct {
	root   any                           // the whole value
	known  map[string]*jsonschema.Schema // the members that root may have
	faults []Fault
}

// String lists the misfits as "count: must be an integer, got "abc"; …".
func (r *report) String() string {
	faults := r.sorted()
	more := ""
	if len(faults) > maxMisfits {
		more = fmt.Sprintf("; and %d more", len(faults)-maxMisfits)
		faults = faults[:maxMisfits]
	}
	texts := make([]string, len(faults))
	for i, f := range faults {
		texts[i] = f.Msg
		if name := r.name(f.Path); name != "" {
			texts[i] = name + ": " + f.Msg
		}
	}
	return strings.Join(texts, "; ") + more
}

// names lists where the misfits are, without a word of what is there.
func (r *report) names() string {
	var names []string
	for _, f := range r.sorted() {
		if name := r.name(f.Path); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) > maxMisfits {
		names = append(names[:maxMisfits], "…")
	}
	return strings.Join(names, ", ")
}

// sorted returns the misfits in a stable order, since the validator walks maps.
func (r *report) sorted() []Fault {
	slices.SortFunc(r.faults, func(a, b Fault) int {
		if c := slices.Compare(a.Path, b.Path); c != 0 {
			return c
		}
		return strings.Compare(a.Msg, b.Msg)
	})
	return slices.CompactFunc(r.faults, func(a, b Fault) bool {
		return a.Msg == b.Msg && slices.Equal(a.Path, b.Path)
	})
}

// add goes down to the errors that say something.
func (r *report) add(e *jsonschema.ValidationError) {
	path := e.InstanceLocation
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		for _, name := range k.Missing {
			r.fault(append(slices.Clone(path), name), "is required")
		}
	case *kind.AdditionalProperties:
		for _, name := range k.Properties {
			r.unknown(path, name)
		}
	case *kind.DependentRequired:
		r.needed(path, k.Prop, k.Missing)
	case *kind.Dependency:
		r.needed(path, k.Prop, k.Missing)
	case *kind.PropertyNames:
		r.fault(path, "must not have a member named %s", inJSON(k.Property))
	case *kind.AnyOf:
		r.alternatives(e)
	case *kind.OneOf:
		if len(k.Subschemas) > 1 {
			r.fault(path, "fits more than one of the forms of which it must fit exactly one, got %s", r.got(path))
			return
		}
		r.alternatives(e)
	default:
		if len(e.Causes) == 0 {
			r.fault(path, "%s", r.describe(e))
		}
		for _, cause := range e.Causes {
			r.add(cause)
		}
	}
}

func (r *report) fault(path []string, format string, args ...any) {
	r.faults = append(r.faults, Fault{Path: path, Msg: fmt.Sprintf(format, args...)})
}

func (r *report) unknown(path []string, name string) {
	at := append(slices.Clone(path), name)
	if len(path) > 0 || len(r.known) == 0 || len(r.known) > maxMisfits {
		r.fault(at, "is not known here")
		return
	}
	names := slices.Sorted(maps.Keys(r.known))
	r.fault(at, "is not known here; known are %s", strings.Join(names, ", "))
}

func (r *report) needed(path []string, with string, missing []string) {
	for _, name := range missing {
		r.fault(append(slices.Clone(path), name), "is required when %s is given", with)
	}
}

// alternatives puts what each form of an anyOf or oneOf wants into one misfit.
func (r *report) alternatives(e *jsonschema.ValidationError) {
	var forms []string
	for _, cause := range e.Causes {
		form := report{root: r.root}
		form.add(cause)
		var wants []string
		for _, f := range form.sorted() {
			text := f.Msg
			if !slices.Equal(f.Path, e.InstanceLocation) {
				text = r.name(f.Path) + " " + f.Msg
			}
			wants = append(wants, text)
		}
		if text := strings.Join(wants, " and "); !slices.Contains(forms, text) {
			forms = append(forms, text)
		}
	}
	const most = 4
	if len(forms) > most {
		forms = append(forms[:most], fmt.Sprintf("%d other forms", len(forms)-most))
	}
	r.fault(e.InstanceLocation, "%s", strings.Join(forms, "; or "))
}

// name gives a path as people write it: items[2].name.
func (r *report) name(path []string) string {
	var name strings.Builder
	value := r.root
	for _, token := range path {
		switch at := value.(type) {
		case []any:
			name.WriteString("[" + token + "]")
			value = member(at, token)
		default:
			if name.Len() > 0 {
				name.WriteByte('.')
			}
			name.WriteString(shorten(token))
			value = member(at, token)
		}
	}
	return name.String()
}

// got gives the value at path for the end of a message.
func (r *report) got(path []string) string {
	value := r.root
	for _, token := range path {
		value = member(value, token)
	}
	return inJSON(value)
}

func member(value any, token string) any {
	switch value := value.(type) {
	case map[string]any:
		return value[token]
	case []any:
		if i, err := strconv.Atoi(token); err == nil && i >= 0 && i < len(value) {
			return value[i]
		}
	}
	return nil
}

// inJSON gives a value as short JSON.
func inJSON(value any) string {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return "a value that is not JSON"
	}
	return shorten(strings.TrimSuffix(out.String(), "\n"))
}

// shorten cuts a text to 80 bytes.
func shorten(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	s = s[:most]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s + "…"
}
