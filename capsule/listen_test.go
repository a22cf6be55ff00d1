package capsule

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
)

// SPEC S1: a server that speaks 2026-07-28 gets all resources that are followed again when one is
// added. It gets so many bytes a second, however often one is, and the last word is true.
func TestS1WhatIsFollowedIsToldAtABoundedRate(t *testing.T) {
	const resources, long, seconds = 200, 4 << 10, 10
	var heard, listens atomic.Int64
	var last atomic.Value // the params of the last subscription
	inPlay(t, func(r *manifest.Runtime) { r.Handshake = manifest.HandshakeMCP }, func(p *scripted, m asked) {
		switch {
		case m.ID == nil:
		case m.Method == "server/discover":
			p.answers(m, `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"resources":{"subscribe":true}},"serverInfo":{"name":"x","version":"1"}}`)
		case m.Method == "subscriptions/listen":
			heard.Add(int64(len(m.Params)))
			listens.Add(1)
			last.Store(string(m.Params))
			p.says(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, m.ID)
		default:
			p.answers(m, `{"resultType":"complete","resources":[],"resourceTemplates":[]}`)
		}
	}, func(t *testing.T, c *Capsule, _ *journal) {
		time.Sleep(5 * time.Second)
		wish := func(method, uri string) {
			t.Helper()
			if _, err := c.Request(t.Context(), peer.Request{Method: method, Params: json.RawMessage(`{"uri":"` + uri + `"}`)}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range resources {
			wish("resources/subscribe", fmt.Sprint("x:", i, strings.Repeat("y", long)))
		}
		time.Sleep(5 * time.Second)
		if !strings.Contains(fmt.Sprint(last.Load()), fmt.Sprint("x:", resources-1, "y")) {
			t.Fatal("it is not told what is followed")
		}
		heard.Store(0)
		listens.Store(0)
		for range 50 * seconds {
			wish("resources/subscribe", "x:more")
			time.Sleep(10 * time.Millisecond)
			wish("resources/unsubscribe", "x:more")
			time.Sleep(10 * time.Millisecond)
		}
		if n, most := heard.Load(), int64((seconds+1)<<20); n > most || listens.Load() == 0 {
			t.Errorf("it got %d bytes in %d subscriptions within %d s, want %d bytes at most", n, listens.Load(), seconds, most)
		}
		wish("resources/subscribe", "x:last")
		time.Sleep(2 * time.Second)
		if !strings.Contains(fmt.Sprint(last.Load()), "x:last") {
			t.Error("it is not told what is followed last")
		}
	})
}
