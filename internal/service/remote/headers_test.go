//go:build !race

package remote

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/testing/costtest"
	"github.com/orla-project/orla/internal/testing/needs"
)

// firstOf is an answer to tools/list with tools of some names, and more to come.
func firstOf(properties string, names ...string) []byte {
	return bytes.Replace(pageOf(properties, names...), []byte(`"tools"`), []byte(`"nextCursor":"2","tools"`), 1)
}

// pageOf is one without more to come.
func pageOf(properties string, names ...string) []byte {
	tools := make([]string, len(names))
	for i, name := range names {
		tools[i] = fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object","properties":{%s}}}`, name, properties)
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"result":{"tools":[%s]}}`, strings.Join(tools, ","))
}

// Arguments stand in headers as the schema says, the last of those of one name.
func TestHeadersOfArguments(t *testing.T) {
	s := &session{}
	s.learn(message{}, pageOf(`"a":{"x-mcp-header":"A"},"\u0062":{"x-mcp-header":"B"},"c":{"properties":{"d":{"x-mcp-header":"D"}}},"e":{"x-mcp-header":"no token"}`, "tool"))
	for args, want := range map[string]string{
		`{"a":"x","b":2,"c":{"d":true},"e":"y"}`: "A=x B=2 D=true",
		`{"a":null,"b":{},"c":[],"d":1}`:         "",
		`{"a":1,"a":2,"c":{"d":1},"c":{}}`:       "A=2",
		`{}`:                                     "",
		`[]`:                                     "",
		``:                                       "",
	} {
		h := http.Header{}
		s.headers(h, message{method: "tools/call", name: "tool", args: json.RawMessage(args)})
		var got []string
		for _, name := range []string{"A", "B", "D", "No token"} {
			if value := h.Get(headerParam + name); value != "" {
				got = append(got, name+"="+value)
			}
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("%s: got %q, want %q", args, got, want)
		}
	}
}

// SPEC S2: a server may list other tools each time that it is asked, for as long as it
// runs. The tools of later pages keep their headers until those are read again.
func TestS2HeadersOfToolsThatAreGoneAreForgotten(t *testing.T) {
	s := &session{}
	for i := range 100 {
		s.learn(message{params: json.RawMessage(`{"_meta":{}}`)}, firstOf(`"a":{"x-mcp-header":"A"}`, fmt.Sprint("first", i)))
		s.learn(message{params: json.RawMessage(`{"cursor":"2"}`)}, pageOf(`"a":{"x-mcp-header":"A"}`, fmt.Sprint("second", i)))
	}
	s.learn(message{}, firstOf(`"a":{},"b":{"x-mcp-header":"B"}`, "first99"))
	if n := len(s.params) + len(s.older); n > 3 {
		t.Errorf("%d tools are kept", n)
	}
	for name, want := range map[string]string{"first99": "", "second99": "x", "first98": ""} {
		h := http.Header{}
		s.headers(h, message{method: "tools/call", name: name, args: json.RawMessage(`{"a":"x"}`)})
		if got := h.Get(headerParam + "A"); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

// SPEC S2: what a server's lists say of headers is kept within a bound, however it is said
// and on however many pages.
func TestS2HeadersOfAListAreBounded(t *testing.T) {
	needs.Time(t, "reads lists of many megabytes")
	const pages, size = 12, 1 << 20
	page := func(key, each string) func(int) []byte {
		return func(n int) []byte {
			return fmt.Appendf(nil, `{"id":1,"result":{"x":"x-mcp-header",%q:[%s],"nextCursor":"2"}}`, key, numbered(each, n*size, size/len(each)))
		}
	}
	arguments := func(each, rest string) func(int) []byte {
		return func(n int) []byte {
			return bytes.Replace(firstOf(numbered(each, 0, size/len(each)), fmt.Sprint(n)), []byte(`"type"`), []byte(rest+`"type"`), 1)
		}
	}
	for name, of := range map[string]func(int) []byte{
		"tools without headers":              page("tools", `{"name":"%d"}`),
		"what the capsule takes for no list": page("Tools", `{"name":"%d"}`),
		"arguments":                          arguments(`"%d":{"x-mcp-header":"h"}`, ""),
		"arguments in arguments":             arguments(`"%d":{"properties":{"a":{"properties":{"a":{"x-mcp-header":"h"}}}}}`, ""),
		"arguments after a key with escapes": arguments(`"%d":{"x-mcp-header":"h"}`, `"\u0061":1,`),
		"arguments that only seem to have":   arguments(`"%d":{"description":"x-mcp-header"}`, ""),
		"long names":                         arguments(`"%d`+strings.Repeat("x", 10_000)+`":{"x-mcp-header":"h"}`, ""),
		"long headers":                       arguments(`"%d":{"x-mcp-header":"`+strings.Repeat("x", 10_000)+`"}`, ""),
	} {
		t.Run(name, func(t *testing.T) {
			s := &session{listener: listener{logged: func([]byte, int) {}}}
			before := liveHeap()
			for n := range pages {
				params := `{"cursor":"2"}`
				if n == 0 {
					params = `{}`
				}
				s.learn(message{params: json.RawMessage(params)}, of(n))
			}
			if kept := liveHeap() - before; kept > maxAnnotated*5/4 {
				t.Errorf("%d bytes are kept", kept)
			}
			s.learn(message{}, pageOf(`"a":{"x-mcp-header":"A"}`, "tool")) // the next list
			h := http.Header{}
			if s.headers(h, message{method: "tools/call", name: "tool", args: json.RawMessage(`{"a":"x"}`)}); h.Get(headerParam+"A") != "x" {
				t.Errorf("the next list has no headers: %v", h)
			}
		})
	}
}

// numbered are n texts with numbers in them, between commas.
func numbered(each string, from, n int) string {
	var all strings.Builder
	for i := range n {
		if i > 0 {
			all.WriteByte(',')
		}
		fmt.Fprintf(&all, each, from+i)
	}
	return all.String()
}

// liveHeap is how many bytes are in use.
func liveHeap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// SPEC S1: each argument is looked at once, however many stand in headers.
func TestS1ManyHeadersOfLargeArguments(t *testing.T) {
	costtest.Check(t, 1000, func(n int) func() {
		s := &session{}
		var properties []string
		for i := range n {
			properties = append(properties, fmt.Sprintf(`"p%d":{"x-mcp-header":"P%[1]d"}`, i))
		}
		s.learn(message{}, pageOf(strings.Join(properties, ","), "tool"))
		m := message{method: "tools/call", name: "tool", args: json.RawMessage(`{"p7":"x","z":[` + strings.Repeat("[1],", 10*n) + `0]}`)}
		return func() {
			h := http.Header{}
			if s.headers(h, m); h.Get(headerParam+"P7") != "x" {
				t.Errorf("got %q", h)
			}
		}
	})
}

// SPEC S2: lines without data, and further lines of data of one event, are read at a bounded rate, whatever their fields are called.
func TestS2LinesWithoutDataAreReadSlowly(t *testing.T) {
	const seconds = 3
	for _, line := range []string{"\n", ": x\n", "id: 1\n", "datax\n", "data x\n", "data:\n"} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			flood := strings.NewReader(strings.Repeat(line, (seconds+1)*pace.MaxLines+1))
			if _, err := newEventReader(flood, 1<<20, nil, new(pace.Shared), func(int) error { return nil }).next(); !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			if took := time.Since(began); took < seconds*time.Second {
				t.Errorf("lines of %q for %d s were read in %v", line, seconds, took)
			}
		})
	}
}

// Messages with the usual fields are not slowed down, and those with many lines are.
func TestOrdinaryMessagesAreNotSlowedDown(t *testing.T) {
	const seconds = 1
	for name, test := range map[string]struct {
		event string
		slow  bool
	}{
		"usual":               {"event: message\nid: 17\nretry: 1000\ndata: {}\n\n", false},
		"many lines":          {strings.Repeat(": x\n", 100) + "data: {}\n\n", true},
		"many lines of data":  {strings.Repeat("data: {\n", 100) + "\n", true},
		"long lines":          {": " + strings.Repeat("x", 4<<10) + "\ndata: {}\n\n", true},
		"a long line of data": {"data: " + strings.Repeat("x", 4<<10) + "\n\n", false},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			n := max((seconds+1)*pace.MaxLines/strings.Count(test.event, "\n"), (seconds+1)*pace.MaxBytes/len(test.event))
			e := newEventReader(strings.NewReader(strings.Repeat(test.event, n)), 1<<20, nil, new(pace.Shared), func(int) error { return nil })
			for range n {
				if _, err := e.next(); err != nil {
					t.Fatal(err)
				}
				e.passed()
			}
			if took := time.Since(began); took > 0 && !test.slow || took < seconds*time.Second && test.slow {
				t.Errorf("%s: %d were read in %v", name, n, took)
			}
		})
	}
}
