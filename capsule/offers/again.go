package offers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/maphash"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// readTools are the tools of the last list, and the JSON that each was read from: of most tools, the next list has
// the same. The tools must not be modified.
type readTools struct {
	raw  []json.RawMessage
	read []*mcp.Tool // nil for an item that could not be read
}

// readTools decodes a list of tools. Schemas stay JSON. What the last list had too is not decoded again, and stays the
// same pointer.
func (o *Offering) readTools(raw []json.RawMessage) []*mcp.Tool {
	list := make([]*mcp.Tool, 0, len(raw))
	next := readTools{raw, make([]*mcp.Tool, len(raw))}
	last := finder{of: o.tools}
	seen := map[string]bool{}
	var left leftOut
	named := 0 // bytes
	for i, item := range raw {
		t, err := last.find(item), error(nil)
		if t == nil {
			t, err = readTool(item)
		}
		if err == nil {
			next.read[i] = t
			switch named += len(t.Name); {
			case named > maxOwnNames:
				err = fmt.Errorf("the names of a server's tools have over %d bytes together, and no more are served", maxOwnNames)
			case seen[t.Name]:
				err = fmt.Errorf("%q is listed twice; the first serves", t.Name)
			}
		}
		if err != nil || t.Name == "" && len(raw) > 1 {
			left.count(err)
			continue
		}
		seen[t.Name] = true
		list = append(list, t)
	}
	o.tools = next
	left.logTo(o, "tool")
	return list
}

// maxOwnName bounds a server's own name of a tool, and maxOwnNames those of all its tools, in bytes: rules compare them, and
// records have them. Clients get shorter ones.
const maxOwnName, maxOwnNames = 1024, 1 << 20

func readTool(item json.RawMessage) (*mcp.Tool, error) {
	t := new(mcp.Tool)
	input, output, err := read(item, t, &t.Meta)
	if err != nil {
		return nil, err
	}
	if len(t.Name) > maxOwnName {
		return nil, fmt.Errorf("the name of a tool has %d bytes, and at most %d are served", len(t.Name), maxOwnName)
	}
	t.InputSchema = json.RawMessage(`{"type":"object"}`)
	if input != nil {
		t.InputSchema = input
	}
	if output != nil {
		t.OutputSchema = output
	}
	return t, nil
}

// finder finds items of a list, most of which are asked for in their order.
type finder struct {
	of   readTools
	next int            // the index that is asked for next, if they are
	at   map[uint64]int // indexes by a hash of their JSON; nil until it is needed
	seed maphash.Seed
}

// find returns the tool that was read from the same JSON; nil if there is none.
func (f *finder) find(item json.RawMessage) *mcp.Tool {
	i := f.next
	if i >= len(f.of.raw) || !bytes.Equal(f.of.raw[i], item) {
		i = f.hashed(item)
	}
	if i < 0 {
		f.next++ // as a rule one was changed in its place
		return nil
	}
	f.next = i + 1
	return f.of.read[i]
}

// hashed returns the index of an item; -1 if it is not there.
func (f *finder) hashed(item json.RawMessage) int {
	if f.at == nil {
		f.seed, f.at = maphash.MakeSeed(), make(map[uint64]int, len(f.of.raw))
		for i, raw := range f.of.raw {
			f.at[maphash.Bytes(f.seed, raw)] = i
		}
	}
	i, is := f.at[maphash.Bytes(f.seed, item)]
	if !is || !bytes.Equal(f.of.raw[i], item) {
		return -1
	}
	return i
}
