package capsuletest

import (
	"encoding/json"
	"fmt"
	"strings"
)

// without never answers requests of that method. HELLO=no leaves the hello out.
func without(method string) Script {
	return func(p *Peer) { start(newServer(p, handlers{method: nil})) }
}

// refusing knows no such method. HELLO=no leaves the hello out.
func refusing(method string) Script {
	return func(p *Peer) {
		start(newServer(p, handlers{method: func(s *server, m *Message) { s.Error(m.ID, -32601, "no such method") }}))
	}
}

// start serves, with or without a hello.
func start(s *server) {
	if Param("HELLO") == "no" {
		s.loop()
		s.end()
	}
	s.serve()
}

// initializeNonsense answers initialize with RESULT, which is any JSON; a number
// by default. HELLO=no leaves the hello out.
func initializeNonsense(p *Peer) {
	start(newServer(p, handlers{"initialize": func(s *server, m *Message) { s.Result(m.ID, result("42")) }}))
}

// listNonsense answers tools/list and resources/templates/list with RESULT, which is any JSON; a list of no
// tools by default.
func listNonsense(p *Peer) {
	nonsense := func(s *server, m *Message) { s.Result(m.ID, result(`{"tools":"none"}`)) }
	start(newServer(p, handlers{"tools/list": nonsense, "resources/templates/list": nonsense}))
}

func result(otherwise string) json.RawMessage {
	if text := Param("RESULT"); text != "" {
		return json.RawMessage(text)
	}
	return json.RawMessage(otherwise)
}

// listLate answers the second tools/list, and none before it.
func listLate(p *Peer) {
	asked := 0
	start(newServer(p, handlers{"tools/list": func(s *server, m *Message) {
		if asked++; asked > 1 {
			s.Result(m.ID, map[string]any{"tools": s.toolsNow()})
		}
	}}))
}

// listOf offers these tools.
func listOf(tools func() []any) Script {
	return func(p *Peer) {
		s := newServer(p, nil)
		s.tools = tools()
		start(s)
	}
}

// BadSchemas are schemas that must not reach a client, each under the name of a
// tool that list-bad-schemas offers. The tool "good" beside them has a good one.
var BadSchemas = map[string]string{
	"missing":   ``,
	"null":      `null`,
	"string":    `"object"`,
	"array":     `[]`,
	"no-type":   `{}`,
	"text":      `{"type":"string"}`,
	"types":     `{"type":["object","null"]}`,
	"misspelt":  `{"type":"objekt"}`,
	"bad-ref":   `{"type":"object","$ref":"#/nowhere"}`,
	"far-ref":   `{"type":"object","$ref":"file:///etc/passwd"}`,
	"bad-regex": `{"type":"object","properties":{"a":{"type":"string","pattern":"("}}}`,
	"bad-props": `{"type":"object","properties":[]}`,
	"bad-req":   `{"type":"object","required":"a"}`,
	"deep":      `{"type":"object","properties":{"a":` + strings.Repeat(`{"items":`, 300) + `{}` + strings.Repeat(`}`, 300) + `}}`,
}

func badSchemas() []any {
	tools := []any{toolNamed("good")}
	for name, schema := range BadSchemas {
		tool := map[string]any{"name": name, "description": "has a bad schema"}
		if schema != "" {
			tool["inputSchema"] = json.RawMessage(schema)
		}
		tools = append(tools, tool)
	}
	return tools
}

// duplicates has names twice, names that MCP does not allow, and no names.
func duplicates() []any {
	second := map[string]any{"name": "twice", "description": "the second of its name", "inputSchema": map[string]any{"type": "object"}}
	return []any{
		toolNamed("twice"), second, second, toolNamed("once"), toolNamed(""), toolNamed("with space"), toolNamed("with_space"),
		map[string]any{"description": "has no name"},
		"text", nil, 42,
	}
}

// many offers COUNT tools, 300 by default.
func many() []any {
	var tools []any
	for i := range number("COUNT", 300) {
		tools = append(tools, toolNamed(fmt.Sprintf("tool-%04d", i)))
	}
	return tools
}

// longNames offers tools whose names are over 64 characters and differ only
// behind them, and tools whose names are so only with a prefix.
func longNames() []any {
	long := strings.Repeat("n", 64)
	return []any{
		toolNamed(long + "-one"), toolNamed(long + "-two"), toolNamed(long),
		toolNamed(long[:60] + "-one"), toolNamed(long[:60] + "-two"), toolNamed("short"),
	}
}

// listPages offers COUNT tools, 300 by default, on pages of 100.
func listPages(p *Peer) {
	const page = 100
	s := newServer(p, handlers{"tools/list": func(s *server, m *Message) {
		tools := s.toolsNow()
		from := cursorOf(m)
		result := map[string]any{"tools": tools[min(from, len(tools)):min(from+page, len(tools))]}
		if from+page < len(tools) {
			result["nextCursor"] = fmt.Sprint(from + page)
		}
		s.Result(m.ID, result)
	}})
	s.tools = many()
	start(s)
}

// listEndless has one more page, always: with CURSOR=same behind the same
// cursor, else behind a new one with a new tool. The cursor has 100 KB with CURSOR=long,
// and each tool 50 000 values with CURSOR=values.
func listEndless(p *Peer) {
	start(newServer(p, handlers{"tools/list": func(s *server, m *Message) {
		from := cursorOf(m)
		next := from + 1
		if Param("CURSOR") == "same" {
			from, next = 0, 1
		}
		padding := ""
		if Param("CURSOR") == "long" {
			padding = strings.Repeat(" ", 100_000)
		}
		tool := toolNamed(fmt.Sprintf("tool-%d", from))
		if Param("CURSOR") == "values" {
			tool["_meta"] = map[string]any{"x": make([]struct{}, 50_000)}
		}
		s.Result(m.ID, map[string]any{
			"tools":      []any{tool},
			"nextCursor": fmt.Sprint(next) + padding,
		})
	}}))
}

// cursorOf returns where a page begins.
func cursorOf(m *Message) (from int) {
	var params struct {
		Cursor string `json:"cursor"`
	}
	if m.Params != nil && json.Unmarshal(m.Params, &params) == nil && params.Cursor != "" {
		if _, err := fmt.Sscan(params.Cursor, &from); err != nil {
			complain("cursor %q: %v", params.Cursor, err)
		}
	}
	return from
}
