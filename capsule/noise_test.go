package capsule

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/manifest"
)

// SPEC D4, D10: a start that fails for want of a handshake says what came in its place.
func TestNoHandshakeNamesWhatWasPrinted(t *testing.T) {
	long := strings.Repeat("x", 10*maxHello)
	for name, c := range map[string]struct {
		handshake manifest.Handshake
		prints    string
		exits     bool
		want      string
	}{
		"text":             {manifest.HandshakeHello, "Loading \x1b[1mmodel\x1b[0m\nmore", false, `no orla.hello within 2s; it printed "Loading \x1b[1mmodel\x1b[0m" on stdout`},
		"a long line":      {manifest.HandshakeHello, long, false, fmt.Sprintf("no orla.hello within 2s; it printed %q on stdout", long[:maxHello]+"…")},
		"nothing":          {manifest.HandshakeHello, "\n", false, "no orla.hello within 2s; an MCP server needs runtime.handshake: mcp"},
		"and exits":        {manifest.HandshakeHello, "usage: x", true, `it exited with code 2 before orla.hello; it printed "usage: x" on stdout`},
		"a server":         {manifest.HandshakeMCP, "listening", false, `no answer to initialize within 2s; it printed "listening" on stdout`},
		"a server, exited": {manifest.HandshakeMCP, "usage: x", true, `it exited with code 2 before it answered initialize; it printed "usage: x" on stdout`},
	} {
		t.Run(name, func(t *testing.T) {
			inPlay(t, func(r *manifest.Runtime) {
				r.Declared, r.Handshake, r.StartupTimeout = true, c.handshake, 2*time.Second
				r.Restart.MaxFailures = 1
			}, func(p *scripted, m asked) {
				if m.Method != "" {
					return
				}
				p.says("%s", c.prints)
				if c.exits {
					p.exit("exited with code 2")
				}
			}, func(t *testing.T, capsule *Capsule, _ *journal) {
				time.Sleep(time.Minute)
				synctest.Wait()
				if life := capsule.Life(); life.State != "STOPPED" || life.Reason != c.want {
					t.Errorf("it is %s: %s; want %s", life.State, life.Reason, c.want)
				}
			})
		})
	}
}
