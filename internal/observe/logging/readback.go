package logging

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"os"
	"sort"
	"syscall"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/observe/history"
)

const (
	// maxReadLine is the longest line that ReadBack returns; it leaves out longer ones.
	maxReadLine = 1 << 20
	// disorder is how far from the order of their times lines of a file may be.
	disorder = 2 * time.Second
)

// ReadBack returns the lines that q selects of a JSON log file and of those that it was rotated to, and those of kept that
// the files do not have, in the order of their times: at most last of them, the newest, or all for 0. All are passed on as they are
// read; of the newest, 16 MiB are held at most. kept are lines of the history, oldest first. If the file
// cannot be read, they are all there is.
func ReadBack(ctx context.Context, path string, q history.Query, last int, kept []history.Line) iter.Seq[history.Line] {
	all := func(yield func(history.Line) bool) {
		files := openLog(path)
		if files == nil {
			for _, line := range kept {
				if !yield(line) {
					return
				}
			}
			return
		}
		defer files.close()
		kept := missing(ctx, files, kept)
		for line := range files.lines(ctx, q.Since) {
			for len(kept) > 0 && kept[0].Time.Before(line.Time) {
				if !yield(kept[0]) {
					return
				}
				kept = kept[1:]
			}
			if q.Matches(&line) && !yield(line) {
				return
			}
		}
		for _, line := range kept {
			if !yield(line) {
				return
			}
		}
	}
	if last <= 0 {
		return all
	}
	return func(yield func(history.Line) bool) {
		for _, line := range newest(ctx, path, q, last, kept) {
			if !yield(line) {
				return
			}
		}
	}
}

// openRegular opens a regular file, and returns its size at this moment; nil if there is none.
func openRegular(path string) (*os.File, int64) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO does not block
	if err != nil {
		return nil, 0
	}
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		_ = file.Close() // nothing was read
		return nil, 0
	}
	return file, info.Size()
}

// identity tells lines of the log apart. A line of the history may be shortened.
type identity struct {
	at          int64
	event, tool string
}

func identityOf(line *history.Line) identity {
	return identity{line.Time.UnixNano(), line.Event, line.Tool}
}

// missing returns the lines of kept that files do not have.
func missing(ctx context.Context, files *logFiles, kept []history.Line) (list []history.Line) {
	if len(kept) == 0 {
		return nil
	}
	left, oldest := make(map[identity]int, len(kept)), kept[0].Time
	for i := range kept {
		left[identityOf(&kept[i])]++
		if kept[i].Time.Before(oldest) {
			oldest = kept[i].Time
		}
	}
	for line := range files.lines(ctx, oldest) {
		if id := identityOf(&line); left[id] > 0 {
			left[id]--
		}
	}
	for i := range kept {
		if id := identityOf(&kept[i]); left[id] > 0 {
			left[id]--
			list = append(list, kept[i])
		}
	}
	return list
}

// linesFrom returns the lines of the first size bytes of a file, from about a time on. Their JSON is good until
// the next line.
func linesFrom(ctx context.Context, file *os.File, size int64, since time.Time) iter.Seq[history.Line] {
	return func(yield func(history.Line) bool) {
		begin := offsetOf(file, size, since.Add(-disorder))
		read(ctx, io.NewSectionReader(file, begin, size-begin), since, yield)
	}
}

// read passes on the lines of r from a time on. It reports false if yield does.
func read(ctx context.Context, r io.Reader, since time.Time, yield func(history.Line) bool) bool {
	r, end := turns.Pieces(ctx, r)
	defer end()
	in := bufio.NewReaderSize(r, maxReadLine)
	for ctx.Err() == nil {
		raw, err := nextLine(in)
		if err != nil {
			return true
		}
		if line, ok := parsed(raw); ok && !line.Time.Before(since) && !yield(line) {
			return false
		}
	}
	return false
}

// offsetOf returns where the lines of a file from a time on begin, or a place before.
func offsetOf(file *os.File, size int64, from time.Time) int64 {
	const step = 64 << 10
	in := bufio.NewReaderSize(nil, step)
	n := sort.Search(int(size/step), func(i int) bool { // whether the first line that begins after it is late enough
		in.Reset(io.NewSectionReader(file, int64(i)*step, size-int64(i)*step))
		if _, err := nextLine(in); err != nil { // the rest of a line
			return true
		}
		for range 100 {
			raw, err := nextLine(in)
			if err != nil {
				return true
			}
			if line, ok := parsed(raw); ok {
				return !line.Time.Before(from)
			}
		}
		return true
	})
	begin := int64(max(0, n-1)) * step
	if begin == 0 {
		return 0
	}
	in.Reset(io.NewSectionReader(file, begin, size-begin))
	rest, err := nextLine(in)
	if err != nil || rest == nil { // then linesFrom begins within a line, which is not JSON
		return begin
	}
	return begin + int64(len(rest))
}

// nextLine returns the next line with its end; nil for one that is longer than the buffer.
func nextLine(in *bufio.Reader) ([]byte, error) {
	line, err := in.ReadSlice('\n')
	for errors.Is(err, bufio.ErrBufferFull) {
		line = nil
		_, err = in.ReadSlice('\n')
	}
	return line, err
}

// parsed reads a line of the JSON log.
func parsed(raw []byte) (history.Line, bool) {
	var said struct {
		Time time.Time
		Msg  string
		Tool string
		Code string
	}
	if json.Unmarshal(raw, &said) != nil || said.Time.IsZero() {
		return history.Line{}, false
	}
	if said.Code == string(fault.UnsupportedTool) { // as in toolOf
		said.Tool = ""
	}
	return history.Line{Time: said.Time, Tool: said.Tool, Event: said.Msg, JSON: bytes.TrimSuffix(raw, []byte("\n"))}, true
}
