package yamldoc

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/orla-project/orla/internal/observe/brief"
)

const (
	maxFaults = 100  // how many faults of one file are listed
	maxMsg    = 1000 // bytes of a fault's message
	maxKey    = 500  // bytes of its key in Error
)

// Doc is a decoded file, which knows the positions of its keys. A key is a path such as
// "runtime.timeout" or "args[1]". A Doc is not safe for concurrent use.
type Doc struct {
	file     string
	position func(line, column int) (int, int)
	refuse   map[string]string
	hide     bool       // no fault shows a value
	secret   []string   // keys whose values no fault shows
	root     *yaml.Node // nil if the file could not be parsed
	empty    bool
	faults   Faults
	unlisted int // number of faults beyond maxFaults
	decoded  int // number of faults that Decode found
}

// Has reports whether the file has the key.
func (d *Doc) Has(key string) bool {
	_, node := d.find(key)
	return node != nil
}

// Reveal ends Options.Hide: further faults show values again, except those of the keys in secret.
// Values below such a key are shown.
func (d *Doc) Reveal(secret ...string) { d.hide, d.secret = false, secret }

// hides reports whether faults must not show the value of a key.
func (d *Doc) hides(key string) bool { return d.hide || slices.Contains(d.secret, key) }

// Text returns the value of the key, if it is a scalar.
func (d *Doc) Text(key string) (string, bool) {
	_, node := d.find(key)
	if node == nil || target(node).Kind != yaml.ScalarNode || isNull(target(node)) {
		return "", false
	}
	return target(node).Value, true
}

// A Member is an entry of the top-level mapping.
type Member struct {
	Key, Value   string // Value is "" if it is not a scalar, or null
	Line, Column int    // of the value, as for FaultAt
}

// Members lists the entries of the top level, and then those of its merge keys.
func (d *Doc) Members() (list []Member) {
	const mostMerged = 100
	if d.root == nil {
		return nil
	}
	for nodes := []*yaml.Node{d.root}; len(nodes) > 0 && len(nodes) < mostMerged; nodes = nodes[1:] {
		node := target(nodes[0])
		if node.Kind == yaml.SequenceNode && node != d.root {
			nodes = append(nodes, node.Content...)
		}
		for i := 0; node.Kind == yaml.MappingNode && i+1 < len(node.Content); i += 2 {
			key, at := target(node.Content[i]), node.Content[i+1]
			if key.ShortTag() == "!!merge" {
				nodes = append(nodes, at)
				continue
			}
			m := Member{Key: scalarText(key), Line: at.Line, Column: at.Column}
			if value := target(at); value.Kind == yaml.ScalarNode && !isNull(value) {
				m.Value = scalarText(value)
			}
			list = append(list, m)
		}
	}
	return list
}

// Items returns the items of a list at the top level, each as its own document. With "" the document itself is the list.
func (d *Doc) Items(key string) (list []*Doc) {
	_, node := d.find(key)
	if node == nil || key == "" && node.Kind != yaml.SequenceNode {
		return nil
	}
	for _, item := range target(node).Content {
		list = append(list, &Doc{file: d.file, position: d.position, hide: d.hide, root: target(item)})
	}
	return list
}

// target returns the node that an alias refers to, or the node itself.
func target(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// scalarText returns the text of a scalar. If it is tagged !!binary, that is the decoded text, as
// other readers see it.
func scalarText(n *yaml.Node) string {
	if n.ShortTag() != "!!binary" {
		return n.Value
	}
	text, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(n.Value), ""))
	if err != nil {
		return n.Value
	}
	return string(text)
}

// Faultf adds a fault at the position of key, or of its nearest parent in the file. It does nothing
// if Decode has already found a fault at the key itself, or at what it would be in, which is not a mapping.
func (d *Doc) Faultf(key, format string, args ...any) {
	if slices.ContainsFunc(d.faults[:d.decoded], func(f Fault) bool { return f.Key == key || d.refuses(f.Key, key) }) {
		return
	}
	if d.full() {
		d.unlisted++ // finding the position would take time in proportion to the file
		return
	}
	d.add(d.At(key, format, args...))
}

