package supervisor_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
)

// SPEC S2: a peer fills the log neither by how much it offers that cannot be served, nor
// by how often, nor by how much is wrong with it.
func TestS2WarningsOfOnePeerAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		bad, fine := newFakePeer("bad", peer.Offers{Known: true}), newFakePeer("fine", peer.Offers{Known: true})
		made := map[string]*fakePeer{"bad": bad, "fine": fine}
		s := supervisor.New(supervisor.Options{
			Build: map[manifest.Kind]supervisor.Build{
				manifest.Capsule: func(t manifest.Tool) (supervisor.Provider, error) { return made[t.Name], nil },
			},
			Log: slog.New(slog.NewTextHandler(&log, nil)),
		})
		defer serving(t, s)()
		s.Apply([]manifest.Tool{capsuleTool("bad", ""), capsuleTool("fine", "")})
		offer := func(p *fakePeer, round, n int) {
			var faults []string
			for i := range 200 {
				faults = append(faults, fmt.Sprintf(`"p%d":{"type":"nothing of the sort"}`, i))
			}
			offers := peer.Offers{Known: true}
			for i := range n {
				name := fmt.Sprintf("%s__%d_%d_%s", p.name, round, i, strings.Repeat("x", 2000))
				offers.Tools = append(offers.Tools, &mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object","properties":{` + strings.Join(faults, ",") + `}}`)})
			}
			p.offer(offers)
			synctest.Wait()
		}
		const most, size = 100, 1000 // lines a minute, and bytes of a line
		check := func(what string, lines int) {
			t.Helper()
			if got := strings.Count(log.String(), "is not served"); got != lines {
				t.Errorf("%s: %d lines, want %d", what, got, lines)
			}
			if log.Len() > lines*size {
				t.Errorf("%s: %d bytes in %d lines", what, log.Len(), lines)
			}
		}
		for round := range 20 {
			offer(bad, round, 50)
		}
		check("of one peer", most)
		offer(fine, 0, 3)
		check("and of another", most+3)
		time.Sleep(time.Minute)
		offer(bad, 21, 1)
		check("a minute later", most+4)
		if !strings.Contains(log.String(), "not_shown=900") {
			t.Error("it is not said how many were not shown")
		}
	})
}
