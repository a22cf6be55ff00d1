package mcpbridge

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/costtest"
	"github.com/orla-project/orla/mcpbridge/results"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// metaOf is an object with n members whose keys begin with prefix.
func metaOf(n int, prefix string) json.RawMessage {
	var out strings.Builder
	out.WriteString(`{"traceparent":"x"`)
	for i := range n {
		fmt.Fprintf(&out, `,"%s%d":%d`, prefix, i, i)
	}
	return json.RawMessage(out.String() + "}")
}

// SPEC S1: a _meta with many keys costs no more for each of them, from a client and
// from a capsule.
func TestS1MetaCostsInProportion(t *testing.T) {
	for _, prefix := range []string{"k", wire.ProtocolPrefix} {
		for _, c := range []struct {
			name string
			work func(meta json.RawMessage)
		}{
			{"a request", func(meta json.RawMessage) {
				m, _ := wire.ReadMessage(json.RawMessage(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_meta":` + string(meta) + `}}`))
				_, _ = wire.ReadMeta(m.Params.Meta)
				_, _ = wire.ReadMeta(meta)
			}},
			{"a call for a peer", func(meta json.RawMessage) { wire.OwnMetaOf(meta) }},
			{"an answer", func(meta json.RawMessage) {
				p, _ := results.Look(json.RawMessage(`{"content":[],"isError":true,"_meta":`+string(meta)+`}`), true)
				p.Tell(2)
				p.Parts(json.RawMessage(`{"name":"orla"}`)).Join()
			}},
			{"the members of an answer", func(meta json.RawMessage) {
				p, _ := results.Look(meta, true)
				p.Parts(json.RawMessage(`{"name":"orla"}`)).Join()
			}},
		} {
			t.Run(c.name+", "+prefix, func(t *testing.T) {
				costtest.Check(t, 4000, func(n int) func() {
					meta := metaOf(n, prefix)
					return func() { c.work(meta) }
				})
			})
		}
	}
}

// SPEC S1: arguments are looked through once, however many of them stand in headers (400 of
// them took 14 s for 4 MB).
func TestS1ArgumentsInHeadersCostInProportion(t *testing.T) {
	costtest.Check(t, 300, func(n int) func() {
		var properties, args strings.Builder
		for i := range n {
			fmt.Fprintf(&properties, `"p%d":{"type":"string","x-mcp-header":"P%d"},`, i, i)
			fmt.Fprintf(&args, `"q%d":%q,`, i, strings.Repeat("x", 1000))
		}
		params, err := wire.HeaderParamsIn(json.RawMessage(`{"type":"object","properties":{` + properties.String() + `"z":{}}}`))
		if err != nil || len(params.Keys) != n {
			t.Fatal(params, err)
		}
		given := json.RawMessage("{" + args.String() + `"z":1}`)
		return func() {
			if refused := params.Check(nil, given); refused != nil {
				t.Error(refused)
			}
		}
	})
	costtest.Check(t, 500, func(n int) func() {
		schema := json.RawMessage(strings.Repeat(`{"properties":{"a":`, n) + `{"x-mcp-header":"A"}` + strings.Repeat("}}", n))
		return func() {
			if _, err := wire.HeaderParamsIn(schema); err == nil {
				t.Error("taken")
			}
		}
	})
}
