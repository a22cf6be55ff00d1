package linerpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/mcp/rpc"
)

// said is a Stream that says what it is given, and takes nothing.
type said struct{ io.Reader }

func (said) Write(b []byte) (int, error)      { return len(b), nil }
func (said) Close() error                     { return nil }
func (said) SetReadDeadline(time.Time) error  { return nil }
func (said) SetWriteDeadline(time.Time) error { return nil }

// hear reads a text with so many calls in flight, from id 1 on, and returns what
// the Handler was told and what became of the calls: nil for those without an answer.
func hear(t *testing.T, text string, most, calls int) (events []string, answers []*outcome) {
	t.Helper()
	h := &heard{}
	synctest.Test(t, func(t *testing.T) {
		c := New(said{}, said{strings.NewReader(text)}, Options{MaxMessage: most, Stall: time.Hour, Options: rpc.Options{Handler: h}})
		unanswered := errors.New("there was no answer")
		all := make([]*outcome, calls)
		var waiting sync.WaitGroup
		for i := range calls {
			waiting.Go(func() {
				result, err := c.Call(t.Context(), rpc.Request{Method: "work"})
				if !errors.Is(err, unanswered) {
					all[i] = &outcome{result, err}
				}
			})
			synctest.Wait() // so that it has the next id, and is sent
		}
		if err := c.Serve(); !errors.Is(err, io.EOF) {
			t.Errorf("Serve gave %v", err)
		}
		c.Close(unanswered)
		waiting.Wait()
		answers = all
	})
	return h.all(), answers
}

// SPEC D5: one message a line, and whatever else comes is told and ends nothing.
func TestLinesAreMessages(t *testing.T) {
	const ok = `{"jsonrpc":"2.0","id":1,"result":"ok"}`
	for _, test := range []struct {
		name, text string
		want       string // the event, or how it begins; "" for none
		answer     string // of call 1; "" for none
	}{
		{"an answer", ok + "\n", "", `"ok"`},
		{"CRLF", ok + "\r\n", "", `"ok"`},
		{"a mark of byte order", "\xef\xbb\xbf" + ok + "\n", "", `"ok"`},
		{"the mark alone", "\xef\xbb\xbf\n", "", ""},
		{"blank lines", "\n\r\n  \t\n\n" + ok + "\n\n", "", `"ok"`},
		{"blanks around it", " \t" + ok + " \t\r\n", "", `"ok"`},
		{"no end of line", ok, "", `"ok"`},
		{"members in another order", `{"result":"ok","id":1,"jsonrpc":"2.0"}` + "\n", "", `"ok"`},
		{"a null error beside the result", `{"jsonrpc":"2.0","id":1,"result":"ok","error":null}`, "", `"ok"`},
		{"null for a result", `{"jsonrpc":"2.0","id":1,"result":null}`, "", `null`},
		{"not of UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"a\xff\xfeb\"}\n", "", "\"a\uFFFDb\""},
		{"an id that is a float", `{"jsonrpc":"2.0","id":1.0,"result":5}`, "unclaimed 1.0", ""},
		{"an id with an exponent", `{"jsonrpc":"2.0","id":1e0,"result":5}`, "unclaimed 1e0", ""},
		{"an id that is a string", `{"jsonrpc":"2.0","id":"1","result":5}`, `unclaimed "1"`, ""},
		{"an id that is null", `{"jsonrpc":"2.0","id":null,"result":5}`, `unclaimed null`, ""},
		{"an id below nothing", `{"jsonrpc":"2.0","id":-1,"result":5}`, `unclaimed -1`, ""},
		{"an id that is huge", `{"jsonrpc":"2.0","id":18446744073709551617,"result":5}`, `unclaimed 18446744073709551617`, ""},
		{"an id of nobody", `{"jsonrpc":"2.0","id":2,"result":5}`, `unclaimed 2`, ""},
		{"no version", `{"id":1,"result":5}`, "noise not a JSON-RPC message: it has no", ""},
		{"another version", `{"jsonrpc":"1.0","id":1,"result":5}`, "noise not a JSON-RPC message: it has no", ""},
		{"a version that is a number", `{"jsonrpc":2.0,"id":1,"result":5}`, "noise not a JSON-RPC message: it has no", ""},
		{"neither result nor error", `{"jsonrpc":"2.0","id":1}`, "noise not a JSON-RPC message: it has neither", ""},
		{"a notification", `{"jsonrpc":"2.0","method":"m","params":[1]}`, "notified m [1]", ""},
		{"a notification without params", `{"jsonrpc":"2.0","method":"m"}`, "notified m ", ""},
		{"a request", `{"jsonrpc":"2.0","id":"x","method":"m","params":{"a":1}}`, `asked "x" m {"a":1}`, ""},
		{"a method that is a number", `{"jsonrpc":"2.0","id":1,"method":5}`, "noise not a JSON-RPC message: ", ""},
		{"an empty method", `{"jsonrpc":"2.0","id":1,"method":"","result":5}`, "noise not a JSON-RPC message: ", ""},
		{"an id as long as may be", `{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 256-2) + `","method":"m"}`, `asked "xxx`, ""},
		{"an id longer than that", `{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 256-1) + `","method":"m"}`, "noise a request whose id is over 256 bytes", ""},
		{"a print", "hello\n", "noise not a JSON-RPC message: hello", ""},
		{"a broken message", `{"jsonrpc":"2.0","id":1,"result":`, "noise no valid JSON", ""},
		{"two messages in a line", ok + ok, "noise no valid JSON", ""},
		{"a line of 5 KiB", strings.Repeat("y", 5<<10), "noise not a JSON-RPC message: " + strings.Repeat("y", 4<<10) + "…", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			events, answers := hear(t, test.text, 1<<20, 1)
			switch {
			case test.want == "" && len(events) > 0, len(events) > 1:
				t.Errorf("it is told %q", events)
			case test.want != "" && (len(events) == 0 || !strings.HasPrefix(events[0], test.want)):
				t.Errorf("it is told %q, want %q", events, test.want)
			}
			switch a := answers[0]; {
			case a == nil && test.answer != "":
				t.Error("the call has no answer")
			case a != nil && string(a.result) != test.answer:
				t.Errorf("the call is answered %s, %v; want %s", a.result, a.err, test.answer)
			}
		})
	}
}

