package urimatch

import "math/bits"

// class is a set of characters that an expression expands to, pct-encoded ones included.
type class uint8

const (
	unreserved class = iota // and the comma
	assigning               // and the equals sign
	reserved
	classes
)

// classesOf tells which classes a byte is in, a bit for each.
var classesOf = func() (of [256]uint8) {
	add := func(bytes string, classes ...class) {
		for _, b := range []byte(bytes) {
			for _, c := range classes {
				of[b] |= 1 << c
			}
		}
	}
	add("-._~,0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", unreserved, assigning, reserved)
	add("=", assigning, reserved)
	add("!#$&'()*+/:;?@[]", reserved)
	return of
}()

// subject is a URI that is compared with templates. Its sets have a bit for each position
// in the URI, its end included: bit i says something of what begins at byte i.
type subject struct {
	uri   string
	left  int         // what may still be compared, in words of sets
	words int         // of a set
	sets  []uint64    // one after the other
	row   [256]uint16 // which of the sets has the positions of a byte; 0 if the URI has none
}

// The first sets of a subject. A set for each byte that the URI has follows.
const (
	empty    = int(classes) + iota
	second   // the second byte of each pct-encoded character
	inside   // the second and the third byte of each
	reached  // where the URI may go on after what has been compared
	branched // where it may, if the expression is not expanded to nothing
	further  // where it may after one more separator
	firstRow
)

// newSubject returns what is compared of a URI. It uses buf, which is all zero, if that is
// large enough.
func newSubject(uri string, buf []uint64) (s subject) {
	s.uri, s.left, s.words = uri, maxCompared, len(uri)/64+1
	rows := firstRow
	for i := range len(uri) {
		if row := &s.row[uri[i]]; *row == 0 {
			*row = uint16(rows)
			rows++
		}
	}
	if rows *= s.words; rows > len(buf) {
		buf = make([]uint64, rows)
	}
	s.sets = buf[:rows]
	for i := range len(uri) {
		b, bit := uri[i], uint64(1)<<(i%64)
		s.sets[int(s.row[b])*s.words+i/64] |= bit
		in := classesOf[b]
		if b == '%' && i+2 < len(uri) && isHex(uri[i+1]) && isHex(uri[i+2]) {
			in = 1<<classes - 1
			s.add(second, i+1)
			s.add(inside, i+1)
			s.add(inside, i+2)
		}
		for c := range classes {
			s.sets[int(c)*s.words+i/64] |= uint64(in>>c&1) << (i % 64)
		}
	}
	return s
}

func isHex(b byte) bool {
	return '0' <= b && b <= '9' || 'A' <= b && b <= 'F' || 'a' <= b && b <= 'f'
}

func (s *subject) add(set, i int) { s.sets[set*s.words+i/64] |= 1 << (i % 64) }

func (s *subject) set(i int) []uint64 { return s.sets[i*s.words:][:s.words] }

// of is the set of the positions of a byte.
func (s *subject) of(b byte) []uint64 {
	if row := s.row[b]; row != 0 {
		return s.set(int(row))
	}
	return s.set(empty)
}

// matches reports whether the URI, which t encloses, can come from t. It takes what that
// costs from s.left, and gives up when nothing is left.
func (s *subject) matches(t *Template) bool {
	if len(t.parts) == 0 {
		return s.uri == t.prefix
	}
	at := s.set(reached)
	clear(at)
	s.add(reached, len(t.prefix))
	for i := range t.parts {
		if !s.pass(t.parts[i].literal) {
			return false
		}
		if s.expand(&t.parts[i].expression); s.left < 0 {
			return false
		}
	}
	end := len(s.uri) - len(t.suffix)
	return at[end/64]&(1<<(end%64)) != 0
}

// pass moves what is reached over a literal text. It reports false if that is nowhere.
func (s *subject) pass(literal string) bool {
	at := s.set(reached)
	for i := range len(literal) {
		if s.left < 0 || !s.step(at, at, s.of(literal[i])) {
			return false
		}
	}
	return true
}

// expand adds to what is reached where an expression that begins there may end.
func (s *subject) expand(e *expression) {
	at, to, next := s.set(reached), s.set(branched), s.set(further)
	if e.first == 0 {
		copy(to, at)
	} else if !s.step(to, at, s.of(e.first)) {
		return
	}
	s.run(to, s.set(int(e.head)), s.set(empty))
	sep := s.of(e.sep)
	if e.more == unbounded && s.step(next, to, sep) {
		s.run(next, s.set(int(e.tail)), sep)
		s.join(to, next)
	}
	for n := 0; n < e.more && s.left >= 0 && s.step(next, to, sep); n++ {
		s.run(next, s.set(int(e.tail)), s.set(empty))
		if !s.join(to, next) {
			break
		}
	}
	s.join(at, to)
}

// step sets to to the positions that follow those of from that over has too. It reports
// false if there are none. to may be from.
func (s *subject) step(to, from, over []uint64) bool {
	s.left -= len(to)
	var carry, some uint64
	from, over = from[:len(to)], over[:len(to)]
	for i := range to {
		x := from[i] & over[i]
		to[i] = x<<1 | carry
		carry = x >> 63
		some |= x
	}
	return some != 0
}

// run adds to a set the positions that characters of over or also lead to. Such a sequence
// does not end within a pct-encoded character, unless it begins there.
func (s *subject) run(set, over, also []uint64) {
	s.left -= runCost * len(set)
	second, inside := s.set(second)[:len(set)], s.set(inside)[:len(set)]
	over, also = over[:len(set)], also[:len(set)]
	var carry, third uint64
	for i, from := range set {
		through := over[i] | also[i]
		var sum uint64 // a carry goes through each run of ones, to the position after it
		sum, carry = bits.Add64(from&through, through, carry)
		set[i] = (sum^through)&^inside[i] | from | (from&second[i])<<1 | third
		third = (from & second[i]) >> 63
	}
}

// runCost is what run costs for each word, if step costs 1.
const runCost = 3

// join adds more to a set, and reports whether that has changed it.
func (s *subject) join(set, more []uint64) bool {
	s.left -= len(set)
	var news uint64
	more = more[:len(set)]
	for i, old := range set {
		set[i] |= more[i]
		news |= more[i] &^ old
	}
	return news != 0
}
