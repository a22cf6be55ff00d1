package rawjson_test

import (
	"testing"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// SPEC S2: what the beginning of a message says is read whatever follows.
func TestS2TheHeadOfAMessage(t *testing.T) {
	for text, want := range map[string]struct {
		id, method string
		answers    bool
	}{
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"a":`: {"", `"notifications/progress"`, false},
		"\t{ \"method\" : \"x\" , \"id\" : 7 , \"params\" : 5":              {"7", `"x"`, false},
		`{"id":7,"result":{"a`:                   {"7", "", true},
		`{"jsonrpc":"2.0","result":null,"id":7}`: {"", "", true},
		`{"jsonrpc":"2.0","id":"a\"b","error":`:  {`"a\"b"`, "", true},
		`{"id":7,"x":{"id":8},"result":1}`:       {"7", "", false},
		`{"id":7}`:                               {"7", "", false},
		`{"id":70`:                               {"", "", false}, // it may be 700
		`{"id":"7`:                               {"", "", false},
		`{"id":07,"result":1`:                    {"", "", false},
		`{"i\u0064":7,"x":1}`:                    {"", "", false},
		`{"params":{},"id":7}`:                   {"", "", false},
		`{}`:                                     {"", "", false},
		`{"method"`:                              {"", "", false},
		`{`:                                      {"", "", false},
		``:                                       {"", "", false},
		`[{"id":7,"result":1}]`:                  {"", "", false},
		`log line`:                               {"", "", false},
	} {
		h := rawjson.ReadHead([]byte(text))
		if string(h.ID) != want.id || string(h.Method) != want.method || h.Answers != want.answers {
			t.Errorf("%s: id %q, method %q, answers %v; want %+v", text, h.ID, h.Method, h.Answers, want)
		}
	}
}

// SPEC L1: to read it takes no memory.
func TestL1AHeadTakesNoMemory(t *testing.T) {
	line := []byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}`)
	if n := testing.AllocsPerRun(100, func() { rawjson.ReadHead(line) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzReadHead(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":7,"result":{}}`))
	f.Add([]byte(`{"method":"x","params":[]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		h := rawjson.ReadHead(raw)
		if !rawjson.Valid(raw) || !rawjson.IsObject(raw) {
			return
		}
		m, plain := rawjson.ReadMessage(raw)
		if !plain {
			return
		}
		if h.Answers && m.Result == nil && m.Error == nil || h.ID != nil && m.ID == nil || h.Method != nil && m.Method == nil {
			t.Errorf("%s: %+v, and the message is %+v", raw, h, m)
		}
	})
}
