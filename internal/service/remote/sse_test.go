package remote

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/orla-project/orla/internal/call/pace"
)

func never(int) error { return errors.New("a small event is taken for a large one") }

// read returns the events of a text, and how the reading ended.
func read(r io.Reader, max int, grow func(int) error) (events []event, e *eventReader, err error) {
	e = newEventReader(r, max, nil, new(pace.Shared), grow)
	for {
		ev, err := e.next()
		if err != nil {
			return events, e, err
		}
		events = append(events, ev)
	}
}

func TestEvents(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       []event
		retry      time.Duration
	}{
		{name: "nothing"},
		{name: "one", text: "event: message\nid: 7\ndata: {}\n\n", want: []event{{"message", "7", []byte("{}")}}},
		{name: "no space", text: "data:{}\n\n", want: []event{{"", "", []byte("{}")}}},
		{name: "two spaces", text: "data:  {}\n\n", want: []event{{"", "", []byte(" {}")}}},
		{name: "CR LF", text: "id: 1\r\ndata: a\r\ndata: b\r\n\r\ndata: c\r\n\r\n", want: []event{{"", "1", []byte("a\nb")}, {"", "", []byte("c")}}},
		{name: "CR alone", text: "data: a\r\rdata: b\r\r", want: []event{{"", "", []byte("a")}, {"", "", []byte("b")}}},
		{name: "a byte order mark", text: "\xef\xbb\xbfdata: a\n\n", want: []event{{"", "", []byte("a")}}},
		{name: "comments and strange fields", text: ": ping\n\nfoo: bar\nfoo\ndata: a\n: in between\n\n", want: []event{{"", "", []byte("a")}}},
		{name: "no data, but an id", text: "id: 5\nretry: 10\n\nid: 6\ndata:\n\ndata\n\n", retry: 10 * time.Millisecond},
		{name: "without its end", text: "data: a\n\ndata: b\n", want: []event{{"", "", []byte("a")}}},
		{name: "a retry that is none", text: "retry: soon\ndata: a\n\n", want: []event{{"", "", []byte("a")}}},
		{name: "a retry in a year", text: "retry: 4000000000\ndata: a\n\n", want: []event{{"", "", []byte("a")}}, retry: maxRetry},
		{name: "an id that is not valid in a header", text: "id: a\x00b\ndata: a\n\nid: " + strings.Repeat("1", maxEventID+1) + "\ndata: b\n\n", want: []event{{"", "", []byte("a")}, {"", "", []byte("b")}}},
		{name: "as large as can be", text: "data: " + strings.Repeat("x", 2000) + "\n\n", want: []event{{"", "", []byte(strings.Repeat("x", 2000))}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, r := range []io.Reader{strings.NewReader(test.text), iotest.OneByteReader(strings.NewReader(test.text))} {
				got, e, err := read(r, 2000, never)
				if !errors.Is(err, io.EOF) || e.retry != test.retry {
					t.Errorf("it ended with %v and the retry %s", err, e.retry)
				}
				if !slices.EqualFunc(got, test.want, func(a, b event) bool {
					return a.name == b.name && a.id == b.id && string(a.data) == string(b.data)
				}) {
					t.Errorf("got %q, want %q", got, test.want)
				}
			}
		})
	}
}

// endless is a text without an end.
type endless string

func (e endless) Read(p []byte) (int, error) { return copy(p, e), nil }

// An event is never held beyond the limit, in whatever way it is too large.
func TestEventsThatAreTooLarge(t *testing.T) {
	for name, text := range map[string]io.Reader{
		"one line":                  io.MultiReader(strings.NewReader("data: "), endless("x")),
		"many lines":                endless("data: xx\n"),
		"a comment":                 io.MultiReader(strings.NewReader(":"), endless("x")),
		"a field of no name":        endless("x"),
		"one byte more than can be": strings.NewReader("data: " + strings.Repeat("x", 1001) + "\n\n"),
	} {
		got, e, err := read(text, 1000, never)
		if !errors.Is(err, errTooLarge) || len(got) > 0 {
			t.Errorf("%s: %d events, %v", name, len(got), err)
		}
		if cap(e.line) > 10_000 {
			t.Errorf("%s: %d bytes were kept", name, cap(e.line))
		}
	}
}