// What a process refuses stays as it said it; something that is not an error of JSON-RPC is one all the same.
func TestErrorsOfAnswers(t *testing.T) {
	for _, test := range []struct {
		raw  string
		code int64
		text string
	}{
		{`{"code":-32601,"message":"no","data":{"a":1}}`, -32601, "no"},
		{`"out of order"`, jsonrpc.CodeInternalError, `"out of order"`},
		{`{}`, jsonrpc.CodeInternalError, `{}`},
		{`{"code":"x"}`, jsonrpc.CodeInternalError, `{"code":"x"}`},
		{`null`, jsonrpc.CodeInternalError, `null`}, // and no result beside it
	} {
		_, answers := hear(t, `{"jsonrpc":"2.0","id":1,"error":`+test.raw+`}`, 1<<20, 1)
		wire, ok := errors.AsType[*jsonrpc.Error](answers[0].err)
		if !ok || wire.Code != test.code || wire.Message != test.text {
			t.Errorf("%s is %v", test.raw, answers[0].err)
		}
	}
}

// Older peers may answer with a batch.
func TestBatch(t *testing.T) {
	events, answers := hear(t, `[{"jsonrpc":"2.0","id":2,"result":"b"}, 5,{"jsonrpc":"2.0","method":"m"},{"jsonrpc":"2.0","id":1,"error":{"code":7,"message":"no"}}]`, 1<<20, 3)
	if want := []string{"noise not a JSON-RPC message: 5", "notified m "}; !slices.Equal(events, want) {
		t.Errorf("it is told %q, want %q", events, want)
	}
	if answers[0] == nil || answers[0].err == nil || answers[1] == nil || string(answers[1].result) != `"b"` || answers[2] != nil {
		t.Errorf("the calls are answered %v", answers)
	}
}

