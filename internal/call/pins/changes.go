package pins

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"

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
		d.add(missing{}, decoded(after))
		return d.all, d.more
	}
	d.compare(decoded(before), decoded(after))
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
	at   path // what is compared
	all  []Change
	most int
	more int
}

// missing stands for a value that is not there.
type missing struct{}

func (d *differ) compare(before, after any) {
	x, isObject := before.(map[string]any)
	y, areObjects := after.(map[string]any)
	if isObject && areObjects {
		d.members(x, y)
		return
	}
	p, isList := before.([]any)
	q, areLists := after.([]any)
	if isList && areLists {
		for n := range max(len(p), len(q)) {
			d.at = d.at.at(n)
			d.compare(elementOf(p, n), elementOf(q, n))
			d.at = d.at[:len(d.at)-1]
		}
		return
	}
	d.add(before, after)
}

func (d *differ) members(before, after map[string]any) {
	keys := slices.Collect(maps.Keys(before))
	for key := range after {
		if _, both := before[key]; !both {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		d.at = d.at.member(key)
		d.compare(memberOf(before, key), memberOf(after, key))
		d.at = d.at[:len(d.at)-1]
	}
}

// add adds what differs, of an object that is new each member.
func (d *differ) add(before, after any) {
	object, isObject := after.(map[string]any)
	if _, isNew := before.(missing); isNew && isObject && len(object) > 0 {
		for _, key := range slices.Sorted(maps.Keys(object)) {
			d.at = d.at.member(key)
			d.add(missing{}, object[key])
			d.at = d.at[:len(d.at)-1]
		}
		return
	}
	switch {
	case reflect.DeepEqual(before, after):
	case len(d.all) == d.most:
		d.more++
	default:
		d.all = append(d.all, Change{d.at.String(), asJSON(before), asJSON(after)})
	}
}

func memberOf(of map[string]any, key string) any {
	if value, ok := of[key]; ok {
		return value
	}
	return missing{}
}

func elementOf(of []any, n int) any {
	if n < len(of) {
		return of[n]
	}
	return missing{}
}

// asJSON returns a value as JSON; nil for one that is not there.
func asJSON(value any) json.RawMessage {
	if _, none := value.(missing); none {
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
