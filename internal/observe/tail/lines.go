package tail

import (
	"bufio"
	"errors"
	"io"
)

const (
	// readSize is what a stream costs that is silent.
	readSize = 4 << 10
	// keptSize bounds the memory that is kept for the next long line.
	keptSize = 16 << 10
)

// Lines reads r to its end and gives each line to each, without the newline. Of
// a line over limit bytes, the first limit bytes are given; the rest is read
// and dropped, and dropped says how many bytes that is. What follows
// the last newline is a line too.
//
// The slice is only valid during the call. Nothing is read during it either, so
// each must be quick, or whoever writes to r waits. Lines returns the error
// that ended the reading; the end of the stream is none.
func Lines(r io.Reader, limit int, each func(line []byte, dropped int)) error {
	in := bufio.NewReaderSize(r, readSize)
	give := func(start []byte, length int) {
		if length > len(start) {
			start = whole(start)
		}
		each(start, length-len(start))
	}
	var start []byte // of a line that is longer than what in holds
	length := 0      // of that line so far
	for {
		part, err := in.ReadSlice('\n')
		if err == nil {
			part = part[:len(part)-1]
		}
		if err == nil && length == 0 { // most lines need no copy
			give(part[:min(limit, len(part))], len(part))
			continue
		}
		start = append(start, part[:min(limit-len(start), len(part))]...)
		length += len(part)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err == nil || length > 0 {
			give(start, length)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		length = 0
		if start = start[:0]; cap(start) > keptSize {
			start = nil
		}
	}
}
