package sessionlog

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/file/wholefile"
)

// maxLine bounds a line, in bytes: a change has a URI of 4 KiB at most, each byte of which may take six.
const maxLine = 64 << 10

// changesPath is the name of a file of changes.
func (l *Log) changesPath(number int) string { return fmt.Sprintf("%s.%d", l.path, number) }

// changesThere returns the numbers of the files of changes that are there, in order.
func (l *Log) changesThere() (numbers []int, err error) {
	names, err := os.ReadDir(filepath.Dir(l.path))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		number, ok := strings.CutPrefix(name.Name(), filepath.Base(l.path)+".")
		if n, err := strconv.Atoi(number); ok && err == nil && n > 0 {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// readInto makes the changes in a file, if there is one. A line that cannot be read is left out: the process may
// have been killed while it wrote it.
func readInto(all map[digest]*Record, path string) error {
	file, _, err := regularfile.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s %w", path, err)
	}
	defer func() { _ = file.Close() }() // it was only read
	lines := bufio.NewReaderSize(file, maxLine)
	for {
		text, err := lines.ReadSlice('\n')
		for errors.Is(err, bufio.ErrBufferFull) { // not a line of ours
			text = nil
			_, err = lines.ReadSlice('\n')
		}
		var one line
		if json.Unmarshal(text, &one) == nil {
			one.apply(all)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// write replaces a file by one with these sessions, and returns its size.
func write(path string, all map[digest]*Record) (int64, error) {
	var raw bytes.Buffer
	encoder := json.NewEncoder(&raw)
	encoder.SetEscapeHTML(false)
	for id, r := range all {
		if err := encoder.Encode(line{ID: id, Begin: r}); err != nil { // strings, and JSON that was read
			return 0, err
		}
	}
	return int64(raw.Len()), wholefile.Write(path, raw.Bytes())
}

// excess returns so many of the sessions: of the caller with the most those used longest ago, as at the limit of
// sessions.
func excess(all map[digest]*Record, over int) (gone []digest) {
	byCaller := map[string][]digest{}
	for id, r := range all {
		byCaller[r.Caller] = append(byCaller[r.Caller], id)
	}
	var sizes []int
	for _, ids := range byCaller {
		slices.SortFunc(ids, func(a, b digest) int { return all[a].Used.Compare(all[b].Used) })
		sizes = append(sizes, len(ids))
	}
	// The most that each caller keeps: so many that all of them together are few enough.
	slices.Sort(sizes)
	left, most := len(all)-over, 0
	for i, size := range sizes {
		if most = left / (len(sizes) - i); size >= most {
			break
		}
		left -= size
	}
	for _, ids := range byCaller {
		gone = append(gone, ids[:max(len(ids)-most, 0)]...)
	}
	return gone
}
