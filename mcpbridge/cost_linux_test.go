package mcpbridge

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/costtest"
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
	for _, prefix := range []string{"k", protocolPrefix} {
		for _, c := range []struct {
			name string
			work func(meta json.RawMessage)
		}{
			{"a plain call", func(meta json.RawMessage) { parted(meta) }},
			{"a call for a peer", func(meta json.RawMessage) { ownMetaOf(meta) }},
			{"an answer", func(meta json.RawMessage) {
				p, _ := look(json.RawMessage(`{"content":[],"isError":true,"_meta":`+string(meta)+`}`), true)
				p.tell(2)
				p.parts(json.RawMessage(`{"name":"orla"}`)).join()
			}},
			{"the members of an answer", func(meta json.RawMessage) {
				p, _ := look(meta, true)
				p.parts(json.RawMessage(`{"name":"orla"}`)).join()
			}},
			{"a message for the SDK", func(meta json.RawMessage) {
				newCarrier().load(json.RawMessage(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_meta":` + string(meta) + `}}`))
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
