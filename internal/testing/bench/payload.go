package main

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// capsuleTool is the tool that all who are asked for payloads have.
const capsuleTool = "echo"

// littleText is the size of the text that stands in the other direction.
const littleText = 64

// payload is a text that travels with each call, one way or the other.
type payload struct {
	size   int
	asArgs bool // the client sends it; else the tool does
}

func (p payload) String() string {
	if p.asArgs {
		return "arguments of " + kibibytes(p.size)
	}
	return kibibytes(p.size)
}

// params are those of a call.
func (p payload) params() string {
	text := ""
	if p.asArgs {
		text = `,"text":"` + strings.Repeat("x", p.size) + `"`
	}
	return fmt.Sprintf(`"name":%q,"arguments":{"size":%d%s}`, capsuleTool, p.answered(), text)
}

// answered is the size of the text in the answer.
func (p payload) answered() int {
	if p.asArgs {
		return littleText
	}
	return p.size
}

// check sees to it that nothing else is measured in place of a call that went
// well.
func (p payload) check(message []byte) error {
	const most = 600 // bytes of an answer beside its text
	size := p.answered()
	if len(message) < size || len(message) > size+most || bytes.Contains(message[:min(len(message), most)], []byte(`"isError":true`)) ||
		!bytes.Contains(message[:min(len(message), most)], []byte(`"text":"x`)) {
		return fmt.Errorf("not an answer with a text of %d bytes: %.500s", size, message)
	}
	return nil
}

// calls are a payload's requests to one server over HTTP. What is the same for
// all clients is there once: a payload of each would not fit into any cache.
type calls struct {
	payload
	heads [][]byte // by client
	body  []byte
}

// newCalls gives each client an id of its own, since some share a session.
func newCalls(p payload, clients []*mcpClient) *calls {
	before, body, _ := strings.Cut(clients[0].era.message("tools/call", p.params()), `"id":1`)
	c := &calls{payload: p, body: []byte(body)}
	for i, client := range clients {
		begin := fmt.Sprintf(`%s"id":%d`, before, i+1)
		head := postHead(client.host, mcpPath, client.headersFor("tools/call", capsuleTool), len(begin)+len(body))
		c.heads = append(c.heads, append(head, begin...))
	}
	return c
}

// ask makes one call.
func (c *calls) ask(client *httpClient, lane int) error {
	a, err := client.roundTrip(c.heads[lane], c.body)
	if err != nil {
		return err
	}
	if a.status != http.StatusOK {
		said := a.body
		if bytes.HasPrefix(said, []byte("<")) {
			said = nil // a page to look at, which says no more than the status
		}
		return fmt.Errorf("status %d, %s %.500s", a.status, http.StatusText(a.status), said)
	}
	return c.check(a.body)
}

// line returns what writes one of a payload's requests on one line.
func (p payload) line() func(buf []byte, id int) []byte {
	const head = `{"jsonrpc":"2.0","id":`
	rest := []byte(`,"method":"tools/call","params":{` + p.params() + `}}`)
	return func(buf []byte, id int) []byte {
		return append(strconv.AppendInt(append(buf, head...), int64(id), 10), rest...)
	}
}
