package mcpbridge_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// SPEC S2: what the SDK decodes of a message takes many times its bytes in memory (4
// requests of 16 MiB to initialize took 5.5 GiB), so that it is bounded, however it is
// written. What is passed on as it came is not.
func TestS2WhatIsDecodedIsBounded(t *testing.T) {
	const large = 300 << 10 // bytes
	var (
		objects = "[" + strings.Repeat("{},", large/3) + "{}]"
		half    = `"experimental":{"x":[` + strings.Repeat("{},", large/6) + "{}]}"
		text    = strings.Repeat("x", large)
		members = strings.Repeat(`"a":"",`, large/7) + `"a":""`
		meta    = `"_meta":{` + strings.Repeat(`"a":1,`, 20_000) + `"a":1}`
		message = func(method, params string) string {
			return fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":{%s}}`, method, params)
		}
		escaped = func(body string) string { return `{"\u0061":1,` + body[1:] }
		hello   = func(info, capabilities string) string {
			return message("initialize", `"protocolVersion":"2025-11-25","clientInfo":{"name":"t","version":"1"`+info+`},"capabilities":{`+capabilities+`}`)
		}
		echo = `"name":"echo","arguments":{}`
	)
	f := newWorld(t).front(t, httpfront.Settings{})
	session := f.initialize(t)
	stream := f.openSSE(t)
	stream.post(t, initialize("2024-11-05"))
	stream.next(t)
	for name, c := range map[string]struct {
		body string
		says string // of the refusal; "" if it is none
	}{
		"an initialize that is kept":      {hello(`,"title":"`+text[:20<<10]+`"`, ""), "16 KiB"},
		"many small values of it":         {hello(`,"x":`+objects[:6001]+"{}]", ""), "512 values"},
		"its method escaped":              {strings.Replace(hello(`,"icons":`+objects[:6001]+"{}]", ""), "initialize", `initi\u0061lize`, 1), ""},
		"small values of _meta":           {message("tools/call", echo+`,"_meta":{"x":`+objects[:6001]+"{}]}"), "512 values"},
		"icons of a client":               {hello(`,"icons":`+objects, ""), ""},
		"an escaped method":               {strings.Replace(message("tools/call", `"name":"echo","arguments":{"x":"`+text+`"}`), "tools/call", `tools\/call`, 1), ""},
		"answers by an escaped method":    {strings.Replace(message("tools/call", echo+`,"inputResponses":{"x":`+objects+"}"), "tools/call", `tools\/call`, 1), ""},
		"capabilities of a client":        {hello("", `"experimental":{"x":`+objects+"}"), "16 KiB"},
		"unknown members":                 {message("tools/list", `"x":`+objects), "256 KiB"},
		"beside the params":               {`{"x":` + objects + "," + message("tools/call", echo)[1:], "256 KiB"},
		"arguments of a prompt":           {message("prompts/get", `"name":"p","arguments":{`+members+"}"), "256 KiB"},
		"arguments that are not the last": {message("tools/call", `"arguments":`+objects+","+echo), "256 KiB"},
		"_meta":                           {message("tools/call", echo+","+meta), "_meta"},
		"_meta, a key escaped":            {escaped(message("tools/call", echo+","+meta)), "without escapes"},
		"_meta, its key escaped":          {message("tools/call", echo+","+strings.Replace(meta, "_meta", `_m\u0065ta`, 1)), "without escapes"},
		"_meta, the params' key escaped":  {strings.Replace(message("tools/call", echo+","+meta), "params", `p\u0061rams`, 1), "without escapes"},
		"an id":                           {strings.Replace(message("tools/call", echo), "7", `"`+text[:2<<10]+`"`, 1), "an id may have 1 KiB"},
		"a progress token":                {message("tools/call", echo+`,"_meta":{"progressToken":"`+text[:2<<10]+`"}`), "a progressToken may have 1 KiB"},
		"a batch":                         {"[" + message("tools/list", half) + "," + message("tools/list", half) + "]", "256 KiB"},
		"arguments of a tool":             {message("tools/call", `"name":"echo","arguments":{"x":`+objects+`,"\u0061":1}`), ""},
		"an argument of a prompt":         {message("prompts/get", `"name":"p","arguments":{"a":"`+text+`"}`), ""},
	} {
		stream.post(t, c.body)
		for transport, r := range map[string]reply{"HTTP": f.post(t, c.body, "Mcp-Session-Id", session), "SSE": stream.next(t)} {
			if refused := r.failed && r.code == -32602 && strings.Contains(r.text, cmp.Or(c.says, "KiB")); refused != (c.says != "") {
				t.Errorf("%s, over %s: %d %.200s; want %q", name, transport, r.status, r.raw, c.says)
			}
		}
	}
}

// SPEC S2: a refusal does not repeat what of its message is large: written down it would be
// many times as large, and nobody counts it.
func TestS2ARefusalIsSmall(t *testing.T) {
	text := strings.Repeat("<", 200<<10)
	f := newWorld(t).front(t, httpfront.Settings{})
	session := f.initialize(t)
	for name, body := range map[string]string{
		"an id":                  `{"jsonrpc":"2.0","id":"` + text + `","method":"ping"}`,
		"an id of no message":    `{"jsonrpc":"1.0","id":"` + text + `"}`,
		"an escaped id":          `{"jsonrpc":"2.0","\u0069d":"` + text + `","method":"ping"}`,
		"a method":               `{"jsonrpc":"2.0","id":1,"method":"` + text + `"}`,
		"a tool":                 `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + text + `"}}`,
		"a prompt":               `{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"` + text + `"}}`,
		"a resource":             `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"` + text + `"}}`,
		"a resource to follow":   `{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"` + text + `"}}`,
		"one of Orla's own":      `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"orla://answers/` + text + `"}}`,
		"a cursor":               `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"` + text + `"}}`,
		"a level":                `{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"` + text + `"}}`,
		"a version":              `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"9` + text[:60<<10] + `","io.modelcontextprotocol/clientCapabilities":{}}}}`,
		"a member of a batch":    `[{"jsonrpc":"1.0","id":"` + text + `"}]`,
		"a message in a session": `{"jsonrpc":"2.0","id":"` + text + `","method":"tools/list","params":{}}`,
	} {
		if r := f.post(t, body, "Mcp-Session-Id", session); len(r.raw) > 48<<10 {
			t.Errorf("%s: %d, %d bytes: %.200s", name, r.status, len(r.raw), r.raw)
		}
	}
}
