package secret

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
)

const (
	// maxPrefix is how many bytes of a text are in the tree. If they occur, the rest of a longer text is
	// compared separately.
	maxPrefix = 256
	// maxWindow is the most bytes that are read to find out that no text begins at a position.
	maxWindow = 16
	// With a window below smallWindow, up to few texts are found faster one by one.
	smallWindow, few = 6, 10
	// hashFactor makes the upper bits of a product depend on all bits of a block.
	hashFactor = 0x9E3779B1
)

// search finds many texts in one pass. The time depends on the size of the searched text, and not on
// how many texts there are or how they begin.
//
// It is an Aho-Corasick automaton: a tree of the texts, in which each node also knows the longest
// suffix of its path that is in the tree. Nodes are numbered so that the first child of a node is
// the next node.
//
// Most positions are skipped: the last bytes of a window tell how far away the next position is at
// which a text may begin (Wu and Manber).
type search struct {
	texts [][]byte // the longest first

	window int     // length of the shortest text, up to maxWindow
	block  int     // bytes at the end of a window that skips is indexed by
	skips  []uint8 // by the hash of a block
	shift  int     // of the product that is the hash of a block

	root    [256]int32 // the children of the first node; 0 for none
	label   []byte     // the byte that leads to a node
	depth   []uint16   // the number of bytes that lead to a node
	found   []uint16   // the length of the longest text that ends at a node; 0 for none
	sibling []int32    // the next child of the same parent; 0 for none
	fail    []int32    // the node of the longest suffix of a node's path
	long    map[int32][]int
}

// newSearch returns a search for texts of at least minRedacted bytes, the longest first.
func newSearch(texts [][]byte) *search {
	s := &search{texts: texts}
	if len(texts) == 0 {
		return s
	}
	s.window, s.block = min(maxWindow, len(texts[len(texts)-1])), 3
	if s.window < smallWindow {
		s.block = 2
	}
	size := min(18, max(10, bits.Len(uint(len(texts)*s.window))+3))
	s.shift = 32 - size
	s.skips = bytes.Repeat([]byte{uint8(s.window - s.block + 1)}, 1<<size)
	s.grow()
	s.link()
	return s
}

// grow makes the tree.
func (s *search) grow() {
	order := make([]int, len(s.texts))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return bytes.Compare(s.texts[a], s.texts[b]) })
	s.add(0, 0)
	s.long = map[int32][]int{}
	path := make([]int32, maxPrefix+1) // the nodes of the previous text
	var before []byte
	for _, i := range order {
		text := s.texts[i][:min(len(s.texts[i]), maxPrefix)]
		same := 0
		for same < min(len(text), len(before)) && text[same] == before[same] {
			same++
		}
		for at := same; at < len(text); at++ {
			node := s.add(text[at], at+1)
			if at == same && at < len(before) {
				s.sibling[path[at+1]] = node
			}
			if at == 0 {
				s.root[text[0]] = node
			}
			path[at+1] = node
		}
		if len(text) == len(s.texts[i]) {
			s.found[path[len(text)]] = uint16(len(text))
		} else {
			s.long[path[len(text)]] = append(s.long[path[len(text)]], i)
		}
		for end := s.block; same < s.window && end <= s.window; end++ {
			var block uint32
			for i, b := range text[end-s.block : end] {
				block |= uint32(b) << (8 * i)
			}
			skip := &s.skips[block*hashFactor>>s.shift]
			*skip = min(*skip, uint8(s.window-end))
		}
		before = text
	}
}

func (s *search) add(label byte, depth int) int32 {
	s.label = append(s.label, label)
	s.depth = append(s.depth, uint16(depth))
	s.found = append(s.found, 0)
	s.sibling = append(s.sibling, 0)
	return int32(len(s.label) - 1)
}

// link sets fail of every node, and completes found.
func (s *search) link() {
	s.fail = make([]int32, len(s.label))
	queue := make([]int32, 1, len(s.label)) // shorter paths first
	for i := 0; i < len(queue); i++ {
		node := queue[i]
		for child := s.first(node); child != 0; child = s.sibling[child] {
			if node != 0 {
				s.fail[child] = s.step(s.fail[node], s.label[child])
			}
			if s.found[child] == 0 {
				s.found[child] = s.found[s.fail[child]]
			}
			queue = append(queue, child)
		}
	}
}