// refuses reports whether a key is below another one whose value is not a mapping.
func (d *Doc) refuses(above, key string) bool {
	below, in := strings.CutPrefix(key, above)
	if !in || above == "" || below[0] != '.' && below[0] != '[' {
		return false
	}
	_, value := d.find(above)
	return value != nil && value.Kind != yaml.MappingNode
}

// FaultAt adds a fault at a position in the decoded data. Lines and columns count from 1.
func (d *Doc) FaultAt(line, column int, format string, args ...any) {
	d.add(d.placed(line, column, "", format, args...))
}

// full reports whether there are maxFaults faults.
func (d *Doc) full() bool { return len(d.faults) >= maxFaults }

// At returns a fault like Faultf, but does not add it: it is for warnings.
func (d *Doc) At(key, format string, args ...any) Fault {
	line, column := 1, 1
	if at, _ := d.find(key); at != nil {
		line, column = at.Line, at.Column
	}
	return d.placed(line, column, key, format, args...)
}

// Err returns all faults as Faults, sorted by position, or nil.
func (d *Doc) Err() error {
	if len(d.faults) == 0 {
		return nil
	}
	faults := slices.Clone(d.faults)
	slices.SortStableFunc(faults, func(a, b Fault) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
	if d.unlisted > 0 {
		last := faults[len(faults)-1]
		last.Key, last.Msg = "", fmt.Sprintf("%d more faults are not listed", d.unlisted)
		faults = append(faults, last)
	}
	return faults
}

// find returns the node that messages about key point to, and the value of the key. If the key does not exist, value is
// nil, and the messages point to its nearest parent.
func (d *Doc) find(key string) (at, value *yaml.Node) {
	at, value = d.root, d.root
	for rest := key; value != nil && rest != ""; {
		var label *yaml.Node
		if label, value, rest = step(value, rest); value != nil {
			at = label
		}
	}
	return at, value
}

// step goes one element of a path down from node. The label is the child itself if that is a scalar
// with a position, else its key.
func step(node *yaml.Node, path string) (label, child *yaml.Node, rest string) {
	switch node = target(node); node.Kind {
	case yaml.MappingNode:
		// The longest key wins, since a key may contain dots.
		for i := 0; i+1 < len(node.Content); i += 2 {
			k, v := node.Content[i], node.Content[i+1]
			tail, ok := strings.CutPrefix(path, k.Value)
			if !ok || tail != "" && tail[0] != '.' && tail[0] != '[' || child != nil && len(tail) >= len(rest) {
				continue
			}
			label, child, rest = k, v, tail
			if v.Kind == yaml.AliasNode || v.Kind == yaml.ScalarNode && (v.Value != "" || v.Style != 0) {
				label = v
			}
		}
		return label, child, strings.TrimPrefix(rest, ".")
	case yaml.SequenceNode:
		// Both items[2] and items.2 are valid.
		path = strings.TrimPrefix(path, "[")
		end := strings.IndexFunc(path, func(c rune) bool { return c < '0' || c > '9' })
		if end < 0 {
			end = len(path)
		}
		i, err := strconv.Atoi(path[:end])
		if err != nil || i >= len(node.Content) {
			return nil, nil, ""
		}
		rest = strings.TrimPrefix(path[end:], "]")
		return node.Content[i], node.Content[i], strings.TrimPrefix(rest, ".")
	}
	return nil, nil, ""
}

// describe describes the value of a key, for messages.
func (d *Doc) describe(n *yaml.Node, key string) string {
	if d.hides(key) && n.Kind == yaml.ScalarNode && !isNull(n) {
		return "a value"
	}
	return describe(n)
}

func (d *Doc) fault(at *yaml.Node, key, format string, args ...any) {
	d.add(d.placed(at.Line, at.Column, key, format, args...))
}

// placed makes a fault at a position in the decoded data.
func (d *Doc) placed(line, column int, key, format string, args ...any) Fault {
	line, column = max(line, 1), max(column, 1)
	if d.position != nil {
		line, column = d.position(line, column)
	}
	err := fmt.Errorf(format, args...)
	return Fault{File: d.file, Line: line, Column: column, Key: key, Msg: brief.Cut(err.Error(), maxMsg), cause: errors.Unwrap(err)}
}

func (d *Doc) add(f Fault) {
	if d.full() {
		d.unlisted++
		return
	}
	d.faults = append(d.faults, f)
}
