package tail_test

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/orla-project/orla/internal/observe/tail"
)

// SPEC D5: what a capsule prints is kept verbatim, the newest of it.
func TestLastReturnsTheNewestOldestFirst(t *testing.T) {
	var b tail.Buffer
	if got := b.Last(10); len(got) != 0 {
		t.Errorf("an empty buffer holds %q", got)
	}
	for _, line := range []string{"one", "", "thr\xffee\r", "four"} {
		b.Append([]byte(line))
	}
	for n, want := range map[int][]string{
		-1: nil, 0: nil, 1: {"four"}, 3: {"", "thr\xffee\r", "four"}, 4: {"one", "", "thr\xffee\r", "four"}, 99: {"one", "", "thr\xffee\r", "four"},
	} {
		if got := b.Last(n); !slices.Equal(got, want) {
			t.Errorf("Last(%d) = %q; want %q", n, got, want)
		}
	}
}

func TestAppendCopies(t *testing.T) {
	var b tail.Buffer
	line := []byte("before")
	b.Append(line)
	copy(line, "after!")
	b.Last(1)[0] = "mine"
	if got := b.Last(1); got[0] != "before" {
		t.Errorf("got %q; want what was appended", got)
	}
}

// However much a capsule prints, the bounds hold.
func TestBufferIsBounded(t *testing.T) {
	var lines, bytes tail.Buffer
	for i := range 10_000 {
		lines.Append(fmt.Append(nil, i))
		bytes.Append([]byte(strings.Repeat("x", 1000)))
	}
	got := lines.Last(10_000)
	if len(got) != 50 || got[0] != "9950" || got[49] != "9999" {
		t.Errorf("%d lines from %s to %s; want the last 50", len(got), got[0], got[len(got)-1])
	}
	if got := len(bytes.Last(10_000)); got != 8 {
		t.Errorf("%d lines of 1000 bytes; want what 8 KiB hold", got)
	}
}

func TestOverLongLineIsCutWithAMark(t *testing.T) {
	var b tail.Buffer
	b.Append([]byte("short"))
	b.Append([]byte(strings.Repeat("é", 50_000)))
	got := b.Last(2)
	if len(got) != 1 || len(got[0]) > 8<<10 {
		t.Fatalf("%d lines, the first of %d bytes; want one of at most 8 KiB", len(got), len(got[0]))
	}
	head, _, _ := strings.Cut(got[0], " [")
	if !utf8.ValidString(got[0]) || got[0] != head+tail.CutMark(100_000-len(head)) {
		t.Errorf("it ends with %q", got[0][len(got[0])-40:])
	}
	b.Append([]byte("short"))
	if got := b.Last(2); !slices.Equal(got, []string{"short"}) {
		t.Errorf("%d lines; a full buffer has room for none beside it", len(got))
	}
}

func TestBufferIsForEveryGoroutine(t *testing.T) {
	var b tail.Buffer
	var users sync.WaitGroup
	for range 8 {
		users.Go(func() {
			for range 1000 {
				b.Append([]byte("line"))
				b.Last(3)
			}
		})
	}
	users.Wait()
	if got := len(b.Last(1000)); got != 50 {
		t.Errorf("%d lines; want 50", got)
	}
}

// An idle capsule costs nearly nothing.
func TestIdleBufferTakesNoMemory(t *testing.T) {
	var b tail.Buffer
	if got := testing.AllocsPerRun(100, func() { b.Last(10) }); got > 0 {
		t.Errorf("%v allocations for a silent stream", got)
	}
}

