package capsule

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orla-project/orla/manifest"
)

// SPEC S2: long lists that change all the time are asked for seldom, and short ones once a second.
func TestS2LongListsAreAskedForSeldom(t *testing.T) {
	const seconds = 20
	for _, c := range []struct {
		tools, bytes int
		least, most  int64
	}{
		{3, 100, seconds - 2, seconds + 1},
		{9000, 100, 5, 11},
		{1000, 8000, 4, 8},
	} {
		t.Run(fmt.Sprint(c.tools), func(t *testing.T) {
			var asks atomic.Int64
			inPlay(t, func(r *manifest.Runtime) { r.Handshake = manifest.HandshakeMCP }, func(p *scripted, m asked) {
				switch {
				case m.ID == nil:
				case m.Method == "initialize":
					p.answers(m, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"x","version":"1"}}`)
				case m.Method == "tools/list":
					n := asks.Add(1)
					tools := make([]string, c.tools)
					for i := range tools {
						tools[i] = fmt.Sprintf(`{"name":"t%d-%d","description":%q,"inputSchema":{"type":"object"}}`, n, i, strings.Repeat("x", c.bytes-60))
					}
					p.answers(m, `{"tools":[`+strings.Join(tools, ",")+`]}`)
					p.says(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
				default:
					p.says(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, m.ID)
				}
			}, func(t *testing.T, c2 *Capsule, _ *journal) {
				time.Sleep(seconds * time.Second)
				if n := asks.Load(); n < c.least || n > c.most {
					t.Errorf("%d tools of %d bytes were asked for %d times in %d s, want %d to %d", c.tools, c.bytes, n, seconds, c.least, c.most)
				}
				if n := len(c2.Offers().Tools); n != c.tools {
					t.Errorf("%d tools are served, want %d", n, c.tools)
				}
			})
		})
	}
}

// SPEC N2, D7a: the lists of all clients, and /readyz, wait for a capsule as long as it may take to start, but not as long as
// a stranger likes.
func TestN2ListsWaitLittleForStrangers(t *testing.T) {
	const startup, strangers = 5 * time.Minute, 10 * time.Second
	for _, c := range []struct {
		what   string
		change func(*manifest.Tool)
		waits  time.Duration
	}{
		{"one's own", func(*manifest.Tool) {}, startup},
		{"an installed package", func(t *manifest.Tool) { t.Run.Setup.Package = "p" }, strangers},
		{"a quick package", func(t *manifest.Tool) { t.Run.Setup.Package, t.Runtime.StartupTimeout = "p", time.Second }, time.Second},
		{"a remote server", func(t *manifest.Tool) { t.Runtime.Remote = &manifest.Remote{} }, strangers},
	} {
		t.Run(c.what, func(t *testing.T) {
			inPlay(t, func(r *manifest.Runtime) { r.Handshake, r.StartupTimeout = manifest.HandshakeMCP, startup }, func(*scripted, asked) {}, func(t *testing.T, mute *Capsule, _ *journal) {
				known := func() time.Duration {
					began := time.Now()
					for o := mute.Offers(); !o.Known; o = mute.Offers() {
						<-o.Changed
					}
					return time.Since(began)
				}
				if life := mute.Life(); life.Settled || life.Overdue {
					t.Errorf("Orla does not wait for it: %+v", life)
				}
				if waited := known(); waited != c.waits {
					t.Errorf("lists wait for %s, want %s", waited, c.waits)
				}
				if !mute.Life().Overdue {
					t.Error("Orla waits on, to be ready")
				}
			}, c.change)
		})
	}
}
