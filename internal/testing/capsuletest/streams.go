package capsuletest

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
)

// junkLines are what stray prints leave on stdout: text, JSON that is no
// JSON-RPC, and bytes that are not text.
var junkLines = []string{
	"Loading model...",
	"{'single': 'quotes'}",
	`{"level":"info","msg":"JSON, but not JSON-RPC"}`,
	`[1,2,3]`,
	`42`,
	`null`,
	`"text"`,
	`{}`,
	`{"jsonrpc":"2.0"`,
	"\xff\xfe\x00\x80 no text",
	`{"method":"GET","path":"/","status":200}`,
	`{"id":1,"method":"GET"}`,
	`{"jsonrpc":"1.0","method":"old"}`,
	strings.Repeat("[", 20_000),
}

// junk prints stray lines before its hello and around every answer.
func junk(p *Peer) {
	for _, line := range junkLines {
		p.Line(line)
	}
	newServer(p, handlers{"tools/call": func(s *server, m *Message) {
		for _, line := range junkLines {
			s.Line(line)
		}
		call(s, m)
		for _, line := range junkLines {
			s.Line(line)
		}
	}}).serve()
}

// junkEndless writes bytes without a line feed, for ever: before its hello, or
// with WHEN=call from the first call on.
func junkEndless(p *Peer) {
	endless := func() {
		block := bytes.Repeat([]byte("x"), 64<<10)
		for {
			p.Raw(block)
		}
	}
	if Param("WHEN") == "call" {
		newServer(p, handlers{"tools/call": func(*server, *Message) { endless() }}).serve()
		return
	}
	endless()
}

// decorated writes a byte order mark first, CRLF for line ends, blank lines
// between, and spaces around.
func decorated(p *Peer) {
	p.out = &decorator{out: p.out}
	newServer(p, nil).serve()
}

type decorator struct {
	out interface{ Write([]byte) (int, error) }
	on  bool // the byte order mark is written
}

func (d *decorator) Write(line []byte) (int, error) {
	var dressed []byte
	if !d.on {
		dressed, d.on = append(dressed, "\xef\xbb\xbf"...), true
	}
	dressed = append(dressed, "  "...)
	dressed = append(dressed, bytes.TrimSuffix(line, []byte("\n"))...)
	dressed = append(dressed, " \t\r\n\r\n\n  \r\n"...)
	if _, err := d.out.Write(dressed); err != nil {
		return 0, err
	}
	return len(line), nil
}

// batch answers N calls at once, in one JSON array, the last one first.
func batch(p *Peer) {
	var waiting []json.RawMessage // owned by the loop below
	s := newServer(p, handlers{"tools/call": nil})
	s.hello()
	for m := s.Read(); m != nil; m = s.Read() {
		if m.Method != "tools/call" {
			s.take(m)
			continue
		}
		waiting = append([]json.RawMessage{resultLine(m.ID, textResult("batched"))}, waiting...)
		if len(waiting) >= number("N", 2) {
			s.Send(waiting)
			waiting = nil
		}
	}
}

// longLine writes a line of SIZE bytes that is not JSON before every answer.
func longLine(p *Peer) {
	line := strings.Repeat("long ", number("SIZE", 20<<20)/5)
	newServer(p, handlers{"tools/call": func(s *server, m *Message) {
		s.Line(line)
		call(s, m)
	}}).serve()
}

// neverReads says hello and reads nothing.
func neverReads(p *Peer) {
	newServer(p, nil).hello()
	forever()
}

// floodsStdout never stops writing lines: WHAT=junk, or notifications. It
// answers between them. With WHEN=start it does so without a hello. WHAT=requests
// are requests of Orla, of which it reads no answer, nor anything else.
func floodsStdout(p *Peer) {
	line := `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"` + strings.Repeat("tide ", 100) + `"}}`
	switch Param("WHAT") {
	case "junk":
		line = strings.Repeat("tide ", 100)
	case "requests":
		newServer(p, nil).hello()
		for i := 0; ; i++ {
			p.Request(i, "ping", struct{}{})
		}
	}
	if Param("WHEN") != "start" {
		s := newServer(p, nil)
		s.hello()
		go func() {
			s.loop()
			s.end()
		}()
	}
	for {
		p.Line(line)
	}
}

// floodsStderr never stops writing on stderr, and serves; with LINES=no it never
// writes a line feed.
func floodsStderr(p *Peer) {
	line := []byte(strings.Repeat("tide ", 1000) + "\n")
	if Param("LINES") == "no" {
		line = line[:len(line)-1]
	}
	go func() {
		for {
			if _, err := os.Stderr.Write(line); err != nil {
				return
			}
		}
	}()
	newServer(p, nil).serve()
}

// answersTwice says everything twice that it says to a call.
func answersTwice(p *Peer) {
	newServer(p, handlers{"tools/call": func(s *server, m *Message) {
		call(s, m)
		s.Result(m.ID, textResult("the second answer"))
		s.Error(m.ID, -32603, "the third answer")
	}}).serve()
}

// unknownIDs answers what nobody asked, and tells of progress that nobody wants,
// before every answer.
func unknownIDs(p *Peer) {
	newServer(p, handlers{"tools/call": func(s *server, m *Message) {
		for _, id := range []string{"999999", `"abc"`, "null", "-1", "1.5", "0", `{}`, "1e99", `"` + string(m.ID) + `"`} {
			s.Line(`{"jsonrpc":"2.0","id":` + id + `,"result":{"content":[{"type":"text","text":"not yours"}]}}`)
			s.Line(`{"jsonrpc":"2.0","id":` + id + `,"error":{"code":1,"message":"not yours"}}`)
			s.Notify("notifications/progress", map[string]any{"progressToken": json.RawMessage(id), "progress": 1})
			s.Notify("notifications/cancelled", map[string]any{"requestId": json.RawMessage(id)})
		}
		call(s, m)
	}}).serve()
}

// nonsenseCalls answers every call with the lines of ANSWER, a JSON-RPC message
// in which $ID is the call's id.
func nonsenseCalls(p *Peer) {
	newServer(p, handlers{"tools/call": func(s *server, m *Message) {
		s.Line(strings.ReplaceAll(Param("ANSWER"), "$ID", string(m.ID)))
	}}).serve()
}
