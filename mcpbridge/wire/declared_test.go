package wire_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/orla-project/orla/mcpbridge/wire"
)

// SPEC S2: what a session keeps of its client's capabilities is little, whatever the client
// sends.
func TestS2ASessionKeepsLittleOfItsClientsCapabilities(t *testing.T) {
	for _, c := range []struct{ sent, kept string }{
		{`{"elicitation":{"form":{}},"roots":{"listChanged":true},"experimental":{"x":1}}`, `{"elicitation":{"form":{}},"roots":{"listChanged":true}}`},
		{`{"elicitation":{"x":"` + strings.Repeat("x", 15<<10) + `"},"sampling":{},"roots":null}`, `{"sampling":{},"elicitation":{}}`},
		{`{"roots":{},` + strings.Repeat(`"roots":{},`, 1000) + `"roots":{}}`, `{"roots":{}}`},
	} {
		d, ok := wire.ReadInitialize(fmt.Appendf(nil, `{"protocolVersion":"2025-11-25","clientInfo":{"name":"t","version":"1"},"capabilities":%s}`, c.sent))
		if !ok || string(d.Capabilities) != c.kept {
			t.Errorf("of %.60s it keeps %.200s, %t; want %s", c.sent, d.Capabilities, ok, c.kept)
		}
	}
}
