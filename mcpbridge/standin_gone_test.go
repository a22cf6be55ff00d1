package mcpbridge

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
)

// A string stands for a result as long as the request lives, and once.
func TestAStandInEndsWithItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStandIns()
		large := []byte(`{"text":"` + strings.Repeat("x", 1<<20) + `"}`)
		message := func(request context.Context) json.RawMessage {
			raw, err := json.Marshal(s.forLarge(request, &rawResult{json: parts{large}}))
			if err != nil {
				t.Fatal(err)
			}
			return json.RawMessage(`{"jsonrpc":"2.0","id":"a","result":` + string(raw) + `}`)
		}
		first := message(t.Context())
		if len(first) > 200 {
			t.Errorf("the SDK gets %d bytes", len(first))
		}
		for i, want := range []string{`{"jsonrpc":"2.0","id":"a","result":` + string(large) + `}`, `{"jsonrpc":"2.0","id":"a","error":{`} {
			if got, other := s.replaced(first); !other || !bytes.HasPrefix(got.join(), []byte(want)) {
				t.Errorf("written %d times before: %.200s", i, got.join())
			}
		}
		request, cancel := context.WithCancel(t.Context())
		late := message(request)
		cancel()
		synctest.Wait()
		if got, _ := s.replaced(late); !strings.Contains(string(got.join()), `"error":{`) || len(s.of) > 0 {
			t.Errorf("after its request: %.200s, and %d are left", got.join(), len(s.of))
		}
		if got, other := s.replaced(json.RawMessage(`{"jsonrpc":"2.0","id":1,"result":"orla/"}`)); other {
			t.Errorf("a message without one became %s", got.join())
		}
	})
}