// SPEC D5: an over-long line fails the call that it answered, if that can be
// told, and the lines after it are read as ever.
func TestLongLines(t *testing.T) {
	const most = 100_000
	fill := func(n int, head, tail string) string {
		return head + strings.Repeat("x", n-len(head)-len(tail)) + tail
	}
	const (
		head  = `{"jsonrpc":"2.0","id":2,"result":"`
		late  = `{"result":"`
		after = `","id":2,"jsonrpc":"2.0"}`
	)
	for _, test := range []struct {
		name    string
		line    string
		calls   int
		failed  []int // the calls that get ErrTooLong
		result  int   // the call that gets a result; 0 for none
		isNoise bool
	}{
		{"at the limit", fill(most, head, `"}`), 3, nil, 2, false},
		{"a request of its own", fill(20*most, `{"jsonrpc":"2.0","id":2,"method":"sampling/createMessage","params":"`, `"}`), 3, nil, 0, true},
		{"a notification beside one call", fill(20*most, `{"jsonrpc":"2.0","method":"notifications/message","params":"`, `"}`), 1, nil, 0, true},
		{"one over", fill(most+1, head, `"}`), 3, []int{2}, 0, true},
		{"far over", fill(20*most, head, `"}`), 3, []int{2}, 0, true},
		{"the id last, one over", fill(most+1, late, after), 3, []int{2}, 0, true},
		{"the id last, far over", fill(20*most, late, after), 3, []int{2}, 0, true},
		{"the id last and alone", fill(20*most, late, `","id":2}`), 3, []int{2}, 0, true},
		{"blanks in it", fill(20*most, " { \"id\" : 2 , \"result\":\"", `"}`), 3, []int{2}, 0, true},
		{"no id in reach", fill(20*most, `{"result":"`, `"}`), 3, nil, 0, true},
		{"no id in reach, one call", fill(20*most, `{"result":"`, `"}`), 1, []int{1}, 0, true},
		{"no id in reach, no call", fill(20*most, `{"result":"`, `"}`), 0, nil, 0, true},
		{"the id of nobody", fill(20*most, `{"jsonrpc":"2.0","id":7,"result":"`, `"}`), 1, nil, 0, true},
		{"an id beyond numbers", fill(20*most, `{"id":99999999999999999999,"result":"`, `"}`), 1, nil, 0, true},
		{"junk", fill(20*most, "junk ", ""), 1, nil, 0, true},
		{"junk that ends like one", fill(20*most, "junk ", after), 3, nil, 0, true},
	} {
		for _, end := range []string{"\n", ""} {
			t.Run(fmt.Sprintf("%s %q", test.name, end), func(t *testing.T) {
				text := test.line + end
				if end != "" {
					text += `{"jsonrpc":"2.0","method":"next"}` + "\n"
				}
				events, answers := hear(t, text, most, test.calls)
				if noise := len(events) > 0 && strings.HasPrefix(events[0], "noise a line of over 100000 bytes: "); noise != test.isNoise {
					t.Errorf("it is told %.100q", events)
				} else if noise {
					events = events[1:]
				}
				if end != "" && !slices.Equal(events, []string{"notified next "}) || end == "" && len(events) > 0 {
					t.Errorf("afterwards it is told %.100q", events)
				}
				for i, a := range answers {
					id := i + 1
					switch {
					case slices.Contains(test.failed, id):
						if a == nil || !errors.Is(a.err, rpc.ErrTooLong) {
							t.Errorf("call %d got %.50v", id, a)
						}
					case id == test.result:
						if a == nil || a.err != nil || len(a.result) < most-100 {
							t.Errorf("call %d got %.50v", id, a)
						}
					case a != nil:
						t.Errorf("call %d got %.50v", id, a)
					}
				}
			})
		}
	}
}

// What a line of the log or an error quotes is short, however long the line was.
func TestNoiseIsShort(t *testing.T) {
	h := &quoted{}
	c := New(said{}, said{strings.NewReader(strings.Repeat("z", 1<<20) + "\n{" + strings.Repeat("z", 90_000) + "\n")}, Options{MaxMessage: 100_000, Stall: time.Hour, Options: rpc.Options{Handler: h}})
	_ = c.Serve() // that it ended is all that matters
	if len(h.sizes) != 2 || slices.Max(h.sizes) > 5<<10 {
		t.Errorf("lines of %v bytes are quoted", h.sizes)
	}
}

