package schema

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/orla-project/orla/internal/mcp/rawjson"
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
	text, err := rawjson.Encode(value)
	if err != nil {
		return append(out, "a value that is not JSON"...)
	}
	return append(out, text...)
}

// shorten cuts a text to 80 bytes.
func shorten(s string) string { return brief.Cut(s, mostShown) }

func withArticles(types []string) string {
	words := make([]string, len(types))
	for i, t := range types {
		switch t {
		case "null":
			words[i] = t
		case "integer", "object", "array":
			words[i] = "an " + t
		default:
			words[i] = "a " + t
		}
	}
	return strings.Join(words, " or ")
}

func oneOf(values []any) string {
	if len(values) == 1 {
		return inJSON(values[0])
	}
	const most = 20
	words := make([]string, 0, min(len(values), most))
	for _, v := range values[:min(len(values), most)] {
		words = append(words, inJSON(v))
	}
	if len(values) > most {
		words = append(words, fmt.Sprintf("%d others", len(values)-most))
	}
	return "one of " + strings.Join(words, ", ")
}

func decimal(r *big.Rat) string {
	if r.IsInt() {
		return r.Num().String()
	}
	f, _ := r.Float64() // only its digits are shown
	return strconv.FormatFloat(f, 'g', -1, 64)
}
