package wasmfuel

import "fmt"

// reader reads the module from pos to end. It keeps the first failure and moves to its end then: so
// loops over the rest need no check for errors, and everything read after a failure is zero.
type reader struct {
	buf []byte // the whole module, so that pos is the offset of an Error
	pos int
	end int
	err *Error

	vectors bool // some type was v128
}

// fail records the first failure.
func (r *reader) fail(offset int, format string, args ...any) {
	if r.err == nil {
		r.err = &Error{Offset: offset, Reason: fmt.Sprintf(format, args...)}
	}
	r.pos = r.end
}

// more reports whether there is anything left to read.
func (r *reader) more() bool { return r.pos < r.end }

func (r *reader) byte() byte {
	if r.pos >= r.end {
		r.fail(r.pos, "unexpected end")
		return 0
	}
	b := r.buf[r.pos]
	r.pos++
	return b
}

// u32 reads an unsigned number in LEB128, which may be padded to five bytes.
func (r *reader) u32() uint32 {
	if r.pos < r.end && r.buf[r.pos] < 0x80 { // the most common case
		r.pos++
		return uint32(r.buf[r.pos-1])
	}
	start := r.pos
	var v uint64
	for shift := 0; shift < 35; shift += 7 {
		b := r.byte()
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			if v >= 1<<32 {
				break
			}
			return uint32(v)
		}
	}
	r.fail(start, "number of more than 32 bits")
	return 0
}

// signed reads a signed number in LEB128 with at most bits bits.
func (r *reader) signed(bits int) int64 {
	start := r.pos
	var v int64
	for shift := 0; shift < bits; shift += 7 {
		b := r.byte()
		v |= int64(b&0x7f) << shift
		if b >= 0x80 {
			continue
		}
		if free := 64 - shift - 7; free > 0 {
			v = v << free >> free
			if fits := 64 - bits; v<<fits>>fits != v {
				break
			}
		} else if b != 0 && b != 0x7f { // the tenth byte has one bit and its sign
			break
		}
		return v
	}
	r.fail(start, "number of more than %d bits", bits)
	return 0
}

// count reads the number of following things, each of at least size bytes. It refuses a number that
// cannot fit into the rest before memory is allocated for it.
func (r *reader) count(what string, size, most int) int {
	start := r.pos
	n := int64(r.u32())
	if n > int64(most) {
		r.fail(start, "%d %s: at most %d are accepted", n, what, most)
		return 0
	}
	if n*int64(size) > int64(r.end-r.pos) {
		r.fail(start, "%d %s do not fit into the %d bytes left", n, what, r.end-r.pos)
		return 0
	}
	return int(n)
}

// skip passes over n bytes.
func (r *reader) skip(n int) {
	if n > r.end-r.pos {
		r.fail(r.pos, "unexpected end")
		return
	}
	r.pos += n
}

// bytes reads a length and that many bytes.
func (r *reader) bytes(what string) []byte {
	n := r.count("bytes of "+what, 1, maxInt32)
	start := r.pos
	r.skip(n)
	return r.buf[start:r.pos]
}

// index reads an index, which must be below a number of things.
func (r *reader) index(what string, below int) uint32 {
	start := r.pos
	i := r.u32()
	if int64(i) >= int64(below) && r.err == nil {
		r.fail(start, "unknown %s %d: there are %d", what, i, below)
		return 0
	}
	return i
}

// choice reads a byte, which must be below a number of choices.
func (r *reader) choice(what string, below byte) byte {
	start := r.pos
	b := r.byte()
	if b >= below {
		r.fail(start, "unknown %s %#x", what, b)
		return 0
	}
	return b
}

// constant reads a byte that must have one value.
func (r *reader) constant(what string, value byte) {
	start := r.pos
	if b := r.byte(); b != value {
		r.fail(start, "%s is %#x, not %#x", what, b, value)
	}
}
