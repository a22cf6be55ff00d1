package schema

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// describe says what a single misfit wants and what it got.
func (r *report) describe(e *jsonschema.ValidationError) string {
	got := r.got(e.InstanceLocation)
	switch k := e.ErrorKind.(type) {
	case *kind.Type:
		return fmt.Sprintf("must be %s, got %s", withArticles(k.Want), got)
	case *kind.Enum:
		return fmt.Sprintf("must be %s, got %s", oneOf(k.Want), got)
	case *kind.Const:
		return fmt.Sprintf("must be %s, got %s", inJSON(k.Want), got)
	case *kind.Format:
		return fmt.Sprintf("must be a valid %s, got %s", k.Want, got)
	case *kind.Pattern:
		return fmt.Sprintf("must match the pattern %s, got %s", shorten(k.Want), got)
	case *kind.Minimum:
		return fmt.Sprintf("must be at least %s, got %s", decimal(k.Want), got)
	case *kind.Maximum:
		return fmt.Sprintf("must be at most %s, got %s", decimal(k.Want), got)
	case *kind.ExclusiveMinimum:
		return fmt.Sprintf("must be above %s, got %s", decimal(k.Want), got)
	case *kind.ExclusiveMaximum:
		return fmt.Sprintf("must be below %s, got %s", decimal(k.Want), got)
	case *kind.MultipleOf:
		return fmt.Sprintf("must be a multiple of %s, got %s", decimal(k.Want), got)
	case *kind.FalseSchema:
		return "is not allowed"
	case *kind.Not:
		return fmt.Sprintf("has a form that is not allowed, got %s", got)
	case *kind.UniqueItems:
		return fmt.Sprintf("items must be unique, but [%d] and [%d] are equal", k.Duplicates[0], k.Duplicates[1])
	}
	if text := describeCount(e.ErrorKind); text != "" {
		return text
	}
	return e.ErrorKind.LocalizedString(message.NewPrinter(language.English))
}

// describeCount is describe for the keywords that count.
func describeCount(k jsonschema.ErrorKind) string {
	bound := func(most string, want, got int, what string) string {
		return fmt.Sprintf("must have at %s %d %s, got %d", most, want, what, got)
	}
	switch k := k.(type) {
	case *kind.MinLength:
		return bound("least", k.Want, k.Got, "characters")
	case *kind.MaxLength:
		return bound("most", k.Want, k.Got, "characters")
	case *kind.MinItems:
		return bound("least", k.Want, k.Got, "items")
	case *kind.MaxItems:
		return bound("most", k.Want, k.Got, "items")
	case *kind.MinProperties:
		return bound("least", k.Want, k.Got, "members")
	case *kind.MaxProperties:
		return bound("most", k.Want, k.Got, "members")
	case *kind.Contains:
		return "must have an item of the wanted form"
	case *kind.MinContains:
		return bound("least", k.Want, len(k.Got), "items of the wanted form")
	case *kind.MaxContains:
		return bound("most", k.Want, len(k.Got), "items of the wanted form")
	case *kind.AdditionalItems:
		return fmt.Sprintf("has %d items too many", k.Count)
	}
	return ""
}

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
