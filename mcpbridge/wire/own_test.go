package wire

import (
	"encoding/json"
	"testing"
)

// SPEC N2: a client cannot have a peer that gives back what it was given speak about
// the request of another, nor give a peer a state that Orla has not checked.
func TestN2ParamsForAPeerNameNoOtherRequest(t *testing.T) {
	for meta, want := range map[string]string{
		`{"orla/call":7,"a":1}`:                            `{"a":1}`,
		`{"Orla/Call":7,"orla/name":"q"}`:                  ``,
		`{"progressToken":7,"ProgressToken":7,"b":2}`:      `{"b":2}`,
		`{"IO.modelcontextprotocol/related-task":1,"c":3}`: `{"c":3}`,
		`{"orlando/x":1,"orla":2}`:                         `{"orlando/x":1,"orla":2}`,
	} {
		if got := string(OwnMetaOf(json.RawMessage(meta))); got != want {
			t.Errorf("of %s, the peer gets %s, want %s", meta, got, want)
		}
	}
	for params, want := range map[string]string{
		`{"name":"p","RequestState":"s","inputresponses":{}}`:      `{"name":"p"}`,
		`{"name":"p","_Meta":{"progressToken":7},"_meta":{"a":1}}`: `{"_meta":{"a":1},"name":"p"}`,
	} {
		p, _ := readParams(json.RawMessage(params), len(params))
		if got := OwnParams(p); string(got) != want {
			t.Errorf("of %s, the peer gets %s, want %s", params, got, want)
		}
	}
}
