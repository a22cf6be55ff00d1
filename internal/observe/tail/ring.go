package tail

import "encoding/binary"

// Bounds are the limits of a Ring.
type Bounds struct {
	Bytes   int // including HeadSize for each record
	Records int
}

// HeadSize is how many bytes a Ring uses for a record, in addition to the record itself.
const HeadSize = 4

// firstSize is the first size of a Ring, if its first record fits.
const firstSize = 512

// Ring keeps the last records in one array, which grows as needed. Push copies records, and does not
// allocate once the array has its full size. The zero Ring is empty and uses no memory. It is not
// safe for concurrent use.
type Ring struct {
	buf   []byte // circular
	start int    // where the oldest record begins
	used  int    // bytes of all records
	count int    // number of records
}

// Size is the memory of the Ring, in bytes.
func (r *Ring) Size() int { return len(r.buf) }

// Push adds a record, given in parts, and removes the oldest ones until most is met. It panics if
// the record alone exceeds most.
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

// drop removes the oldest record.
func (r *Ring) drop() {
	var head [HeadSize]byte
	n := copy(head[:], r.buf[r.start:])
	copy(head[n:], r.buf)
	size := HeadSize + int(binary.LittleEndian.Uint32(head[:]))
	r.start = (r.start + size) % len(r.buf)
	r.used -= size
	r.count--
}

// grow makes room for need bytes in total, at most limit.
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

// flat returns an array of size bytes that begins with a copy of the records.
func (r *Ring) flat(size int) []byte {
	flat := make([]byte, size)
	n := copy(flat[:r.used], r.buf[min(r.start, len(r.buf)):])
	copy(flat[n:r.used], r.buf)
	return flat
}

// write appends p, for which there is room.
func (r *Ring) write(p []byte) {
	end := (r.start + r.used) % len(r.buf)
	n := copy(r.buf[end:], p)
	copy(r.buf, p[n:])
	r.used += len(p)
}
