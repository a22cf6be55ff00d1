package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/orla-project/orla/internal/observe/brief"
)

// maxMisfits is how many misfits of one value are listed.
const maxMisfits = 10

// mostCollected is how many misfits are collected to be counted.
const mostCollected = 1000

// report collects what does not fit, in words that a model can act on.
type report struct {
	root   any                           // the whole value
	known  map[string]*jsonschema.Schema // the members that root may have
	most   int                           // how many faults are collected
	faults []Fault
}

// full reports whether no more misfits are collected.
func (r *report) full() bool { return len(r.faults) >= r.most }

// String lists the misfits as "count: must be an integer, got "abc"; …".
func (r *report) String() string {
	faults := r.sorted()
	more := ""
	if len(faults) > maxMisfits {
		atLeast := ""
		if r.full() {
			atLeast = "at least "
		}
		more = fmt.Sprintf("; and %s%d more", atLeast, len(faults)-maxMisfits)
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
			if len(names) == maxMisfits {
				return strings.Join(names, ", ") + ", …"
			}
			names = append(names, name)
		}
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

// asForm says on one line what a form of the value at path wants.
func (r *report) asForm(path []string) string {
	var wants []string
	for _, f := range r.sorted() {
		text := f.Msg
		if !slices.Equal(f.Path, path) {
			text = r.name(f.Path) + " " + f.Msg
		}
		wants = append(wants, text)
	}
	return strings.Join(wants, " and ")
}

// add goes down to the errors of the compiler that say something.
func (r *report) add(e *jsonschema.ValidationError) {
	if r.full() {
		return
	}
	path := e.InstanceLocation
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		for _, name := range k.Missing {
			r.fault(append(slices.Clone(path), name), "is required")
		}
	case *kind.AdditionalProperties:
		for _, name := range k.Properties {
			r.unknown(append(slices.Clone(path), name))
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
			r.fault(path, "matches more than one of the forms, but must match exactly one, got %s", r.got(path))
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

// unknown notes a member that is not allowed.
func (r *report) unknown(at []string) {
	if len(at) > 1 || len(r.known) == 0 || len(r.known) > maxMisfits {
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
		form := report{root: r.root, most: maxMisfits}
		form.add(cause)
		if text := form.asForm(e.InstanceLocation); !slices.Contains(forms, text) {
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

// mostShown is how many bytes of a value a misfit shows.
const mostShown = 80

// inJSON gives a value as short JSON.
func inJSON(value any) string {
	return shorten(string(appendShort(nil, value)))
}

// appendShort appends a value as JSON, and stops when there is more than will be shown.
func appendShort(out []byte, value any) []byte {
	switch value := value.(type) {
	case map[string]any:
		out = append(out, '{')
		for i, name := range slices.Sorted(maps.Keys(value)) {
			if len(out) > mostShown {
				return out
			}
			if i > 0 {
				out = append(out, ',')
			}
			out = appendShort(append(appendShort(out, name), ':'), value[name])
		}
		return append(out, '}')
	case []any:
		out = append(out, '[')
		for i, item := range value {
			if len(out) > mostShown {
				return out
			}
			if i > 0 {
				out = append(out, ',')
			}
			out = appendShort(out, item)
		}
		return append(out, ']')
	case string:
		return appendText(out, value[:min(len(value), 2*mostShown)])
	}
	return appendText(out, value)
}

// appendText appends a value that has no parts, or few, as JSON.
func appendText(out []byte, value any) []byte {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return append(out, "a value that is not JSON"...)
	}
	return append(out, bytes.TrimSuffix(text.Bytes(), []byte("\n"))...)
}

// shorten cuts a text to 80 bytes.
func shorten(s string) string { return brief.Cut(s, mostShown) }