// first returns the first child of a node, or 0.
func (s *search) first(node int32) int32 {
	if next := int(node) + 1; next < len(s.depth) && s.depth[next] == s.depth[node]+1 {
		return node + 1
	}
	return 0
}

// child returns the child of a node that a byte leads to, or 0.
func (s *search) child(node int32, b byte) int32 {
	if node == 0 {
		return s.root[b]
	}
	child := s.first(node)
	for child != 0 && s.label[child] != b {
		child = s.sibling[child]
	}
	return child
}

// step returns the node for the longest suffix of a node's path plus one byte.
func (s *search) step(node int32, b byte) int32 {
	for {
		if child := s.child(node, b); child != 0 || node == 0 {
			return child
		}
		node = s.fail[node]
	}
}

// next returns the first position from from on at which a text may begin, or -1.
func (s *search) next(text []byte, from int) int {
	skips, shift, drop := s.skips, s.shift&31, (32-8*s.block)&31
	for end := from + s.window; end <= len(text); {
		skip := int(skips[binary.LittleEndian.Uint32(text[end-4:])>>drop*hashFactor>>shift])
		if skip == 0 {
			return end - s.window
		}
		end += skip
	}
	return -1
}

// enter returns the node of the window at the beginning of a text, or 0.
func (s *search) enter(text []byte) int32 {
	node := int32(0)
	for _, b := range text[:s.window] {
		if node = s.child(node, b); node == 0 {
			return 0
		}
	}
	return node
}

// find returns where the texts occur in text, in order. Overlapping occurrences are one span. If
// there are more than most spans, it stops and reports false.
func (s *search) find(text []byte, most int) (found []span, ok bool) {
	if len(s.texts) == 0 ||
		s.window < smallWindow && len(s.texts) <= few && !s.anyIn(text) {
		return nil, true
	}
	var spans []span
	var long longSpans
	for from := s.next(text, 0); from >= 0; from = s.next(text, from) {
		node := s.enter(text[from:])
		if node == 0 {
			from++
			continue
		}
		at := from + s.window
		for {
			if n := int(s.found[node]); n > 0 {
				spans = joined(spans, span{at - n, at})
			}
			if s.depth[node] == maxPrefix {
				long.add(s, node, text, at-maxPrefix)
			}
			if len(spans)+len(long.spans) > most {
				return nil, false
			}
			if at == len(text) {
				return merged(append(spans, long.spans...)), true
			}
			node = s.step(node, text[at])
			at++
			if depth := int(s.depth[node]); depth < s.window {
				from = at - depth
				break
			}
		}
	}
	return merged(append(spans, long.spans...)), true
}

// isIn reports whether one of the texts occurs in text.
func (s *search) isIn(text []byte) bool {
	_, none := s.find(text, 0)
	return !none
}

// anyIn searches for one text after the other.
func (s *search) anyIn(text []byte) bool {
	return slices.ContainsFunc(s.texts, func(t []byte) bool { return bytes.Contains(text, t) })
}

// joined appends a span to spans that end before it, and merges it with those it overlaps.
func joined(spans []span, s span) []span {
	for last := len(spans) - 1; last >= 0 && spans[last].to > s.from; last-- {
		s.from = min(s.from, spans[last].from)
		spans = spans[:last]
	}
	return append(spans, s)
}

// longSpans are the occurrences of texts longer than maxPrefix.
type longSpans struct {
	spans []span
	until map[int]int // by text: up to where it was searched for
}

// add finds the texts that begin with the path of a node, which occurs at from. It searches for each
// from there on, since bytes.Index is not slowed down by many partial matches. If occurrences of a
// text overlap, it finds the first.
func (l *longSpans) add(s *search, node int32, text []byte, from int) {
	for _, i := range s.long[node] {
		if from < l.until[i] {
			continue
		}
		if l.until == nil {
			l.until = map[int]int{}
		}
		at := bytes.Index(text[from:], s.texts[i])
		if at < 0 {
			l.until[i] = len(text)
			continue
		}
		found := span{from + at, from + at + len(s.texts[i])}
		l.spans, l.until[i] = append(l.spans, found), found.to
	}
}