type quoted struct {
	heard

	sizes []int
}

func (q *quoted) Noise(line []byte, _ string) { q.sizes = append(q.sizes, len(line)) }

// pieces reads in pieces of the given sizes, over and over.
type pieces struct {
	r     io.Reader
	sizes []int
	n     int
}

func (p *pieces) Read(b []byte) (int, error) {
	size := p.sizes[p.n%len(p.sizes)]
	p.n++
	return p.r.Read(b[:min(len(b), size)])
}

// lines reads all lines of a stream, and its end.
func lines(r io.Reader, most int) (all []line, err error) {
	l := lineReader{r: r, max: most}
	for {
		next, err := l.next()
		if err != nil {
			return append(all, next), err
		}
		all = append(all, next)
	}
}

// asLines reports how what was read is not the lines of a text; "" if it is.
// They are compared when all has been read, so that a line whose bytes others
// were written over shows.
func asLines(read []line, text []byte, most int) string {
	want := bytes.Split(text, []byte("\n"))
	if len(read) != len(want) {
		return fmt.Sprintf("%d lines, want %d", len(read), len(want))
	}
	for i, got := range read {
		switch w := want[i]; {
		case got.cut != (len(w) > most):
			return fmt.Sprintf("line %d of %d bytes is cut: %v", i, len(w), got.cut)
		case !got.cut && !bytes.Equal(got.data, w):
			return fmt.Sprintf("line %d is %.50q, want %.50q", i, got.data, w)
		case got.cut && (len(got.data) == 0 || len(got.data) > cutHead || !bytes.HasPrefix(w, got.data)):
			return fmt.Sprintf("line %d has a head of %d bytes: %.50q", i, len(got.data), got.data)
		case got.cut && !bytes.Equal(got.tail, w[len(w)-min(len(w), cutTail):]):
			return fmt.Sprintf("line %d has the tail %.50q", i, got.tail)
		}
	}
	return ""
}

// Lines come as they are, in whatever pieces they are read; also long ones,
// whose buffers are given away.
func TestLinesInPieces(t *testing.T) {
	const most = 100_000
	var text []byte
	for i, n := range []int{0, 1, 10, bigLine - 1, 5, bigLine, 7, bigLine + 1, 0, most, most + 1, 3, 4 * most, 50, most, most, 20, growStep, bufSize, bufSize + 1, 2 * growStep, 9} {
		text = append(append(text, bytes.Repeat([]byte{byte('a' + i)}, n)...), '\n')
	}
	for _, rest := range []string{"", "the rest", strings.Repeat("r", most), strings.Repeat("r", most+1), strings.Repeat("r", 3*most)} {
		whole := append(slices.Clip(text), rest...)
		for name, r := range map[string]io.Reader{
			"at once":          bytes.NewReader(whole),
			"with its end":     iotest.DataErrReader(bytes.NewReader(whole)),
			"by the byte":      iotest.OneByteReader(bytes.NewReader(whole)),
			"by halves":        iotest.HalfReader(bytes.NewReader(whole)),
			"as a pipe has it": &pieces{r: bytes.NewReader(whole), sizes: []int{growStep}},
			"in odd pieces":    &pieces{r: bytes.NewReader(whole), sizes: []int{1, 4095, 17, 65536, 333, 32769}},
		} {
			read, err := lines(r, most)
			if wrong := asLines(read, whole, most); wrong != "" || !errors.Is(err, io.EOF) {
				t.Errorf("%s, with a rest of %d bytes: %s, %v", name, len(rest), wrong, err)
			}
		}
	}
}

// A stream that breaks says why; one that gives nothing for ever is broken.
func TestLinesEndWithWhy(t *testing.T) {
	broken := errors.New("broken")
	read, err := lines(io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(broken)), 10)
	if !errors.Is(err, broken) || asLines(read, []byte("a\nb"), 10) != "" {
		t.Errorf("read %d lines, %v", len(read), err)
	}
	if _, err := lines(&pieces{r: strings.NewReader("a\n"), sizes: []int{0}}, 10); !errors.Is(err, errNoProgress) {
		t.Errorf("a stream that gives nothing ends with %v", err)
	}
}

