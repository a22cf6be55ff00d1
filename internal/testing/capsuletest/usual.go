package capsuletest

import (
	"encoding/json"
	"time"
)

// usual are the answers of a well-behaved capsule.
var usual = handlers{
	"initialize":               initialize,
	"ping":                     ping,
	"tools/list":               func(s *server, m *Message) { s.Result(m.ID, map[string]any{"tools": s.toolsNow()}) },
	"tools/call":               call,
	"resources/list":           fixed("resources", map[string]any{"uri": "test://code", "name": "code", "mimeType": "text/plain"}),
	"resources/templates/list": fixed("resourceTemplates", map[string]any{"uriTemplate": "test://item/{id}", "name": "item"}),
	"resources/read":           readResource,
	"resources/subscribe":      empty,
	"resources/unsubscribe":    empty,
	"prompts/list":             fixed("prompts", map[string]any{"name": "greet", "arguments": []any{map[string]any{"name": "who"}}}),
	"prompts/get":              getPrompt,
	"completion/complete":      complete,
	"logging/setLevel":         empty,
}

// initialize answers with what the script's hello lists, or all there is
// without a hello.
func initialize(s *server, m *Message) {
	var params struct {
		ProtocolVersion string `json:"protocolVersion"`
	}
	if err := json.Unmarshal(m.Params, &params); err != nil {
		s.Error(m.ID, -32602, err.Error())
		return
	}
	if version := Param("PROTOCOL"); version != "" {
		params.ProtocolVersion = version
	}
	capabilities := map[string]any{}
	for _, name := range list("CAPS", "tools,resources,prompts,completions,logging") {
		switch name {
		case "tools", "prompts":
			capabilities[name] = map[string]any{"listChanged": true}
		case "resources":
			capabilities[name] = map[string]any{"listChanged": true, "subscribe": true}
		default:
			capabilities[name] = map[string]any{}
		}
	}
	s.Result(m.ID, map[string]any{
		"protocolVersion": params.ProtocolVersion,
		"capabilities":    capabilities,
		"serverInfo":      map[string]any{"name": s.Name, "version": s.Version},
	})
}

// ping answers as many pings as the parameter says.
func ping(s *server, m *Message) {
	s.mu.Lock()
	s.pings++
	n := s.pings
	s.mu.Unlock()
	if n <= number("PINGS", n) {
		empty(s, m)
	}
}

func empty(s *server, m *Message) { s.Result(m.ID, struct{}{}) }

// fixed answers with a list of one element.
func fixed(name string, element any) handler {
	return func(s *server, m *Message) { s.Result(m.ID, map[string]any{name: []any{element}}) }
}

func (s *server) toolsNow() []any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]any{}, s.tools...)
}

// toolNamed is a good tool as tools/list has it.
func toolNamed(name string) map[string]any {
	return map[string]any{"name": name, "description": "does what its arguments say", "inputSchema": map[string]any{"type": "object"}}
}

func readResource(s *server, m *Message) {
	var params struct {
		URI string `json:"uri"`
	}
	if err := json.Unmarshal(m.Params, &params); err != nil {
		s.Error(m.ID, -32602, err.Error())
		return
	}
	s.Result(m.ID, map[string]any{"contents": []any{map[string]any{"uri": params.URI, "mimeType": "text/plain", "text": s.code}}})
}

func getPrompt(s *server, m *Message) {
	s.Result(m.ID, map[string]any{"messages": []any{
		map[string]any{"role": "user", "content": map[string]any{"type": "text", "text": "hello from code " + s.code}},
	}})
}

func complete(s *server, m *Message) {
	s.Result(m.ID, map[string]any{"completion": map[string]any{"values": []string{"one", "two"}}})
}

// after returns a channel that receives when the time is over.
func after(ms int) <-chan time.Time { return time.After(time.Duration(ms) * time.Millisecond) }