// read runs Lines over a text and returns what it gives, marked where it is cut.
func read(t *testing.T, r io.Reader, limit int) []string {
	t.Helper()
	var got []string
	if err := tail.Lines(r, limit, func(line []byte, dropped int) {
		text := string(line)
		if dropped > 0 {
			text += tail.CutMark(dropped)
		}
		got = append(got, text)
	}); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	for _, c := range []struct {
		name, text string
		limit      int
		want       []string
	}{
		{"nothing", "", 10, nil},
		{"lines", "one\ntwo\n", 10, []string{"one", "two"}},
		{"blank lines", "\n\na\n\n", 10, []string{"", "", "a", ""}},
		{"no end", "one\ntwo", 10, []string{"one", "two"}},
		{"bytes are left alone", "a\r\n\xff\x00\n", 10, []string{"a\r", "\xff\x00"}},
		{"exactly the limit", "0123456789\nnext\n", 10, []string{"0123456789", "next"}},
		{"over the limit", "0123456789a\nnext\n", 10, []string{"0123456789 [cut: 1 bytes more]", "next"}},
		{"over the limit without an end", "0123456789ab", 10, []string{"0123456789 [cut: 2 bytes more]"}},
		{"a character on the limit", "012345678é\nnext\n", 10, []string{"012345678 [cut: 2 bytes more]", "next"}},
		{"longer than what is read at once", long + "\n" + long + "\nnext\n", 20_000, []string{long, long, "next"}},
		{"far over the limit", long + long + "\nnext\n", 5, []string{"xxxxx [cut: 19995 bytes more]", "next"}},
		{"as long as what is read at once", long[:2048] + "\nnext\n", 5000, []string{long[:2048], "next"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := read(t, strings.NewReader(c.text), c.limit); !slices.Equal(got, c.want) {
				t.Errorf("got %q; want %q", got, c.want)
			}
			if got := read(t, iotest.OneByteReader(strings.NewReader(c.text)), c.limit); !slices.Equal(got, c.want) {
				t.Errorf("byte by byte got %q; want %q", got, c.want)
			}
		})
	}
}

func TestLinesReturnsWhatEndedTheReading(t *testing.T) {
	var got []string
	r := iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader("ab\n")))
	err := tail.Lines(r, 10, func(line []byte, _ int) { got = append(got, string(line)) })
	if !errors.Is(err, iotest.ErrTimeout) || !slices.Equal(got, []string{"a"}) {
		t.Errorf("got %q, %v; want what came, and the timeout", got, err)
	}
}

// A line is given when it is complete, not when more comes.
func TestLinesAreGivenAtOnce(t *testing.T) {
	r, w := io.Pipe()
	lines, ended := make(chan string), make(chan error)
	go func() {
		ended <- tail.Lines(r, 10, func(line []byte, _ int) { lines <- string(line) })
	}()
	for _, line := range []string{"one", "two"} {
		if _, err := io.WriteString(w, line+"\n"); err != nil {
			t.Fatal(err)
		}
		if got := <-lines; got != line {
			t.Errorf("got %q; want %q", got, line)
		}
	}
	_ = w.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// endless is a line without an end, of a gigabyte.
type endless struct{ left int }

func (e *endless) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), e.left)
	e.left -= n
	return n, nil
}

// A line of a gigabyte costs no more than the limit.
func TestEndlessLineCostsNoMemory(t *testing.T) {
	const size, limit = 1 << 30, 64 << 10
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	dropped := 0
	_ = tail.Lines(&endless{size}, limit, func(_ []byte, d int) { dropped = d })
	runtime.ReadMemStats(&after)
	if dropped != size-limit {
		t.Errorf("%d bytes dropped; want %d", dropped, size-limit)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 8*limit {
		t.Errorf("%d bytes of memory for a line cut at %d", got, limit)
	}
}

func FuzzLines(f *testing.F) {
	f.Add("one\ntwo", 3)
	f.Add("é\n\n", 1)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		limit = 1 + (limit&0xffff+0xffff)%0xffff
		rest := text
		err := tail.Lines(strings.NewReader(text), limit, func(line []byte, dropped int) {
			end := len(line) + dropped
			if len(line) > limit || end > len(rest) || rest[:len(line)] != string(line) || strings.Contains(rest[:end], "\n") {
				t.Fatalf("%q and %d more of %q", line, dropped, rest)
			}
			rest = strings.TrimPrefix(rest[end:], "\n")
		})
		if err != nil || rest != "" {
			t.Errorf("%v; %q was not read", err, rest)
		}
	})
}
