package audit

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// maxTail bounds what Tail reads, in bytes.
const maxTail = 1 << 20

// Tail returns the last lines of an audit log, at most n, and the size of the file. It leaves out what is not a line;
// Check says what is wrong.
func Tail(path string, n int) (lines []Line, size int64, err error) {
	file, size, err := openToRead(path)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = file.Close() }() // it was only read
	begin := max(0, size-maxTail)
	in := bufio.NewScanner(io.NewSectionReader(file, begin, size-begin))
	in.Buffer(nil, maxTail)
	for in.Scan() {
		var l Line
		if json.Unmarshal(in.Bytes(), &l) == nil && l.Event != "" { // the first may be cut
			lines = append(lines, l)
		}
	}
	return lines[max(0, len(lines)-n):], size, nil
}

// openToRead opens a regular file, and returns its size.
func openToRead(path string) (*os.File, int64, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a FIFO does not wait
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New(path + " is not a regular file")
	}
	if err != nil {
		_ = file.Close() // nothing was read
		return nil, 0, err
	}
	return file, info.Size(), nil
}

// Check checks the audit log of a state folder with its key and its newest head. keyed is false if there is no key, so
// that no signature was checked.
func Check(ctx context.Context, stateDir, path string) (report *Report, keyed bool, err error) {
	v := &Verifier{}
	key, err := PublicKey(stateDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, false, err
	default:
		if v.Key, err = ParseKey(key); err != nil {
			return nil, false, err
		}
	}
	if v.Head, err = LastHead(stateDir, path); err != nil {
		return nil, false, err
	}
	v.Whole = v.Head != nil
	file, _, err := openToRead(path)
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = file.Close() }() // it was only read
	if err := v.File(ctx, path, file, true); err != nil {
		return nil, false, err
	}
	return v.Report(), v.Key != nil, nil
}
