package tail

import (
	"bufio"
	"errors"
	"io"
)

const (
	// readSize is the buffer of a stream, also if that is silent.
	readSize = 2 << 10
	// keptSize bounds the memory that is kept for the next long line.
	keptSize = 16 << 10
)

// Lines reads r to its end and calls each with each line, without the newline. If a line is longer
// than limit bytes, it passes only the first limit bytes, and dropped is how many were left out. The
// text after the last newline is a line too.
//
// line is only valid during the call. Nothing is read during it either, so each must return quickly,
// or the writer of r blocks. Lines returns the error that ended the reading; io.EOF is not an error.
func Lines(r io.Reader, limit int, each func(line []byte, dropped int)) error {
	rest, dropped, err := Until(r, limit, each)
	if rest != nil {
		each(rest, dropped)
	}
	return err
}

// Until is Lines, but returns the text after the last newline; nil if there is none.
func Until(r io.Reader, limit int, each func(line []byte, dropped int)) (rest []byte, dropped int, err error) {
	in := bufio.NewReaderSize(r, readSize)
	give := func(start []byte, length int) {
		if length > len(start) {
			start = whole(start)
		}
		each(start, length-len(start))
	}
	var start []byte // of a line that is longer than the buffer
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
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			if length == 0 {
				return nil, 0, err
			}
			if length > len(start) {
				start = whole(start)
			}
			return start, length - len(start), err
		}
		give(start, length)
		length = 0
		if start = start[:0]; cap(start) > keptSize {
			start = nil
		}
	}
}
