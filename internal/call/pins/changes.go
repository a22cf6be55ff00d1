package pins

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"sync"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// Change is how one value of a definition differs.
type Change struct {
	Path          string          // such as inputSchema.properties.path.description
	Before, After json.RawMessage // nil where there is none
}

// changes returns how two definitions differ. Without one, all of the other differs.
func changes(before, after json.RawMessage) []Change {
	var all differ
	if before == nil {
		all.add("", missing{}, decoded(after))
		return all
	}
	all.compare("", decoded(before), decoded(after))
	if len(all) == 0 && !bytes.Equal(before, after) { // such as a member that is there twice
		return []Change{{Before: before, After: after}}
	}
	return all
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
type differ []Change

// missing stands for a value that is not there.
type missing struct{}

func (all *differ) compare(path string, before, after any) {
	x, isObject := before.(map[string]any)
	y, areObjects := after.(map[string]any)
	if isObject && areObjects {
		keys := slices.Sorted(maps.Keys(x))
		for key := range y {
			if _, both := x[key]; !both {
				keys = append(keys, key)
			}
		}
		slices.Sort(keys)
		for _, key := range keys {
			all.compare(join(path, key), memberOf(x, key), memberOf(y, key))
		}
		return
	}
	p, isList := before.([]any)
	q, areLists := after.([]any)
	if isList && areLists {
		for n := range max(len(p), len(q)) {
			all.compare(path+"["+strconv.Itoa(n)+"]", elementOf(p, n), elementOf(q, n))
		}
		return
	}
	all.add(path, before, after)
}

// add adds what differs, of an object that is new each member.
func (all *differ) add(path string, before, after any) {
	object, isObject := after.(map[string]any)
	if _, isNew := before.(missing); isNew && isObject && len(object) > 0 {
		for _, key := range slices.Sorted(maps.Keys(object)) {
			all.add(join(path, key), missing{}, object[key])
		}
		return
	}
	if x, y := asJSON(before), asJSON(after); !bytes.Equal(x, y) {
		*all = append(*all, Change{path, x, y})
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
	return raw
}

var plainKey = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_$-]+$`) })

// join adds the name of a member to a path.
func join(path, key string) string {
	switch {
	case !plainKey().MatchString(key):
		return path + "[" + string(rawjson.Quote(key)) + "]"
	case path == "":
		return key
	}
	return path + "." + key
}
