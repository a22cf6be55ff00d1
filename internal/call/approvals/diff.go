package approvals

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/orla-project/orla/internal/mcp/jsondiff"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/internal/observe/brief"
)

const (
	maxChanges = 100
	maxPointer = 1000 // bytes
)

// Change is a difference between the arguments of two calls. What was added has no Was, and what was removed no Is.
type Change struct {
	Path string          `json:"path"` // a JSON pointer (RFC 6901); "" for all arguments
	Was  json.RawMessage `json:"was,omitempty"`
	Is   json.RawMessage `json:"is,omitempty"`
}

// Diff compares the arguments of two calls. It returns a number of changes that a person can look through, and how
// many others there are.
func Diff(was, is json.RawMessage) (changes []Change, more int) {
	a, errA := decode(was)
	b, errB := decode(is)
	if errA != nil || errB != nil { // a name is there twice: arguments are valid JSON
		if bytes.Equal(was, is) {
			return nil, 0
		}
		return []Change{{Was: was, Is: is}}, 0
	}
	jsondiff.Compare(a, b, func(at []any, was, is any) { // a path is written only for what is listed: many long ones have no place in memory
		if len(changes) == maxChanges {
			more++
			return
		}
		var path strings.Builder
		for _, step := range at {
			path.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(fmt.Sprint(step)))
		}
		changes = append(changes, Change{Path: brief.Cut(path.String(), maxPointer), Was: encode(was), Is: encode(is)})
	})
	return changes, more
}

// errTwice is for an object that has two members with one name, of which a map has one.
var errTwice = errors.New("a name is there twice")

func decode(raw json.RawMessage) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return decodeNext(d)
}

func decodeNext(d *json.Decoder) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		object := map[string]any{}
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return nil, err
			}
			text, _ := name.(string) // names are
			if _, twice := object[text]; twice {
				return nil, errTwice
			}
			if object[text], err = decodeNext(d); err != nil {
				return nil, err
			}
		}
		_, err = d.Token()
		return object, err
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := decodeNext(d)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err = d.Token()
		return list, err
	}
	return token, nil
}

func encode(v any) json.RawMessage {
	if v == any(jsondiff.Absent{}) {
		return nil
	}
	raw, err := rawjson.Encode(v)
	if err != nil { // it was decoded from JSON
		panic(err)
	}
	return raw
}
