package capsule

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
)

// A session that its server ends now and then, as many do with idle ones, is no
// capsule that fails: it is made again at once, however often. One that ends as soon as
// it is there fails.
func TestExpiredIsNoFailure(t *testing.T) {
	for _, test := range []struct {
		name    string
		after   time.Duration
		want    string // the state after ten times
		reloads int
	}{
		{"after a while", 2 * time.Second, "READY", 10},
		{"at once", 10 * time.Millisecond, "STOPPED", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			inPlay(t, func(r *manifest.Runtime) {
				r.Handshake = manifest.HandshakeMCP
				r.Restart.MaxFailures = 3
			}, func(p *scripted, m asked) {
				switch m.Method {
				case "":
				case "initialize":
					p.answers(m, serverCaps)
					if p.n <= 10 {
						go func() {
							time.Sleep(test.after)
							p.over = true
							p.exit("lost its session")
						}()
					}
				default:
					if m.ID != nil {
						p.answers(m, `{"tools":[{"name":"t","inputSchema":{"type":"object"}}],"content":[]}`)
					}
				}
			}, func(t *testing.T, c *Capsule, log *journal) {
				time.Sleep(time.Minute)
				life := c.Life()
				if life.State != test.want || test.reloads > 0 && (life.Restarts != test.reloads || life.Failures != 0) {
					t.Errorf("the capsule is %+v", life)
				}
				_, err := c.Call(t.Context(), peer.Call{Tool: "t"})
				if (err == nil) != (test.want == "READY") {
					t.Errorf("a call gives %v", err)
				}
				if n := len(log.having(`"to":"RELOADING"`, "it lost its session")); n != test.reloads {
					t.Errorf("it was reloaded %d times, want %d", n, test.reloads)
				}
			})
		})
	}
}

// SPEC D8: a server of both kinds that is slow to begin hears initialize behind server/discover, and refuses it. It is spoken to as it
// wants all the same.
func TestD8ASlowServerOfBothKindsStarts(t *testing.T) {
	var questions atomic.Int32
	const refuses = `{"jsonrpc":"2.0","id":%s,"error":{"code":-32600,"message":"the initialize handshake is not accepted"}}`
	asServerWith(t, func(r *manifest.Runtime) { r.StartupTimeout = 20 * time.Second }, func(p *scripted, m asked) bool {
		switch m.Method {
		case "server/discover":
			if questions.Add(1) == 1 {
				time.Sleep(8 * time.Second) // in a bubble: longer than the answer is waited for
			}
			p.answers(m, `{"supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{}}`)
		case "initialize":
			p.says(refuses, m.ID)
		default:
			return false
		}
		return true
	}, func(t *testing.T, c *Capsule, _ *journal) {
		time.Sleep(15 * time.Second)
		if life := c.Life(); life.State != "READY" || life.Restarts > 0 || questions.Load() != 2 {
			t.Errorf("it is %+v, and was asked %d times", life, questions.Load())
		}
	})
}

// SPEC D8: a server that has answered that it does not know server/discover is asked once for each process, also if it refuses initialize.
func TestD8AnAnswerIsAskedForOnce(t *testing.T) {
	var questions, starts atomic.Int32
	asServerWith(t, func(*manifest.Runtime) {}, func(p *scripted, m asked) bool {
		switch m.Method {
		case "server/discover":
			questions.Add(1)
		case "initialize":
			starts.Add(1)
		default:
			return false
		}
		p.says(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, m.ID)
		return true
	}, func(t *testing.T, c *Capsule, _ *journal) {
		time.Sleep(time.Minute)
		synctest.Wait()
		if starts.Load() == 0 || questions.Load() != starts.Load() {
			t.Errorf("%d processes were asked %d times", starts.Load(), questions.Load())
		}
	})
}

// SPEC D8: why a server refuses initialize is said, also if it does not answer when it is asked once more for its versions.
func TestD8ARefusalIsSaidWhateverComesNext(t *testing.T) {
	for name, next := range map[string]func(*scripted){"silence": func(*scripted) {}, "its end": func(p *scripted) { go p.exit("exited with code 1") }} {
		t.Run(name, func(t *testing.T) {
			var questions atomic.Int32
			asServerWith(t, func(r *manifest.Runtime) { r.StartupTimeout = 5 * time.Second }, func(p *scripted, m asked) bool {
				switch m.Method {
				case "server/discover":
					if questions.Add(1) == 2 {
						next(p)
					}
				case "initialize":
					time.Sleep(10 * time.Millisecond) // in a bubble: the second question is cut short by the start's timeout
					p.says(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"the key is wrong"}}`, m.ID)
				default:
					return false
				}
				return true
			}, func(t *testing.T, _ *Capsule, log *journal) {
				time.Sleep(6 * time.Second)
				if n := len(log.having(`"to":"CRASHED"`)); n == 0 || len(log.having(`"to":"CRASHED"`, "the key is wrong")) != n {
					t.Errorf("of %d failures not each says why", n)
				}
			})
		})
	}
}
