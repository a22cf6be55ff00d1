package tail_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/orla-project/orla/internal/observe/tail"
)

// A ring is what a plain list of records would be that is cut at its front, for
// any records and bounds.
func FuzzRing(f *testing.F) {
	f.Add([]byte("\x05\x00\xff\x13\x20"), 40, 3)
	f.Add(bytes.Repeat([]byte{200, 1, 7}, 200), 1000, 50)
	f.Fuzz(func(t *testing.T, sizes []byte, most, records int) {
		bounds := tail.Bounds{Bytes: 300 + (most&0xffff)%4000, Records: 1 + (records&0xffff)%100}
		var r tail.Ring
		var want [][]byte
		for i, size := range sizes {
			record := bytes.Repeat([]byte{byte(i)}, int(size))
			r.Push(bounds, record[:size/2], record[size/2:])
			want = append(want, record)
			used := 0
			for _, kept := range want {
				used += tail.HeadSize + len(kept)
			}
			for len(want) > bounds.Records || used > bounds.Bytes {
				used -= tail.HeadSize + len(want[0])
				want = want[1:]
			}
			if got := r.Records(); !slices.EqualFunc(got, want, bytes.Equal) {
				t.Fatalf("after %d records of %v: %q; want %q", i+1, bounds, got, want)
			}
			if r.Size() > max(bounds.Bytes, 512) {
				t.Fatalf("%d bytes of memory for %v", r.Size(), bounds)
			}
		}
	})
}

func TestFullRingAllocatesNothing(t *testing.T) {
	var r tail.Ring
	bounds := tail.Bounds{Bytes: 1 << 10, Records: 100}
	record := make([]byte, 100)
	push := func() { r.Push(bounds, record[:1], record[1:]) }
	for range 50 {
		push()
	}
	if got := testing.AllocsPerRun(100, push); got > 0 {
		t.Errorf("%v allocations to push a record", got)
	}
}
