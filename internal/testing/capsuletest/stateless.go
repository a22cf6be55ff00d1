package capsuletest

import (
	"encoding/json"
	"fmt"
	"slices"
)

const statelessVersion = "2026-07-28"

// stateless is an MCP server that speaks 2026-07-28 and nothing else: it needs no
// handshake, refuses whatever does not say the version, and answers a call that has an
// Ask with what it requires. HELLO=yes has it say hello first.
func stateless(p *Peer) {
	s := newServer(p, handlers{
		"initialize":           func(s *server, m *Message) { unsupported(s, m, "2025-11-25") },
		"server/discover":      discover,
		"subscriptions/listen": listen,
		"tools/call":           callStateless,
	})
	for _, method := range []string{"ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"} {
		delete(s.answers, method)
	}
	for method, answer := range s.answers {
		if method != "initialize" {
			s.answers[method] = versioned(answer)
		}
	}
	if Param("HELLO") == "yes" {
		s.hello()
	}
	s.loop()
	s.end()
}

func unsupported(s *server, m *Message, requested string) {
	s.Send(map[string]any{"jsonrpc": "2.0", "id": m.ID, "error": map[string]any{
		"code": -32022, "message": "unsupported protocol version", "data": map[string]any{"supported": []string{statelessVersion}, "requested": requested},
	}})
}

// versioned answers requests that say the version and what their client has declared.
func versioned(answer handler) handler {
	return func(s *server, m *Message) {
		var params struct {
			Meta struct {
				Version      string          `json:"io.modelcontextprotocol/protocolVersion"`
				Capabilities json.RawMessage `json:"io.modelcontextprotocol/clientCapabilities"`
			} `json:"_meta"`
		}
		switch err := json.Unmarshal(m.Params, &params); {
		case err != nil, params.Meta.Version == "", params.Meta.Capabilities == nil:
			s.Error(m.ID, -32602, "_meta does not say the version and the capabilities")
		case params.Meta.Version != statelessVersion:
			unsupported(s, m, params.Meta.Version)
		default:
			answer(s, m)
		}
	}
}

func discover(s *server, m *Message) {
	s.Result(m.ID, map[string]any{
		"resultType": "complete", "supportedVersions": []string{statelessVersion}, "ttlMs": 0, "cacheScope": "private",
		"capabilities": map[string]any{
			"tools": map[string]any{"listChanged": true}, "resources": map[string]any{"subscribe": true}, "logging": struct{}{},
		},
	})
}

// noDiscover leaves server/discover without an answer, and counts how often it was asked.
func noDiscover(p *Peer) {
	start(newServer(p, handlers{"server/discover": func(s *server, _ *Message) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.probes++
	}}))
}

// listen says when its tools have changed, and that a resource that is followed has
// been updated, at once.
func listen(s *server, m *Message) {
	var params struct {
		Notifications struct {
			Resources []string `json:"resourceSubscriptions"`
		} `json:"notifications"`
	}
	if err := json.Unmarshal(m.Params, &params); err != nil {
		s.Error(m.ID, -32602, err.Error())
		return
	}
	about := map[string]any{"io.modelcontextprotocol/subscriptionId": m.ID}
	s.Notify("notifications/subscriptions/acknowledged", map[string]any{"notifications": params.Notifications, "_meta": about})
	for _, uri := range params.Notifications.Resources {
		s.Notify("notifications/resources/updated", map[string]any{"uri": uri, "_meta": about})
	}
	<-m.ctx.Done()
}

// callStateless answers a call with an Ask only when it comes with the answer.
func callStateless(s *server, m *Message) {
	var params struct {
		Arguments json.RawMessage            `json:"arguments"`
		Responses map[string]json.RawMessage `json:"inputResponses"`
		State     string                     `json:"requestState"`
	}
	var args Args
	err := json.Unmarshal(m.Params, &params)
	if err == nil && params.Arguments != nil {
		err = json.Unmarshal(params.Arguments, &args)
	}
	if err != nil {
		s.Error(m.ID, -32602, err.Error())
		return
	}
	if args.Ask == nil {
		call(s, m)
		return
	}
	if params.Responses == nil {
		state := fmt.Sprintf("state of %s", m.ID)
		s.mu.Lock()
		s.states = append(s.states, state)
		s.mu.Unlock()
		s.Result(m.ID, map[string]any{
			"resultType": "input_required", "requestState": state, "inputRequests": map[string]any{"the question": args.Ask},
		})
		return
	}
	s.mu.Lock()
	known := slices.Contains(s.states, params.State)
	s.mu.Unlock()
	if !known {
		s.Error(m.ID, -32602, "the requestState is not one of mine")
		return
	}
	s.Result(m.ID, textResult(string(encode(Answer{Client: encode(params.Responses)}))))
}
