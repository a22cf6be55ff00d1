package capsule

import (
	"testing"
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