// Lines of one length need no new buffer, and a long one is not paid for for ever.
func TestLinesReuseTheirBuffer(t *testing.T) {
	for _, size := range []int{100, 1000, bufSize + 1, 16 << 10, bigLine - 1} {
		l := lineReader{r: &same{line: append(bytes.Repeat([]byte("x"), size), '\n')}, max: 1 << 20}
		read := func() {
			if got, err := l.next(); err != nil || len(got.data) != size {
				t.Fatalf("a line of %d bytes, %v; want %d", len(got.data), err, size)
			}
		}
		for range 50 {
			read()
		}
		if got := testing.AllocsPerRun(100, read); got != 1 {
			t.Errorf("a line of %d bytes takes %v allocations, want its own", size, got)
		}
	}
	for _, large := range []int{bufSize + 1, 16 << 10, 1 << 20} {
		text := strings.Repeat("x", large) + "\n" + strings.Repeat("short\n", 200)
		l := lineReader{r: &pieces{r: strings.NewReader(text), sizes: []int{100}}, max: 2 << 20}
		for range 201 {
			if _, err := l.next(); err != nil {
				t.Fatal(err)
			}
		}
		if len(l.buf) > bufSize {
			t.Errorf("long after a line of %d bytes the buffer has %d", large, len(l.buf))
		}
	}
}

// same says a line over and over, and waits for each to be read.
type same struct {
	line []byte
	said int
}

func (s *same) Read(b []byte) (int, error) {
	n := copy(b, s.line[s.said:])
	s.said = (s.said + n) % len(s.line)
	return n, nil
}

// FuzzLines reads random bytes in random pieces: the lines are those of the text,
// and each of them is somebody's.
func FuzzLines(f *testing.F) {
	for _, text := range []string{
		"", "\n", "{}\n[]\nnull\n", "print\r\n\xef\xbb\xbf\n", "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\xff\"}\n",
		`[{"jsonrpc":"2.0","id":1,"result":[1,{"a":2}]},5]` + "\n", `{"jsonrpc":"2.0","method":"m","params":{}}` + "\nx",
		`{"jsonrpc":"2.0","id":"x","method":"m"}` + "\n" + strings.Repeat("[", 300) + "\n",
		`{"id":1,"result":"` + strings.Repeat("x", 300) + `"}` + "\n" + strings.Repeat("x", 299) + `,"id":1}`,
	} {
		f.Add([]byte(text), []byte{1, 7, 200}, uint16(256))
	}
	f.Fuzz(func(t *testing.T, text, sizes []byte, limit uint16) {
		most := 1 + int(limit)
		in := &pieces{r: bytes.NewReader(text), sizes: []int{1 << 20}}
		for _, size := range sizes {
			in.sizes = append(in.sizes, 1+int(size)*int(size))
		}
		read, err := lines(in, most)
		if wrong := asLines(read, text, most); wrong != "" || !errors.Is(err, io.EOF) {
			t.Fatalf("%s, %v", wrong, err)
		}
		for part := range bytes.SplitSeq(text, []byte("\n")) {
			events, answers := hear(t, string(part), most, 1)
			told := len(events)
			if answers[0] != nil {
				told++
			}
			bare := bytes.TrimSpace(bytes.TrimPrefix(part, []byte("\xef\xbb\xbf")))
			var batch []json.RawMessage
			isBatch := len(part) <= most && bytes.HasPrefix(bare, []byte("[")) && json.Unmarshal(bytes.ToValidUTF8(bare, []byte("?")), &batch) == nil
			switch {
			case len(part) > most && told == 0, len(part) <= most && len(bare) > 0 && !isBatch && told != 1:
				t.Fatalf("%q is told %d times: %q", part, told, events)
			case isBatch && told != len(batch):
				t.Fatalf("the batch %q of %d is told %d times: %q", part, len(batch), told, events)
			}
		}
	})
}
