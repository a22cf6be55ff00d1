package tail

import "encoding/binary"

// Bounds are what a Ring may hold.
type Bounds struct {
	Bytes   int // of memory, HeadSize for each record included
	Records int
}

// HeadSize is what a Ring needs for a record beside its bytes.
const HeadSize = 4

// firstSize is what a Ring takes for its first record, if that fits.
const firstSize = 512

// Ring keeps the last records that were pushed, in one array that grows with
// them: pushing copies, and once the array is as large as it may be it
// allocates nothing. The zero Ring is empty and takes no memory. It is not for
// several goroutines at once.
type Ring struct {
	buf   []byte // a circle
	start int    // where the oldest record begins
	used  int    // bytes that records take
	count int    // records
}

// Size is the memory that the Ring has taken, in bytes.
func (r *Ring) Size() int { return len(r.buf) }

// Push adds a record, given in parts, and lets go of the oldest ones as far as
// most demands. A record that most has no room for at all is refused by a panic.
func (r *Ring) Push(most Bounds, parts ...[]byte) {
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	need := HeadSize + size
	if need > most.Bytes || most.Records < 1 {
		panic("tail: a record larger than its ring")
	}
	for r.count > 0 && (r.count >= most.Records || r.used+need > most.Bytes) {
		r.drop()
	}
	r.grow(r.used+need, most.Bytes)
	var head [HeadSize]byte
	binary.LittleEndian.PutUint32(head[:], uint32(size))
	r.write(head[:])
	for _, part := range parts {
		r.write(part)
	}
	r.count++
}

// Records returns copies of the records, oldest first. They share one array.
func (r *Ring) Records() [][]byte {
	if r.count == 0 {
		return nil
	}
	flat := r.flat(r.used)
	records := make([][]byte, 0, r.count)
	for len(flat) > 0 {
		end := HeadSize + int(binary.LittleEndian.Uint32(flat))
		records = append(records, flat[HeadSize:end:end])
		flat = flat[end:]
	}
	return records
}

// drop lets go of the oldest record.
func (r *Ring) drop() {
	var head [HeadSize]byte
	n := copy(head[:], r.buf[r.start:])
	copy(head[n:], r.buf)
	size := HeadSize + int(binary.LittleEndian.Uint32(head[:]))
	r.start = (r.start + size) % len(r.buf)
	r.used -= size
	r.count--
}

// grow makes room for need bytes in all, of at most limit.
func (r *Ring) grow(need, limit int) {
	if need <= len(r.buf) {
		return
	}
	size := max(len(r.buf), firstSize)
	for size < need {
		size *= 2
	}
	r.buf = r.flat(min(size, limit))
	r.start = 0
}

// flat returns a copy of what is used, from the start of an array of size bytes.
func (r *Ring) flat(size int) []byte {
	flat := make([]byte, size)
	n := copy(flat[:r.used], r.buf[min(r.start, len(r.buf)):])
	copy(flat[n:r.used], r.buf)
	return flat
}

// write copies p to the end; there is room for it.
func (r *Ring) write(p []byte) {
	end := (r.start + r.used) % len(r.buf)
	n := copy(r.buf[end:], p)
	copy(r.buf, p[n:])
	r.used += len(p)
}