// A large event asks for room once for each step, before it is read.
func TestLargeEventsAskForRoom(t *testing.T) {
	var asked []int
	text := "data: small\n\ndata: " + strings.Repeat("x", 2*small) + "\ndata: more\n\ndata: small\n\ndata: " + strings.Repeat("x", 2*large) + "\n\n"
	got, _, err := read(strings.NewReader(text), 1<<20, func(step int) error { asked = append(asked, step); return nil })
	if len(got) != 4 || !errors.Is(err, io.EOF) || !slices.Equal(asked, []int{0, 1, 0, 1, 2, 3}) {
		t.Errorf("%d events, %v, and room was asked for by %v", len(got), err, asked)
	}
	refusal := errors.New("no room")
	if got, _, err := read(strings.NewReader(text), 1<<20, func(int) error { return refusal }); len(got) != 1 || !errors.Is(err, refusal) {
		t.Errorf("without room: %d events, %v", len(got), err)
	}
}

// SPEC S2: when an event has been read, nothing of the size of its lines stays with the
// stream, nor with a small message: what they took of somebody's share is given back then.
func TestS2NothingLargeStaysOfAnEvent(t *testing.T) {
	large := strings.Repeat("x", 1<<20)
	space := strings.Repeat(" ", 1<<20)
	for name, text := range map[string]string{
		"a comment behind the data":    "data: {}\n:" + large + "\n\n",
		"a comment before the data":    ":" + large + "\ndata: {}\n\n",
		"a field that is not known":    "data: {}\nx:" + large + "\n\n",
		"an id":                        "data: {}\nid:" + large + "\n\n",
		"a name":                       "data: {}\nevent:" + large + "\n\n",
		"space before the message":     "data: " + space + "{}\n\n",
		"space behind the message":     "data: {}" + space + "\n\n",
		"lines of space":               "data: {}\n" + strings.Repeat("data: "+space[:1000]+"\n", 1000) + "\n",
		"lines of space in a message":  "data: {\n" + strings.Repeat("data: "+space[:1000]+"\n", 1000) + "data: }\n\n",
		"a comment of an event before": ":" + large + "\n\ndata: {}\n\n",
	} {
		e := newEventReader(strings.NewReader(text), 2<<20, nil, new(pace.Shared), func(int) error { return nil })
		ev, err := e.next()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		line := oneLine(ev.data)
		if string(line) != "{}" {
			t.Errorf("%s: the message is %.20q", name, line)
		}
		if kept := cap(e.line) + cap(line) + len(ev.name) + len(ev.id); kept > 2*ordinary {
			t.Errorf("%s: %d bytes are kept", name, kept)
		}
	}
}

// FuzzEvents holds the reader against itself: however a text is cut into reads,
// the events are the same, and none is larger than it may be.
func FuzzEvents(f *testing.F) {
	for _, text := range []string{
		"", "data: {}\n\n", "event: message\nid: 7\nretry: 5\ndata: a\ndata: b\n\n", "\xef\xbb\xbfdata:a\r\r\n\r\n",
		": ping\n\n", "data\n\ndata:\n\n", "id: \x00\n\n", "data: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n\n", "\r\n\r\ndata: a\n\r\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		const max = 24
		whole, w, werr := read(strings.NewReader(text), max, never)
		bytewise, b, berr := read(iotest.OneByteReader(strings.NewReader(text)), max, never)
		if errors.Is(werr, errTooLarge) != errors.Is(berr, errTooLarge) || w.retry != b.retry || w.lastID != b.lastID {
			t.Errorf("%q: %v and %v", text, werr, berr)
		}
		if !slices.EqualFunc(whole, bytewise, func(a, b event) bool {
			return a.name == b.name && a.id == b.id && string(a.data) == string(b.data)
		}) {
			t.Errorf("%q: %q at once, %q byte by byte", text, whole, bytewise)
		}
		for _, ev := range whole {
			if len(ev.data) == 0 || len(ev.data) > max+fields || len(ev.id) > maxEventID {
				t.Errorf("%q: %q", text, ev)
			}
		}
	})
}
