package capsule_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/testing/capsuletest"
	"github.com/orla-project/orla/manifest"
)

var asking = capsuletest.Args{Ask: &capsuletest.Notice{Method: "elicitation/create", Params: json.RawMessage(`{"message":"who?"}`)}}

// SPEC D8: a server that speaks 2026-07-28 alone works. Each request says the version
// and what its own client has declared.
func TestD8AStatelessServerIsToldOfEachClient(t *testing.T) {
	for name, mods := range map[string][]func(*manifest.Tool){
		"mcp":   {byHandshake},
		"hello": {capsuletest.Set("HELLO", "yes"), listing},
	} {
		t.Run(name, func(t *testing.T) {
			l := live(t, "stateless", append(mods, capsuletest.Set("TOOLS", "a,b"))...)
			eventually(t, "its tools are known", func() bool { return len(l.Offers().Tools) == 2 })
			for _, c := range []*client{
				{session: "a", says: peer.Declared{Capabilities: json.RawMessage(`{"elicitation":{"url":{}}}`), LogLevel: "warning"}},
				{session: "b", wants: true},
			} {
				got := l.askFor(c, capsuletest.Args{Progress: 1})
				meta := string(got.Meta)
				want := `"io.modelcontextprotocol/clientCapabilities":{}`
				if c.says.Capabilities != nil {
					want = `"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"url":{}}},"io.modelcontextprotocol/logLevel":"warning"`
				}
				if !strings.Contains(meta, want) || !strings.Contains(meta, `"io.modelcontextprotocol/clientInfo":{"name":"orla"`) {
					t.Errorf("the server was told %s, want %s", meta, want)
				}
				if wantsOne := len(c.notes) == 1; wantsOne != c.wants {
					t.Errorf("%s was told %q", c.session, c.notes)
				}
			}
		})
	}
}

// SPEC D8, N2: what a server requires for a request is asked of the client that made it,
// however many there are, and its answers repeat the request.
func TestN2InputIsRequiredOfItsOwnClient(t *testing.T) {
	l := live(t, "stateless", byHandshake)
	for _, name := range []string{"a", "b", "a"} {
		c := &client{session: name, reply: json.RawMessage(`{"action":"accept","n":12345678901234567890,"from":"` + name + `"}`)}
		got := l.askFor(c, asking)
		if len(c.asked) != 1 || c.asked[0] != `elicitation/create {"message":"who?"}` {
			t.Errorf("%s was asked %q", name, c.asked)
		}
		if want := `{"the question":{"action":"accept","n":12345678901234567890,"from":"` + name + `"}}`; string(got.Client) != want {
			t.Errorf("the server got %s, want %s", got.Client, want)
		}
	}
	_, err := l.raw(t.Context(), peer.Call{Tool: l.tool.Name, Args: asking.JSON()})
	if err == nil || !strings.Contains(err.Error(), "cannot be asked") {
		t.Errorf("without a client the call gave %v", err)
	}
}

// A client of 2026-07-28 gets what the server requires as it is, and gives its answers
// and the state back as they are.
func TestD8InputPassesThrough(t *testing.T) {
	l := live(t, "stateless", byHandshake)
	c := &client{says: peer.Declared{Repeats: true}}
	call := peer.Call{Tool: l.tool.Name, Args: asking.JSON(), Client: c}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	raw, err := l.raw(ctx, call)
	var got struct {
		Type     string          `json:"resultType"`
		State    json.RawMessage `json:"requestState"`
		Requests json.RawMessage `json:"inputRequests"`
	}
	if err == nil {
		err = json.Unmarshal(raw, &got)
	}
	if err != nil || got.Type != "input_required" || !strings.Contains(string(got.Requests), `"who?"`) {
		t.Fatalf("the client got %s, %v", raw, err)
	}
	call.Input = peer.Input{Responses: json.RawMessage(`{"the question":{"n":1.0}}`), State: got.State}
	if raw, err = l.raw(ctx, call); err != nil || !strings.Contains(string(raw), `{\"the question\":{\"n\":1.0}}`) {
		t.Errorf("the repeated request gave %s, %v", raw, err)
	}
	call.Input.State = json.RawMessage(`"of somebody else"`)
	if raw, err = l.raw(ctx, call); err == nil || !strings.Contains(err.Error(), "not one of mine") {
		t.Errorf("a forged state gave %s, %v", raw, err)
	}
	if len(c.asked) > 0 {
		t.Errorf("the client was asked %q", c.asked)
	}
}

