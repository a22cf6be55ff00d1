package capsule

import (
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/manifest"
)

// SPEC S2, D5: what a capsule says of itself, and how it refuses, is bounded in the log and
// in what calls are told, however long it is.
func TestS2WhatACapsuleSaysIsCutInTheLog(t *testing.T) {
	long := strings.Repeat(`\u0001`, 1<<17)
	for name, c := range map[string]struct {
		handshake manifest.Handshake
		at, says  string // after which message, "" for the start
	}{
		"a name":               {manifest.HandshakeHello, "", `{"jsonrpc":"2.0","method":"orla.hello","params":{"name":"` + long + `","version":"1"}}`},
		"a version":            {manifest.HandshakeHello, "", `{"jsonrpc":"2.0","method":"orla.hello","params":{"name":"walker","version":"` + long + `"}}`},
		"a method":             {manifest.HandshakeHello, "", `{"jsonrpc":"2.0","method":"` + strings.Repeat("m", 1<<17) + `"}`},
		"a request":            {manifest.HandshakeHello, "", `{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("m", 1<<17) + `"}`},
		"a refusal":            {manifest.HandshakeMCP, "initialize", `{"jsonrpc":"2.0","id":ID,"error":{"code":-32000,"message":"` + long + `"}}`},
		"a protocol":           {manifest.HandshakeMCP, "initialize", `{"jsonrpc":"2.0","id":ID,"result":{"protocolVersion":"` + long + `","capabilities":{},"serverInfo":{"name":"x","version":"1"}}}`},
		"a refusal of lists":   {manifest.HandshakeMCP, "tools/list", `{"jsonrpc":"2.0","id":ID,"error":{"code":-32000,"message":"` + long + `"}}`},
		"a method that it has": {manifest.HandshakeMCP, "tools/list", `{"jsonrpc":"2.0","method":"` + strings.Repeat("m", 1<<17) + `","params":[]}`},
	} {
		t.Run(name, func(t *testing.T) {
			inPlay(t, func(r *manifest.Runtime) { r.Handshake = c.handshake }, saysAt(c.at, c.says), func(t *testing.T, c *Capsule, log *journal) {
				time.Sleep(10 * time.Second)
				said := 0
				for _, line := range log.having("{") {
					if said++; len(line) > 64<<10 {
						t.Errorf("a line of the log has %d bytes: %.200s", len(line), line)
					}
				}
				if said == 0 {
					t.Error("the log is empty")
				}
				if reason := c.Life().Reason; len(reason) > 8<<10 {
					t.Errorf("the reason of %s has %d bytes: %.200s", c.Life().State, len(reason), reason)
				}
			})
		})
	}
}

// SPEC S2: what a capsule says of itself in its handshake is bounded in values: decoded they
// take many times their bytes, and some are kept.
func TestS2AHandshakeIsBounded(t *testing.T) {
	many := "[" + strings.Repeat("{},", 10_000) + "{}]"
	for name, c := range map[string]struct {
		handshake manifest.Handshake
		at, says  string // after which message, "" for the start
		state     State
	}{
		"orla.hello":      {manifest.HandshakeHello, "", `{"jsonrpc":"2.0","method":"orla.hello","params":{"name":"walker","version":"1.0.0","capabilities":` + strings.ReplaceAll(many, "{}", `""`) + `}}`, Crashed},
		"initialize":      {manifest.HandshakeMCP, "initialize", `{"jsonrpc":"2.0","id":ID,"result":{"protocolVersion":"2025-11-25","capabilities":{"experimental":{"x":` + many + `}},"serverInfo":{"name":"x","version":"1"}}}`, Crashed},
		"server/discover": {manifest.HandshakeMCP, "server/discover", `{"jsonrpc":"2.0","id":ID,"result":{"supportedVersions":["2026-07-28"],"capabilities":{"experimental":{"x":` + many + `}}}}`, Ready}, // by initialize
	} {
		t.Run(name, func(t *testing.T) {
			inPlay(t, func(r *manifest.Runtime) { r.Handshake = c.handshake }, saysAt(c.at, c.says), func(t *testing.T, capsule *Capsule, _ *journal) {
				time.Sleep(100 * time.Millisecond)
				life := capsule.Life()
				if life.State != c.state.String() || c.state == Crashed && !strings.Contains(life.Reason, "values") {
					t.Errorf("it is %s: %.300s", life.State, life.Reason)
				}
				if s := capsule.status.Load(); s.conn != nil && s.conn.Stateless() {
					t.Error("it is spoken to as its answer says")
				}
			})
		})
	}
}

// saysAt is a capsule that says something in the place of an answer: ID stands for that of
// the request. Where at is "", it says it at its start.
func saysAt(at, says string) func(p *scripted, m asked) {
	return func(p *scripted, m asked) {
		switch {
		case m.Method == at && (m.ID != nil || at == ""):
			p.says(strings.Replace(says, "ID", string(m.ID), 1))
		case m.ID == nil:
		case m.Method == "initialize":
			p.answers(m, serverCaps)
		default:
			p.answers(m, "{}")
		}
	}
}
