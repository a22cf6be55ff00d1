package simple_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/testing/testkit"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/simple"
)

// SPEC N2: what Orla does with large output waits for a turn of the caller. Until then the call has no place
// among processes.
func TestN2LargeOutputIsWorkedOnInTurn(t *testing.T) {
	large := fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x", turns.Heavy)
	for name, test := range map[string]struct {
		tool  manifest.Tool
		waits bool
	}{
		"text":   {script(t, large), true},
		"result": {script(t, `printf '{"content":[{"type":"text","text":"'; `+large+`; printf '"}]}'`, func(t *manifest.Tool) { t.Run.Output = manifest.OutputMCP }), true},
		"cli":    {cliTool(t, large, nil), true},
		"both":   {cliTool(t, large, nil, func(t *manifest.Tool) { t.Resource.CLI.Output = manifest.CLIBoth }), true},
		"little": {script(t, "echo hi"), false},
	} {
		t.Run(name, func(t *testing.T) {
			slots := simple.NewSlots(1)
			c := command(t, test.tool, func(o *simple.Options) { o.Slots = slots })
			room := turns.NewRoom(64 << 20)
			owner := turns.Owner{Caller: "one", Session: "1"}
			ctx, release := room.Open(t.Context(), owner)
			defer release()
			account := turns.AccountOf(ctx)
			for range turns.Workers() {
				if err := account.BeginWork(ctx); err != nil {
					t.Fatal(err)
				}
			}
			called := make(chan error, 1)
			go func() {
				_, err := c.Call(ctx, peer.Call{Args: json.RawMessage(`{}`), Owner: owner})
				called <- err
			}()
			if test.waits {
				testkit.Eventually(t, "it waits for a turn", func() bool { return room.Waiting() == 1 })
				give, err := slots.Take(t.Context(), turns.Owner{Caller: "other"}) // it is free
				if err != nil {
					t.Fatal(err)
				}
				give()
			} else if err := <-called; err != nil {
				t.Fatal(err)
			}
			for range turns.Workers() {
				account.EndWork()
			}
			if test.waits {
				if err := <-called; err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// SPEC S2: a result has a bounded number of blocks.
func TestS2BlocksAreBounded(t *testing.T) {
	block := `{"type":"text","text":""}`
	tool := script(t, "printf '{\"content\":["+block+"'; yes ',"+block+"' | head -n \"$2\" | tr -d '\\n'; printf ']}'", func(t *manifest.Tool) {
		t.Run.Output, t.Run.Arguments = manifest.OutputMCP, manifest.ArgumentsFlags
	})
	for more, want := range map[int]string{9_999: "", 10_000: "more than 10000 blocks"} {
		_, err := call(t, command(t, tool), fmt.Sprintf(`{"n":%d}`, more))
		if got := fmt.Sprint(err); want == "" && err != nil || !strings.Contains(got, want) {
			t.Errorf("%d blocks: %v", more+1, err)
		}
	}
}
