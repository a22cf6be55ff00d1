package protocol

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/rpc"
	"github.com/orla-project/orla/manifest"
)

// lister is a Transport whose other side answers each request with a page that has one
// small tool and much else, and a Handler of nothing.
type lister struct {
	conn  *rpc.Conn
	pages int
}

func (l *lister) Send(_ context.Context, call *rpc.Pending, _ [][]byte) error {
	err := l.conn.Sending(call)
	l.pages++
	l.conn.Receive(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"result":{"tools":[{"name":"t%d"}],"junk":"%s","nextCursor":"%d"}}`,
		call.ID, l.pages, strings.Repeat("x", 1<<20), l.pages))
	return err
}
func (*lister) Post(turns.Owner, []byte)                       {}
func (*lister) Close()                                         {}
func (*lister) Notified(string, json.RawMessage)               {}
func (*lister) Asked(json.RawMessage, string, json.RawMessage) {}
func (*lister) Unclaimed(json.RawMessage)                      {}
func (*lister) Noise([]byte, string)                           {}

// SPEC S2: the items of a list stay in memory, and nothing else of its pages does.
func TestS2TheItemsOfAListAreKeptAlone(t *testing.T) {
	l := &lister{}
	l.conn = rpc.New(l, rpc.Options{Handler: l})
	p := New(manifest.Tool{Name: "walker"}, "1", slog.New(slog.DiscardHandler)).With(l.conn)
	before := live()
	items, err := p.List(t.Context(), "tools/list", "tools", time.Minute)
	if err != nil || len(items) != maxPages {
		t.Fatal(len(items), err)
	}
	if kept := live() - before; kept > 8<<20 {
		t.Errorf("%d items keep %d MiB", len(items), kept>>20)
	}
	runtime.KeepAlive(items)
}

// live is how many bytes are in use.
func live() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// SPEC S2: of a page of very many items, those that are not served take nothing.
func TestS2APageTakesLittleMoreThanItsItems(t *testing.T) {
	page := json.RawMessage(`{"tools":[` + strings.Repeat("{},", 500_000) + `{}],"nextCursor":"x"}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	items, next, err := itemsIn(page, "tools")
	runtime.ReadMemStats(&after)
	if len(items) != maxItems+1 || next != "x" || err != nil {
		t.Errorf("%d items, %q, %v", len(items), next, err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > uint64(2*len(page)) {
		t.Errorf("%d bytes took %d", len(page), took)
	}
}
