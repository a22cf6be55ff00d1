package stdio

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/orla-project/orla/mcpbridge/wire"
)

// SPEC L1: what is copied of many answers with long parts shares one buffer, and that is used again.
func TestL1AnswersShareABuffer(t *testing.T) {
	const answersOfABatch = 100
	var a answers
	var want []byte
	batch := func() {
		want = want[:0]
		for n := range answersOfABatch {
			head, long := fmt.Appendf(nil, `{"id":%d,"result":`, n), bytes.Repeat([]byte{'a' + byte(n%26)}, longPart)
			a.add(wire.Parts{head, long, []byte("}")}, longPart, nil)
			want = append(append(append(want, head...), long...), "}\n"...)
		}
	}
	var first *byte
	for round := range 3 {
		batch()
		var got bytes.Buffer
		next := a.take()
		if err := writeAll(&got, next.chunks); err != nil || !bytes.Equal(got.Bytes(), want) {
			t.Fatalf("round %d: what was written are not the answers: %v", round, err)
		}
		copied := next.chunks[0]
		for i, chunk := range next.chunks { // each second one is a long part
			if i%2 == 0 && !within(chunk, copied) {
				t.Errorf("round %d: part %d has a buffer of its own", round, i)
			}
		}
		if first == nil {
			first = &copied[0]
		} else if &copied[0] != first {
			t.Errorf("round %d: the buffer of the round before is not used", round)
		}
		a.keep(next.chunks)
	}
}

// within reports whether part lies in the memory of whole.
func within(part, whole []byte) bool {
	whole = whole[:cap(whole)]
	return cap(part) <= len(whole) && &part[0] == &whole[len(whole)-cap(part)]
}
