package yamldoc

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/orla-project/orla/internal/observe/brief"
)

// setScalar sets v to the value of a node that must be a scalar.
func setScalar(n *yaml.Node, v reflect.Value) error {
	switch v.Kind() {
	case reflect.String:
		return setString(n, v)
	case reflect.Bool:
		if n.Kind == yaml.ScalarNode && n.Tag == "!!bool" {
			// YAML's other spellings of booleans are strings here.
			if b, err := strconv.ParseBool(strings.ToLower(n.Value)); err == nil {
				v.SetBool(b)
				return nil
			}
		}
		return fmt.Errorf("wants true or false, got %s", describe(n))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		text, err := wholeNumber(n)
		if err != nil {
			return err
		}
		i, err := strconv.ParseInt(text, 10, v.Type().Bits())
		if err != nil {
			return fmt.Errorf("is out of range: %s", shorten(n.Value))
		}
		v.SetInt(i)
	case reflect.Float32, reflect.Float64:
		if n.Kind != yaml.ScalarNode || n.Tag != "!!int" && n.Tag != "!!float" {
			return fmt.Errorf("wants a number, got %s", describe(n))
		}
		text, err := number(n.Value)
		if err != nil {
			return err
		}
		f, err := strconv.ParseFloat(text, v.Type().Bits())
		if err != nil {
			return fmt.Errorf("is out of range: %s", shorten(n.Value))
		}
		v.SetFloat(f)
	default:
		panic(fmt.Sprintf("yamldoc: a field of type %s cannot be decoded", v.Type()))
	}
	return nil
}

// setString sets v to the text of any scalar except null as it is written, so that version: 1.0
// stays "1.0" and LOG: yes stays "yes".
func setString(n *yaml.Node, v reflect.Value) error {
	enum, isEnum := reflect.TypeAssert[Enum](v)
	isText := n.Kind == yaml.ScalarNode && !isNull(n)
	switch {
	case !isEnum && !isText:
		return fmt.Errorf("wants a string, got %s", describe(n))
	case isEnum && (!isText || !slices.Contains(enum.Values(), n.Value)):
		hint := ""
		if near := Nearest(n.Value, enum.Values()); isText && near != "" {
			hint = fmt.Sprintf("; did you mean %q?", near)
		}
		return fmt.Errorf("wants %s, got %s%s", oneOf(enum.Values()), describe(n), hint)
	}
	v.SetString(n.Value)
	return nil
}

func oneOf(values []string) string {
	if len(values) == 1 {
		return values[0]
	}
	last := len(values) - 1
	return strings.Join(values[:last], ", ") + " or " + values[last]
}

func wholeNumber(n *yaml.Node) (string, error) {
	if n.Kind == yaml.ScalarNode && (n.Tag == "!!int" || n.Tag == "!!float") {
		text, err := number(n.Value)
		if err != nil {
			return "", err
		}
		if !strings.ContainsAny(text, ".eE") {
			return text, nil
		}
	}
	return "", fmt.Errorf("wants a whole number, got %s", describe(n))
}

// number returns a YAML number as JSON with all its digits.
func number(literal string) (string, error) {
	s := strings.ReplaceAll(literal, "_", "")
	s = strings.TrimPrefix(s, "+")
	sign := ""
	if rest, ok := strings.CutPrefix(s, "-"); ok {
		sign, s = "-", rest
	}
	if len(s) > 1 && s[0] == '0' && strings.ContainsAny(s[1:2], "xXoObB") {
		i, ok := new(big.Int).SetString(s, 0)
		if !ok {
			return "", fmt.Errorf("wants a number, got %s", shorten(literal))
		}
		return sign + i.String(), nil
	}
	if len(s) > 1 && s[0] == '0' && s[1] >= '0' && s[1] <= '9' {
		return "", fmt.Errorf("%s begins with 0, which some read as octal; leave the 0 out, or put text in quotes", shorten(literal))
	}
	if strings.HasPrefix(s, ".") {
		s = "0" + s
	}
	mantissa, exponent := s, ""
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		mantissa, exponent = s[:i], s[i:]
	}
	s = sign + strings.TrimSuffix(mantissa, ".") + exponent
	if !json.Valid([]byte(s)) {
		return "", fmt.Errorf("wants a finite number, got %s", shorten(literal))
	}
	return s, nil
}

// text returns the text for an unmarshaler that accepts a string or a number.
func text(raw []byte) (string, error) {
	var s string
	if err := json.Unmarshal(raw, &s); err == nil {
		return s, nil
	}
	var n json.Number
	if err := json.Unmarshal(raw, &n); err == nil {
		return n.String(), nil
	}
	return "", errors.New("neither a string nor a number")
}

// describe describes the value of a node, for messages.
func describe(n *yaml.Node) string {
	n = target(n)
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "nothing"
	case n.Tag == "!!int", n.Tag == "!!float", n.Tag == "!!bool":
		return shorten(n.Value)
	}
	return strconv.Quote(shorten(n.Value))
}

func isNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Tag == "!!null"
}

// shorten cuts a text of the file so that a message stays one line.
func shorten(s string) string { return brief.Cut(s, 80) }
