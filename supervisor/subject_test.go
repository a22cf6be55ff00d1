package supervisor

import (
	"encoding/json"
	"errors"
	"log/slog"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/mcp/peer"
)

// SPEC D7: what a request is about is one member of its params. Params in which a peer could read another one than
// Orla are refused, so nobody gets a prompt that is held by the name of one that is not, and the audit log has the arguments that a
// peer gets (SPEC-TOOLS 8.8).
func TestD7ARequestIsAboutOneThing(t *testing.T) {
	about := subject{name: "box__good", uri: "box://one", refName: "box__good", refURI: "box://t"}
	const good = `{"name":"box__good","uri":"box://one","ref":{"type":"ref/prompt","name":"box__good","uri":"box://t"},"arguments":{"name":"a","Name":"b"},"argument":5,"_meta":null}`
	if got, err := subjectOf(json.RawMessage(good)); err != nil || got != about {
		t.Errorf("%s is about %+v, %v", good, got, err)
	}
	for _, params := range []string{``, `null`, `{}`, `{"name":null,"ref":null}`, `{"NAME":"box__good","Uri":"box://one","rEF":{"name":"a"}}`, `{"ref":{"Name":"a"}}`} {
		if got, err := subjectOf(json.RawMessage(params)); err != nil || got != (subject{}) {
			t.Errorf("%q is about %+v, %v; want nothing", params, got, err)
		}
	}
	for _, params := range []string{
		`{"name":"box__bad","Name":"box__good"}`, `{"NAME":"box__good","name":"box__bad"}`, `{"name":"box__bad","name":"box__good"}`,
		`{"name":"box__bad","n\u0041me":"box__good"}`, `{"n\u0061me":"box__bad","name":"box__good"}`, `{"Name":"a","NAME":"b"}`,
		`{"uri":"box://one","URI":"box://two"}`, `{"ref":{},"Ref":{}}`, `{"ref":{"name":"box__bad","Name":"box__good"}}`, `{"ref":{"uri":"a","uri":"b"}}`,
		`{"arguments":{},"Arguments":{}}`, `{"ARGUMENTS":{},"arguments":{}}`, `{"argument":{},"argument":{}}`, `{"argument":{},"argumen\u0054":{}}`,
		`[]`, `5`, `{"name":5}`, `{"uri":[]}`, `{"ref":"box__bad"}`, `{"ref":{"name":{}}}`,
	} {
		if got, err := subjectOf(json.RawMessage(params)); err == nil {
			t.Errorf("%s is about %+v; want an error", params, got)
		}
	}
	_, err := New(Options{Log: slog.New(slog.DiscardHandler)}).Request(t.Context(), peer.Request{Method: "prompts/get", Params: json.RawMessage(`{"name":"a","Name":"b"}`)})
	if refused, ok := errors.AsType[*jsonrpc.Error](err); !ok || refused.Code != jsonrpc.CodeInvalidParams || refused.Message != `prompts/get: params have "name" more than once, perhaps in upper and lower case` {
		t.Errorf("the client gets %v", err)
	}
}
