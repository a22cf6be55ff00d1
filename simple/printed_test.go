package simple

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// allocated returns how many bytes do allocates, all in all.
func allocated(do func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc) //nolint:gosec // it is no larger
}

// numbered is so many members of an object.
func numbered(n int) string {
	var out strings.Builder
	for i := range n {
		fmt.Fprintf(&out, `"%06x":0,`, i)
	}
	return out.String() + `"":0`
}

// SPEC C3: a result is read as clients read it, whichever way its keys are written, and
// is passed on as it came.
func TestC3APrintedResultIsReadAsClientsReadIt(t *testing.T) {
	for printed, want := range map[string]string{
		`{"content":null,"isError":null,"structuredContent":{},"_meta":null}`:                                              `{"content":[],"structuredContent":{}}`,
		"{\"c\\u006fntent\":[{\"t\\u0079pe\":\"text\",\"text\":\"x\"}],\"isError\":false}\n":                               `{"content":[{"t\u0079pe":"text","text":"x"}]}`,
		`{"content":[],"_meta":{"s":"x","n":1.50,"t":true,"z":null,"l":[1.0, {}]}}`:                                        `{"_meta":{"l":[1.0,{}],"n":1.50,"s":"x","t":true,"z":null},"content":[]}`,
		`{"content":[{"type":"text","text":"x","title":null,"annotations":{"priority":1},"later":{"a":1.0}}],"later":[1]}`: `{"content":[{"type":"text","text":"x","title":null,"annotations":{"priority":1},"later":{"a":1.0}}]}`,
		`{"content":[{"type":"image","data":"aGk\u003d","mimeType":"image/png"}]}`:                                         `{"content":[{"type":"image","data":"aGk\u003d","mimeType":"image/png"}]}`,
	} {
		res, err := readResult(t.Context(), []byte(printed))
		if err != nil {
			t.Errorf("%s: %v", printed, err)
			continue
		}
		if got, err := json.Marshal(res); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v; want %s", printed, got, err, want)
		}
		if err := json.Unmarshal([]byte(printed), new(mcp.CallToolResult)); err != nil {
			t.Errorf("%s: a client refuses it: %v", printed, err)
		}
	}
	for printed, want := range map[string]string{
		`{"content":[{"type":"text","text":"x","title":5}]}`:                                        "content[0]: title: want a string",
		`{"content":[{"type":"text","text":"x","_meta":[]}]}`:                                       "content[0]: _meta: want an object",
		`{"content":[{"type":"text","text":"x","annotations":[]}]}`:                                 "content[0]: ",
		`{"content":[{"type":"text","text":"x","icons":{}}]}`:                                       "content[0]: ",
		`{"content":[{"type":"resource","resource":5}]}`:                                            "content[0]: resource: want an object",
		`{"content":[{"type":"resource"}]}`:                                                         "content[0]: resource: want an object",
		`{"content":[{"type":"resource","resource":{"uri":"x:y","blob":"!"}}]}`:                     "content[0]: resource.blob: want base64",
		`{"content":[{"type":"resource","resource":{"uri":"x:y","text":"","_meta":5}}]}`:            "content[0]: resource._meta: want an object",
		`{"content":[{"type":"image","data":"aGk","mimeType":"image/png"}]}`:                        "content[0]: data: want base64",
		`{"content":[],"_meta":{` + numbered(maxMeta) + `}}`:                                        "_meta: it has more than 10000 members",
		`{"content":` + strings.Repeat("[", maxLevels) + strings.Repeat("]", maxLevels) + `}`:       "it is nested more than 1000 deep",
		`{"structuredContent":{"a":` + strings.Repeat("[", 999) + strings.Repeat("]", 999) + `}} x`: "it is nested more than 1000 deep",
	} {
		if _, err := readResult(t.Context(), []byte(printed)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.100s: %v; want %s", printed, err, want)
		}
	}
}

// SPEC S1: reading ends with the call.
func TestS1ReadingAPrintedResultEndsWithTheCall(t *testing.T) {
	ctx, end := context.WithCancelCause(t.Context())
	over := errors.New("over")
	end(over)
	if _, err := readResult(ctx, []byte(`{"content":[{"type":"text","text":"x"}]}`)); !errors.Is(err, over) {
		t.Errorf("error = %v; want %v", err, over)
	}
}
