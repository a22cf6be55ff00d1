package history

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
)

const (
	// givenFormat begins what Give returns. Another format has another number, and the release after it reads both.
	givenFormat = "orla history 1\n"
	// maxGiven bounds what Give returns, but for the lines of all tools together.
	maxGiven = 8 << 20
	// sizeHead is the size of the length before a record.
	sizeHead = 4
)

// Give returns the lines for the program that follows in this process (SPEC Q1, docs/decisions/0051). Beyond a bound, it
// leaves out the tools whose last line is oldest.
func (h *History) Give() []byte {
	h.mu.Lock()
	records := h.all.appendTo(nil)
	size := 0
	for e := h.recent.Front(); e != nil; e = e.Next() {
		of, _ := e.Value.(*story) // recent has only stories
		more := of.appendTo(nil)
		for _, record := range more {
			size += sizeHead + len(record)
		}
		if size > maxGiven {
			break
		}
		records = append(records, more...)
	}
	h.mu.Unlock()
	// Of a line that there is twice, the one of all tools is first: it was not shortened for its tool.
	slices.SortStableFunc(records, func(a, b []byte) int { return cmp.Compare(numberOf(a), numberOf(b)) })
	records = slices.CompactFunc(records, func(a, b []byte) bool { return numberOf(a) == numberOf(b) })
	given := []byte(givenFormat)
	for _, record := range records {
		given = binary.LittleEndian.AppendUint32(given, uint32(len(record)))
		given = append(given, record...)
	}
	return given
}

// numberOf returns the number of the line of a record.
func numberOf(record []byte) uint64 { return binary.LittleEndian.Uint64(record) }

// Take adds the lines that the program before has given, as if they were added again. It is called before any other
// line is added. After an error it has added none.
func (h *History) Take(given []byte) error {
	rest, ok := bytes.CutPrefix(given, []byte(givenFormat))
	if !ok {
		return fmt.Errorf("it has a format other than %q", givenFormat[:len(givenFormat)-1])
	}
	var lines []Line
	for at := len(givenFormat); len(rest) > 0; at = len(given) - len(rest) {
		var record []byte
		if len(rest) >= sizeHead {
			end := sizeHead + int64(binary.LittleEndian.Uint32(rest))
			if end <= int64(len(rest)) {
				record, rest = rest[sizeHead:end], rest[end:]
			}
		}
		if !whole(record) {
			return fmt.Errorf("the line at byte %d is not whole", at)
		}
		lines = append(lines, read(record).Line)
	}
	for _, line := range lines {
		h.Add(line)
	}
	return nil
}

// whole reports whether a record has all that its head says.
func whole(record []byte) bool {
	return len(record) >= headSize &&
		headSize+int(binary.LittleEndian.Uint16(record[20:]))+int(binary.LittleEndian.Uint16(record[22:])) <= len(record)
}
