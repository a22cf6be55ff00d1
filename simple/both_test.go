package simple

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/manifest"
)

// ofBoth is a command whose result is both streams, and what one process of it left.
func ofBoth(stdout, stderr string) (*Command, *run) {
	c := &Command{cli: &cli{CLI: manifest.CLI{Command: "command", Output: manifest.CLIBoth}}}
	return c, &run{stdout: capture{kept: []byte(stdout)}, stderr: capture{kept: []byte(stderr)}}
}

// SPEC S2: the object of both streams is up to six times as long as they are, twice. It counts
// before it is made: a call that finds no room waits, and ends with its context.
func TestS2BothStreamsAreCountedAsJSON(t *testing.T) {
	const printed, made = 100 << 10, 6 * 100 << 10
	control := strings.Repeat("\x01", printed)
	synctest.Test(t, func(t *testing.T) {
		room := turns.NewRoom(8 << 20)
		all := room.Free()
		ctx, release := room.Open(t.Context(), turns.Owner{Caller: "one"})
		c, r := ofBoth(control, control)
		if _, err := c.answer(ctx, r); err != nil || all-room.Free() < 2*2*made-turns.Little {
			t.Errorf("%v; %d bytes are held", err, all-room.Free())
		}
		release()

		for range 2 { // the second goes beyond the limit, and a third one waits
			ctx, release := room.Open(t.Context(), turns.Owner{Caller: "other"})
			defer release()
			if err := turns.AccountOf(ctx).Need(ctx, all+turns.Little); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		ctx, release = room.Open(ctx, turns.Owner{Caller: "one"})
		defer release()
		c, r = ofBoth(control, "said")
		var res *mcp.CallToolResult
		done := make(chan error, 1)
		go func() {
			var err error
			res, err = c.answer(ctx, r)
			done <- err
		}()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("it did not wait: %v", err)
		default:
		}
		over := fault.New(fault.Timeout, "over")
		cancel(over)
		if err := <-done; !errors.Is(err, over) {
			t.Errorf("error = %v; want %v", err, over)
		}
		if text, _ := res.Content[0].(*mcp.TextContent); len(res.Content) != 2 || text == nil || text.Text != control || res.StructuredContent != nil {
			t.Errorf("it does not have the streams as they are: %d blocks", len(res.Content))
		}
	})
}

// SPEC S2: the object takes no more memory than its two forms, while it is made.
func TestS2BothStreamsAreMadeOnce(t *testing.T) {
	c, r := ofBoth(strings.Repeat("\x01", 1<<20), strings.Repeat("\xff.", 1<<20))
	const made = 6<<20 + 4<<20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := c.answer(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 2*made+made/10 {
		t.Errorf("%d bytes of memory for two forms of %d bytes", took, made)
	}
}

// SPEC-TOOLS 3.6: the streams are JSON strings, whatever they hold.
func TestT36BothStreamsAsJSON(t *testing.T) {
	pieces := []string{"a", "ü", "\"", "\\", "\n", "\r", "\t", "\b", "\f", "\x00", "\x1f", "\x7f", "\xff", "\xe2\x80", "\u2028", "\u2029", "\u202a", "\uFFFD", "😀", "<&>", "\xed\xa0\x80"}
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var printed strings.Builder
		for range random.IntN(6) {
			printed.WriteString(pieces[random.IntN(len(pieces))])
		}
		var want bytes.Buffer
		e := json.NewEncoder(&want)
		e.SetEscapeHTML(false)
		if err := e.Encode(strings.ToValidUTF8(printed.String(), "\uFFFD")); err != nil {
			t.Fatal(err)
		}
		c, r := ofBoth("out", printed.String())
		res, err := c.answer(t.Context(), r)
		got, _ := res.StructuredContent.(json.RawMessage)
		if want := `{"stdout":"out","stderr":` + strings.TrimSpace(want.String()) + `}`; err != nil || string(got) != want {
			t.Fatalf("%q: got %s, %v; want %s", printed.String(), got, err, want)
		}
		if text := res.Content[0].(*mcp.TextContent).Text; text != string(got) {
			t.Fatalf("the text is %s", text)
		}
	}
}
