package capsule

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/call/pins"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/manifest"
)

// SPEC S2: long lists that change all the time are asked for seldom, and short ones once a second.
func TestS2LongListsAreAskedForSeldom(t *testing.T) {
	needs.Time(t, "reads lists of megabytes again and again")
	const seconds = 10
	for _, c := range []struct {
		tools, bytes int
		least, most  int64
	}{
		{3, 100, seconds - 2, seconds + 1},
		{9000, 100, 2, 6},
		{1000, 8000, 2, 4},
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

// SPEC S2: long lists are asked for no more often of a capsule that ends itself all the time, and what it said stands meanwhile.
func TestS2LongListsOfAnotherProcessAreAskedForSeldom(t *testing.T) {
	const seconds = 20
	for tools, want := range map[int][2]int64{3: {seconds/2 - 2, seconds}, 9000: {4, seconds/2 + 1}} {
		t.Run(fmt.Sprint(tools), func(t *testing.T) {
			var asks, starts atomic.Int64
			inPlay(t, func(r *manifest.Runtime) {
				r.Handshake, r.Restart.ResetAfter = manifest.HandshakeMCP, time.Second
			}, func(p *scripted, m asked) {
				switch {
				case m.ID == nil:
				case m.Method == "initialize":
					starts.Add(1)
					p.answers(m, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"x","version":"1"}}`)
					time.AfterFunc(1100*time.Millisecond, func() { p.exit("exited with code 3") })
				case m.Method == "tools/list":
					n := asks.Add(1)
					list := make([]string, tools)
					for i := range list {
						list[i] = fmt.Sprintf(`{"name":"t%d-%d","inputSchema":{"type":"object"}}`, n, i)
					}
					p.answers(m, `{"tools":[`+strings.Join(list, ",")+`]}`)
				default:
					p.says(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, m.ID)
				}
			}, func(t *testing.T, c *Capsule, _ *journal) {
				time.Sleep(seconds * time.Second)
				if n := asks.Load(); n < want[0] || n > want[1] {
					t.Errorf("%d tools were asked for %d times in %d s and %d starts, want %v", tools, n, seconds, starts.Load(), want)
				}
				if n := len(c.Offers().Tools); n != tools {
					t.Errorf("%d tools are served, want %d", n, tools)
				}
			})
		})
	}
}

// SPEC-TOOLS 8.7, D7: the pause of long lists keeps neither an approved call from what the new process offers, nor the new process
// from what clients have asked of the one before.
func TestT87AnApprovedCallDoesNotTrustTheProcessBefore(t *testing.T) {
	const tools = 9000
	var starts, asks, follows atomic.Int64
	inPlay(t, func(r *manifest.Runtime) { r.Handshake = manifest.HandshakeMCP }, func(p *scripted, m asked) {
		switch {
		case m.ID == nil:
		case m.Method == "initialize":
			p.answers(m, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{"subscribe":true}},"serverInfo":{"name":"x","version":"1"}}`)
			if starts.Add(1) == 1 {
				time.AfterFunc(1100*time.Millisecond, func() { p.exit("exited with code 3") })
			}
		case m.Method == "tools/list":
			n := asks.Add(1)
			list := make([]string, tools)
			for i := range list {
				list[i] = fmt.Sprintf(`{"name":"t%d-%d","inputSchema":{"type":"object"}}`, n, i)
			}
			p.answers(m, `{"tools":[`+strings.Join(list, ",")+`]}`)
		case m.Method == "resources/subscribe":
			follows.Add(1)
			p.answers(m, `{}`)
		default:
			p.says(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, m.ID)
		}
	}, func(t *testing.T, c *Capsule, _ *journal) {
		time.Sleep(time.Second)
		if _, err := c.Request(t.Context(), peer.Request{Method: "resources/subscribe", Params: json.RawMessage(`{"uri":"a:1"}`)}); err != nil {
			t.Fatal(err)
		}
		for starts.Load() < 2 {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(10 * time.Millisecond)
		if a, f := asks.Load(), follows.Load(); a != 1 || f != 2 {
			t.Errorf("the new process was asked for %d lists, and was told of %d resources that are followed", a-1, f-1)
		}
		c.Settle(t.Context(), turns.Owner{})
		if names := toolNames(c); len(names) != tools || !strings.HasSuffix(names[0], "t2-0") {
			t.Errorf("an approved call is judged by %d tools such as %q", len(names), names[0])
		}
	})
}

// SPEC-TOOLS 8.7: nor does it trust a process that ends while it is asked: the next one would answer the call.
func TestT87AnApprovedCallWaitsForTheNextProcess(t *testing.T) {
	inPlay(t, func(r *manifest.Runtime) { r.Handshake = manifest.HandshakeMCP }, func(p *scripted, m asked) {
		switch {
		case m.ID == nil:
		case m.Method == "initialize":
			p.answers(m, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`)
			if p.n == 1 {
				time.AfterFunc(2*time.Second, func() { p.exit("exited with code 3") })
			}
		case m.Method == "tools/list" && p.n == 2:
			time.AfterFunc(100*time.Millisecond, func() { p.exit("exited with code 3") })
		case m.Method == "tools/list":
			p.answers(m, fmt.Sprintf(`{"tools":[{"name":"of%d","inputSchema":{"type":"object"}},{"name":"other","inputSchema":{"type":"object"}}]}`, p.n))
		default:
			p.says(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, m.ID)
		}
	}, func(t *testing.T, c *Capsule, _ *journal) {
		time.Sleep(time.Second)
		for c.Life().Restarts == 0 || c.Life().State != Ready.String() {
			time.Sleep(time.Millisecond)
		}
		c.Settle(t.Context(), turns.Owner{})
		if names := toolNames(c); len(names) != 2 || !strings.HasSuffix(names[0], "of3") {
			t.Errorf("an approved call is judged by %q", names)
		}
	})
}

// SPEC N4: what could not be stored of the first lists is stored when it can be, though the lists stay the same.
func TestN4PinsAreStoredWhenTheyCanBe(t *testing.T) {
	for _, pin := range []manifest.Pin{manifest.PinHold, manifest.PinWarn} {
		t.Run(string(pin), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "pins")
			if err := os.WriteFile(dir, nil, 0o600); err != nil { // in the way
				t.Fatal(err)
			}
			inPlay(t, func(r *manifest.Runtime) { r.Handshake, r.Pin = manifest.HandshakeMCP, pin }, func(p *scripted, m asked) {
				switch {
				case m.ID == nil:
				case m.Method == "initialize":
					p.answers(m, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`)
				case m.Method == "tools/list":
					p.answers(m, `{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}`)
				default:
					p.says(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, m.ID)
				}
			}, func(t *testing.T, c *Capsule, log *journal) {
				time.Sleep(time.Minute)
				if served := len(c.Offers().Tools); served > 0 == (pin == manifest.PinHold) {
					t.Errorf("%d tools are served", served)
				}
				if n := len(log.having(`"msg":"offers"`)); n != 1 {
					t.Errorf("the log says %d times what it offers", n)
				}
				if err := os.Remove(dir); err != nil {
					t.Fatal(err)
				}
				time.Sleep(12 * time.Second)
				if files, _ := filepath.Glob(filepath.Join(dir, "*.json")); len(files) != 1 || len(c.Offers().Tools) != 1 {
					t.Errorf("%d files, %d tools", len(files), len(c.Offers().Tools))
				}
			}, func(c *Capsule) {
				c.opts.Pins = pins.NewStore(dir, slog.New(slog.DiscardHandler))
			})
		})
	}
}

// SPEC N2, D7a: the lists of all clients wait for a capsule as long as it may take to start, but not as long as a stranger likes. So
// does /readyz, which waits for one's own until it is READY or has failed.
func TestN2ListsWaitLittleForStrangers(t *testing.T) {
	const startup, strangers = 5 * time.Minute, 10 * time.Second
	far := func(c *Capsule) { c.tool.Runtime.Remote = &manifest.Remote{} }
	for _, c := range []struct {
		what    string
		change  func(*Capsule)
		waits   time.Duration
		overdue bool
	}{
		{"one's own", func(*Capsule) {}, startup, false},
		{"one's own behind a replica", func(c *Capsule) { far(c); c.opts.Own = true }, startup, false},
		{"an installed package", func(c *Capsule) { c.tool.Run.Setup.Package = "p" }, strangers, true},
		{"one behind a replica", func(c *Capsule) { far(c); c.tool.Run.Setup.Package, c.opts.Own = "p", true }, strangers, true},
		{"a quick package", func(c *Capsule) { c.tool.Run.Setup.Package, c.tool.Runtime.StartupTimeout = "p", time.Second }, time.Second, true},
		{"a remote server", far, strangers, true},
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
				synctest.Wait() // a start may fail in the same moment
				if got := mute.Life().Overdue; got != c.overdue {
					t.Errorf("overdue: %t", got)
				}
			}, c.change)
		})
	}
}

// SPEC N2, G6: what comes before a process is not a part of its time to start, such as an image that is pulled. /readyz waits for that
// if it is one's own.
func TestN2WhatComesBeforeAProcess(t *testing.T) {
	for pack, want := range map[string]bool{"": false, "p": true} {
		synctest.Test(t, func(t *testing.T) {
			c := walker(t, &fakeWorld{t: t}, func(*manifest.Runtime) {})
			c.tool.Run.Setup.Package = pack
			logsTo(c, slog.DiscardHandler)
			c.connect = func(ctx context.Context) (Connection, error) {
				pace.Sleep(ctx, time.Minute)
				return nil, fault.New(fault.StartFailed, "there is no such image")
			}
			defer served(t, c)()
			time.Sleep(30 * time.Second)
			if life := c.Life(); life.Settled || life.Overdue != want {
				t.Errorf("package %q: %+v", pack, life)
			}
			time.Sleep(31 * time.Second)
			if life := c.Life(); !life.Settled {
				t.Errorf("package %q: %+v", pack, life)
			}
		})
	}
}