// A state that no process that is there can have given is refused.
func TestAnOldServerGivesNoState(t *testing.T) {
	l := live(t, "echo")
	_, err := l.raw(t.Context(), peer.Call{Tool: l.tool.Name, Client: &client{}, Input: peer.Input{State: json.RawMessage(`"x"`)}})
	if err == nil || !strings.Contains(err.Error(), "requestState") {
		t.Errorf("the call gave %v", err)
	}
}

// SPEC D8: changes are listened for.
func TestD8AStatelessServerTellsOfChanges(t *testing.T) {
	t.Parallel()
	// What listens must not keep a process that is to end.
	l := live(t, "stateless", byHandshake, func(t *manifest.Tool) { t.Runtime.Drain = 10 * patience })
	eventually(t, "its tool is known", func() bool { return len(l.Offers().Tools) == 1 })
	l.askFor(&client{}, capsuletest.Args{Tools: []string{"x", "y"}})
	eventually(t, "its new tools are known", func() bool { return len(l.Offers().Tools) == 2 })
	if _, err := l.Request(t.Context(), peer.Request{Method: "resources/subscribe", Params: json.RawMessage(`{"uri":"test://code"}`)}); err != nil {
		t.Fatal(err)
	}
	select {
	case uri := <-l.Updated():
		if uri != "test://code" {
			t.Errorf("%s was updated", uri)
		}
	case <-time.After(patience):
		t.Fatal("no update came")
	}
	if n := l.Life().InFlight; n != 0 {
		t.Errorf("%d calls are in flight", n)
	}
	l.Reload("a test")
	eventually(t, "it is started again", func() bool { return l.Life().Restarts == 1 && l.Life().State == "READY" })
}

// A server that leaves the question for its versions without an answer is asked once.
func TestASilentServerIsProbedOnce(t *testing.T) {
	t.Parallel()
	for startup := 2 * time.Second; ; startup *= 2 { // half of it is waited for the answer
		l := live(t, "no-discover", byHandshake, startupTimeout(startup))
		first := l.call(capsuletest.Args{})
		l.Reload("a test")
		l.newer(first.Pid)
		second := l.call(capsuletest.Args{})
		if l.log.has(`"to":"CRASHED"`) && startup < patience {
			l.stop()
			continue // it took longer than that to start, on a busy machine
		}
		if first.Text != "" || second.Call != 1 {
			t.Errorf("the answers are %+v and %+v", first, second)
		}
		probes := 0
		for _, got := range []int{first.Probes, l.call(capsuletest.Args{}).Probes} {
			probes += got
		}
		if first.Probes != 1 || probes != 1 {
			t.Errorf("the first process was probed %d times, both %d times", first.Probes, probes)
		}
		return
	}
}

// The manifest may say which of the two kinds of MCP a server is spoken to in.
func TestTheProtocolIsTheOneAskedFor(t *testing.T) {
	protocol := func(p manifest.Protocol) func(*manifest.Tool) {
		return func(t *manifest.Tool) { t.Runtime.Protocol = p }
	}
	t.Run("initialize alone", func(t *testing.T) {
		l := live(t, "no-discover", byHandshake, protocol(manifest.ProtocolInitialize))
		if got := l.call(capsuletest.Args{}); got.Probes != 0 {
			t.Errorf("the server was asked for its versions %d times", got.Probes)
		}
	})
	t.Run("2026-07-28 alone", func(t *testing.T) {
		l := live(t, "stateless", byHandshake, protocol(manifest.ProtocolStateless))
		l.call(capsuletest.Args{})
		l.Reload("a test")
		eventually(t, "it is started again", func() bool { return l.Life().Restarts == 1 && l.Life().State == "READY" })
	})
	t.Run("2026-07-28 of a server that does not have it", func(t *testing.T) {
		l := live(t, "echo", byHandshake, protocol(manifest.ProtocolStateless))
		eventually(t, "it is said what is wrong", func() bool { return strings.Contains(l.Life().Reason, "does not say that it speaks MCP 2026-07-28") })
	})
}
