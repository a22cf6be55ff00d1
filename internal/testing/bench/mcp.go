package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
)

// era is a generation of the protocol over HTTP.
type era struct {
	name    string
	version string
	session bool // calls belong to a session that an initialize begins
	asked   bool // the client says that it can be asked, as most IDEs do
}

var (
	withSession = era{name: "HTTP, session", version: "2025-11-25", session: true}
	canBeAsked  = era{name: "HTTP, client can be asked", version: "2025-11-25", session: true, asked: true}
	stateless   = era{name: "HTTP, stateless", version: "2026-07-28"}
)

// argument is what every measured call sends, as JSON and as flags.
const argument = `{"text":"hello"}`

func argumentFlags() []string { return []string{"--text", "hello"} }

// mcpClient is one client over HTTP.
type mcpClient struct {
	*httpClient
	host    string
	era     era
	session string
	token   string // bearer; "" for none
}

// connect opens a connection and introduces itself, as clients do.
func connect(ctx context.Context, host string, e era) (*mcpClient, error) {
	return connectAs(ctx, host, e, "")
}

// connectAs does the same with a token.
func connectAs(ctx context.Context, host string, e era, token string) (*mcpClient, error) {
	conn, err := dial(ctx, host)
	if err != nil {
		return nil, err
	}
	c := &mcpClient{httpClient: conn, host: host, era: e, token: token}
	method, params := "server/discover", ""
	if e.session {
		method, params = "initialize", e.initialize()
	}
	// A connection on which nothing was asked yet would soon be closed.
	a, err := c.roundTrip(c.request(method, params))
	if err == nil && a.status != http.StatusOK {
		err = fmt.Errorf("%s: status %d: %s", method, a.status, a.body)
	}
	if err != nil {
		c.close()
		return nil, err
	}
	if !e.session {
		return c, nil
	}
	c.session = a.session
	if _, err := c.roundTrip(post(host, c.headers(""), initialized)); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

const initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`

// initialize are the params of the request that begins a session.
func (e era) initialize() string {
	capabilities := "{}"
	if e.asked {
		capabilities = `{"elicitation":{},"sampling":{},"roots":{"listChanged":true}}`
	}
	return `"protocolVersion":"` + e.version + `","capabilities":` + capabilities + `,"clientInfo":{"name":"bench","version":"1"}`
}

// message is a request as JSON. params are the members of its object.
func message(id int, method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{%s}}`, id, method, params)
}

// callParams are those of a tools/call.
func callParams(tool string) string { return fmt.Sprintf(`"name":%q,"arguments":%s`, tool, argument) }

// request makes the bytes of a request that names no tool.
func (c *mcpClient) request(method, params string) []byte {
	return c.named(method, "", params)
}

// call makes the bytes of a tools/call.
func (c *mcpClient) call(tool string) []byte {
	return c.named("tools/call", tool, callParams(tool))
}

func (c *mcpClient) named(method, name, params string) []byte {
	return post(c.host, c.headersFor(method, name), c.era.message(method, params))
}

// message is the one request of its connection, as JSON.
func (e era) message(method, params string) string {
	if !e.session {
		if params != "" {
			params += ","
		}
		params += `"_meta":{"io.modelcontextprotocol/protocolVersion":"` + e.version + `",` +
			`"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
	}
	return message(1, method, params)
}

func (c *mcpClient) headersFor(method, name string) []string {
	headers := c.headers(method)
	if !c.era.session && name != "" {
		headers = append(headers, "Mcp-Name: "+name)
	}
	return headers
}

func (c *mcpClient) headers(method string) (headers []string) {
	if c.token != "" {
		headers = append(headers, "Authorization: Bearer "+c.token)
	}
	switch {
	case !c.era.session:
		headers = append(headers, "Mcp-Protocol-Version: "+c.era.version, "Mcp-Method: "+method)
	case c.session != "":
		headers = append(headers, "Mcp-Protocol-Version: "+c.era.version, "Mcp-Session-Id: "+c.session)
	}
	return headers
}

// ask sends a request and checks that the answer is a good result of a call.
func (c *mcpClient) ask(request []byte) error {
	a, err := c.roundTrip(request)
	if err != nil {
		return err
	}
	return checkCall(a.body)
}

// checkCall sees to it that no error is measured in place of a call.
func checkCall(message []byte) error {
	if !bytes.Contains(message, []byte(`"exit_code":0`)) || !bytes.Contains(message, []byte("hello")) {
		return fmt.Errorf("not the answer of a call that went well: %.500s", message)
	}
	return nil
}

// list reads the whole list of tools, page after page, and returns how many
// pages it had.
func (c *mcpClient) list() (pages int, err error) {
	params := ""
	for {
		a, err := c.roundTrip(c.request("tools/list", params))
		if err != nil {
			return pages, err
		}
		if !bytes.Contains(a.body, []byte(`"tools":[{`)) {
			return pages, fmt.Errorf("not a list of tools: %.500s", a.body)
		}
		pages++
		// The cursor stands at either end, far from what tools say.
		_, cursor, more := bytes.Cut(a.body, []byte(`"nextCursor":"`))
		if !more {
			return pages, nil
		}
		cursor, _, _ = bytes.Cut(cursor, []byte(`"`))
		params = fmt.Sprintf(`"cursor":%q`, cursor)
	}
}
