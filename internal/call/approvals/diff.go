package approvals

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

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
	c := &comparison{}
	c.compare(a, b)
	return c.changes, c.more
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

// comparison makes the list of changes. A path is written only for what is listed: many long ones have no place in
// memory.
type comparison struct {
	at      []string // the names and indices down to what is compared
	changes []Change
	more    int
}

// absent stands for what is not there.
type absent struct{}

func (c *comparison) compare(was, is any) {
	switch a := was.(type) {
	case map[string]any:
		if b, ok := is.(map[string]any); ok && len(a)+len(b) > 0 {
			c.members(a, b)
			return
		}
	case []any:
		if b, ok := is.([]any); ok && len(a)+len(b) > 0 {
			c.items(a, b)
			return
		}
	}
	if !reflect.DeepEqual(was, is) {
		c.add(was, is)
	}
}

func (c *comparison) members(was, is map[string]any) {
	names := slices.Collect(maps.Keys(was))
	for name := range is {
		if _, ok := was[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		a, ok := was[name]
		if !ok {
			a = absent{}
		}
		b, ok := is[name]
		if !ok {
			b = absent{}
		}
		c.below(name, a, b)
	}
}

func (c *comparison) items(was, is []any) {
	for i := range max(len(was), len(is)) {
		var a, b any = absent{}, absent{}
		if i < len(was) {
			a = was[i]
		}
		if i < len(is) {
			b = is[i]
		}
		c.below(strconv.Itoa(i), a, b)
	}
}

func (c *comparison) below(name string, was, is any) {
	c.at = append(c.at, name)
	c.compare(was, is)
	c.at = c.at[:len(c.at)-1]
}

func (c *comparison) add(was, is any) {
	if len(c.changes) == maxChanges {
		c.more++
		return
	}
	var path strings.Builder
	for _, name := range c.at {
		path.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
	}
	c.changes = append(c.changes, Change{Path: brief.Cut(path.String(), maxPointer), Was: encode(was), Is: encode(is)})
}

func encode(v any) json.RawMessage {
	if v == any(absent{}) {
		return nil
	}
	raw, err := rawjson.Encode(v)
	if err != nil { // it was decoded from JSON
		panic(err)
	}
	return raw
}
