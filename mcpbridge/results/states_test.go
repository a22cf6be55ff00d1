package results

import (
	"encoding/json"
	"testing"
)

// SPEC Q1, N2: the next program accepts the states that this one has signed, if it has the key, and no others.
func TestQ1StatesOfTheProgramBefore(t *testing.T) {
	before := NewStates(nil)
	of := Asking{Client: "ann", Method: "tools/call", Name: "a", Args: json.RawMessage(`{}`)}
	signed := before.sign(of, "mine")
	if state, ok := NewStates(before.Key()).Check(of, signed); !ok || state != "mine" {
		t.Errorf("with the key: %q, %t", state, ok)
	}
	for _, key := range [][]byte{nil, {}, before.Key()[1:]} {
		if _, ok := NewStates(key).Check(of, signed); ok {
			t.Errorf("a state is accepted with a key of %d bytes", len(key))
		}
	}
}
