package contract_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/service/contract"
)

// SPEC S2: an answer is in memory once: what is made of it are its own bytes.
func TestS2AnAnswerIsNotCopied(t *testing.T) {
	const size = 4 << 20
	pad := strings.Repeat("x", size)
	for name, test := range map[string]struct {
		body string
		read func(*contract.Exchange, []byte) (peer.Answer, error)
	}{
		"a text":      {pad, func(x *contract.Exchange, body []byte) (peer.Answer, error) { return x.Raw(body, "text/plain") }},
		"an object":   {`{"x":"` + pad + `"}`, func(x *contract.Exchange, body []byte) (peer.Answer, error) { return x.Raw(body, "application/json") }},
		"a string":    {`"` + pad + `"`, func(x *contract.Exchange, body []byte) (peer.Answer, error) { return x.Raw(body, "application/json") }},
		"an envelope": {`{"request_id":"` + id + `","status":"success","result":{"x":"` + pad + `"}}`, (*contract.Exchange).Answer},
	} {
		t.Run(name, func(t *testing.T) {
			x, body := exchange(t, ""), []byte(test.body)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			answer, err := test.read(x, body)
			runtime.ReadMemStats(&after)
			if err != nil {
				t.Fatal(err)
			}
			if took := after.TotalAlloc - before.TotalAlloc; took > size/4 {
				t.Errorf("to read %d bytes takes %d more", size, took)
			}
			if text := answer.Result.Content[0].(*mcp.TextContent).Text; len(text) < size {
				t.Errorf("the text has %d bytes", len(text))
			}
		})
	}
}
