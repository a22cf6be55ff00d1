package yamldoc

import (
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

// Doc is a decoded file, kept to say where in it a key stands. A key is a
// path such as "runtime.timeout" or "args[1]". A Doc is not safe for
// concurrent use.
type Doc struct {
	file     string
	position func(line, column int) (int, int)
	refuse   map[string]string
	hide     bool       // no fault tells a value
	secret   []string   // keys whose values none tells either
	root     *yaml.Node // nil when the file could not be parsed
	empty    bool
	faults   Faults
	unlisted int // faults past maxFaults
	decoded  int // how many of faults Decode found
}

// Has reports whether the file gives the key.
func (d *Doc) Has(key string) bool {
	_, found := d.find(key)
	return found
}

// Reveal ends Options.Hide: faults from now on tell values again, but for those
// of the keys of secret. What is below such a key is told.
func (d *Doc) Reveal(secret ...string) { d.hide, d.secret = false, secret }

// hides reports whether the value of a key is told to nobody.
func (d *Doc) hides(key string) bool { return d.hide || slices.Contains(d.secret, key) }

// Text returns what the file gives for the key, if that is a scalar.
func (d *Doc) Text(key string) (string, bool) {
	node, found := d.root, d.root != nil
	for rest := key; found && rest != ""; {
		_, node, rest = step(node, rest)
		found = node != nil
	}
	if found && node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if !found || node.Kind != yaml.ScalarNode || isNull(node) {
		return "", false
	}
	return node.Value, true
}

// A Member is an entry of the mapping that a document is.
type Member struct {
	Key, Value   string // Value is "" if it is not a scalar, or null
	Line, Column int    // of the value, as FaultAt takes them
}

// Members lists the entries of the top level, and then those that its merge keys add.
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

// Items returns the items of a list of the top level, each as a document of its own.
func (d *Doc) Items(key string) (list []*Doc) {
	if d.root == nil {
		return nil
	}
	_, node, rest := step(target(d.root), key)
	if node == nil || rest != "" {
		return nil
	}
	for _, item := range target(node).Content {
		list = append(list, &Doc{file: d.file, position: d.position, hide: d.hide, root: target(item)})
	}
	return list
}

// target is the node that an alias stands for, or the node itself.
func target(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// scalarText is the text of a scalar; of one that is tagged !!binary what it
// encodes, as other readers see that.
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

// Faultf adds a fault at the place of key, or of its nearest parent that the
// file gives. If Decode found a fault with the key itself, that is enough, and
// this does nothing.
func (d *Doc) Faultf(key, format string, args ...any) {
	if slices.ContainsFunc(d.faults[:d.decoded], func(f Fault) bool { return f.Key == key }) {
		return
	}
	if d.full() {
		d.unlisted++ // finding its place would cost as much as the file is long
		return
	}
	d.add(d.At(key, format, args...))
}

// FaultAt adds a fault at a place in the decoded data, lines and columns counted
// from 1.
func (d *Doc) FaultAt(line, column int, format string, args ...any) {
	d.faultAt(line, column, "", format, args...)
}

// full reports whether there are as many faults as are listed.
func (d *Doc) full() bool { return len(d.faults) >= maxFaults }

// At is Faultf that returns the fault and does not add it: for what deserves a
// warning and no more.
func (d *Doc) At(key, format string, args ...any) Fault {
	line, column := 1, 1
	if at, _ := d.find(key); at != nil {
		line, column = at.Line, at.Column
	}
	return d.placed(line, column, key, format, args...)
}

// Err returns every fault so far as Faults, sorted by place, or nil.
func (d *Doc) Err() error {
	if len(d.faults) == 0 {
		return nil
	}
	faults := slices.Clone(d.faults)
	slices.SortStableFunc(faults, func(a, b Fault) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	if d.unlisted > 0 {
		last := faults[len(faults)-1]
		last.Key, last.Msg = "", fmt.Sprintf("%d more faults are not listed", d.unlisted)
		faults = append(faults, last)
	}
	return faults
}

// find returns the node that stands for key in messages, and whether the whole
// key is there; if not, the node is that of its nearest parent.
func (d *Doc) find(key string) (at *yaml.Node, found bool) {
	if d.root == nil {
		return nil, false
	}
	at, node := d.root, d.root
	for rest := key; rest != ""; {
		label, child, tail := step(node, rest)
		if child == nil {
			return at, false
		}
		at, node, rest = label, child, tail
	}
	return at, true
}

// step goes one element of a path down from node. The label is the child
// itself where that is a scalar one can point at, else its key.
func step(node *yaml.Node, path string) (label, child *yaml.Node, rest string) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	switch node.Kind {
	case yaml.MappingNode:
		// The longest key wins, since a key may itself hold a dot.
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
		// Both items[2] and items.2 are understood.
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

// describe says what the node of a key is, for messages.
func (d *Doc) describe(n *yaml.Node, key string) string {
	if d.hides(key) && n.Kind == yaml.ScalarNode && !isNull(n) {
		return "a value"
	}
	return describe(n)
}

func (d *Doc) fault(at *yaml.Node, key, format string, args ...any) {
	d.faultAt(at.Line, at.Column, key, format, args...)
}

func (d *Doc) faultAt(line, column int, key, format string, args ...any) {
	d.add(d.placed(line, column, key, format, args...))
}

// placed makes a fault at a place in the decoded data.
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
