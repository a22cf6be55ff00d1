package pins

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/orla-project/orla/internal/mcp/jsondiff"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/internal/observe/brief"
)

const (
	// maxChanges bounds the changes that are shown of one definition.
	maxChanges = 100
	// maxValue bounds a value that is shown in a change, in bytes.
	maxValue = 64 << 10
)

// Change is how one value of a definition differs. A value over maxValue is a text of its first bytes.
type Change struct {
	Path          string          // such as inputSchema.properties.path.description
	Before, After json.RawMessage // nil where there is none
}

// changes returns how two definitions differ, in most places at most, and in how many more they do. Without one, all
// of the other differs.
func changes(before, after json.RawMessage, most int) (_ []Change, more int) {
	d := &differ{most: most}
	if before == nil {
		d.add(nil, jsondiff.Absent{}, decoded(after))
		return d.all, d.more
	}
	jsondiff.Compare(decoded(before), decoded(after), d.add)
	if len(d.all) == 0 && !bytes.Equal(before, after) { // such as a member that is there twice
		return []Change{{Before: cut(before, string(before)), After: cut(after, string(after))}}, 0
	}
	return d.all, d.more
}

func decoded(raw json.RawMessage) (value any) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if d.Decode(&value) != nil {
		return string(raw)
	}
	return value
}

// differ collects changes.
type differ struct {
	all  []Change
	most int
	more int
}

// add adds what differs, of an object that is new each member.
func (d *differ) add(at []any, before, after any) {
	object, isObject := after.(map[string]any)
	_, isNew := before.(jsondiff.Absent)
	switch {
	case isNew && isObject && len(object) > 0:
		for _, key := range slices.Sorted(maps.Keys(object)) {
			d.add(append(at, key), jsondiff.Absent{}, object[key])
		}
	case len(d.all) == d.most:
		d.more++
	default:
		d.all = append(d.all, Change{path(at).String(), asJSON(before), asJSON(after)})
	}
}

// asJSON returns a value as JSON; nil for one that is not there.
func asJSON(value any) json.RawMessage {
	if _, none := value.(jsondiff.Absent); none {
		return nil
	}
	raw, err := rawjson.Encode(value)
	if err != nil { // it was decoded from JSON
		return nil
	}
	if text, is := value.(string); is {
		return cut(raw, text)
	}
	return cut(raw, string(raw))
}

// cut returns raw, or if it is long a text of the first bytes of text.
func cut(raw json.RawMessage, text string) json.RawMessage {
	if len(raw) <= maxValue {
		return raw
	}
	return rawjson.Quote(brief.Cut(text, maxValue))
}
