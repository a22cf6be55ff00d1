package supervisor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
)

// patientPeer has whoever asks it wait until it serves, or never will.
type patientPeer struct {
	*fakePeer
	begun, over chan struct{}
}

func newPatientPeer(name string, offers peer.Offers) *patientPeer {
	return &patientPeer{newFakePeer(name, offers), make(chan struct{}), make(chan struct{})}
}

func (p *patientPeer) wait(ctx context.Context) error {
	select {
	case <-p.over:
		return fault.Wrap(fault.NotReady, peer.ErrGone, "%s is gone", p.name)
	case <-p.begun:
		return nil
	case <-ctx.Done():
		return fault.From(context.Cause(ctx))
	}
}

func (p *patientPeer) Call(ctx context.Context, call peer.Call) (peer.Answer, error) {
	if err := p.wait(ctx); err != nil {
		return peer.Answer{}, err
	}
	return p.fakePeer.Call(ctx, call)
}

func (p *patientPeer) Request(ctx context.Context, req peer.Request) (json.RawMessage, error) {
	if err := p.wait(ctx); err != nil {
		return nil, err
	}
	return p.fakePeer.Request(ctx, req)
}

func (p *patientPeer) Serve(ctx context.Context) error {
	if ctx.Err() != nil {
		close(p.over)
		return ctx.Err()
	}
	close(p.begun)
	<-ctx.Done()
	time.Sleep(p.closing) // in a bubble
	return ctx.Err()
}

// serving serves s, until the function that it returns is called.
func serving(t *testing.T, s *supervisor.Supervisor) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(ctx) // ctx ends it
	}()
	return func() {
		cancel()
		<-ended
	}
}

// inTurn is a supervisor in whose manifests the description names the peer.
func inTurn(made map[string]*patientPeer) *supervisor.Supervisor {
	return supervisor.New(supervisor.Options{
		Build: map[manifest.Kind]supervisor.Build{
			manifest.Capsule: func(t manifest.Tool) (supervisor.Provider, error) { return made[t.Description], nil },
		},
		Log: slog.New(slog.DiscardHandler),
	})
}

// SPEC E1, H2: a manifest that changes again and again while its first process ends loses
// nothing that waits: it goes on to the newest peer, by the newest schema.
func TestChangesWhileTheOldOneEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		offers := func(schema string) peer.Offers {
			return peer.Offers{
				Known: true, Reads: true,
				Tools:     []*mcp.Tool{{Name: "p", InputSchema: json.RawMessage(schema)}},
				Resources: []*mcp.Resource{{URI: "file:///p", Name: "p"}},
				Prompts:   []*mcp.Prompt{{Name: "p"}},
			}
		}
		made := map[string]*patientPeer{
			"one":   newPatientPeer("one", offers(`{"type":"object"}`)),
			"two":   newPatientPeer("two", offers(`{"type":"object"}`)),
			"three": newPatientPeer("three", offers(`{"type":"object","required":["x"]}`)),
			"four":  newPatientPeer("four", offers(`{"type":"object"}`)),
		}
		made["one"].closing = 3 * time.Second
		s := inTurn(made)
		defer serving(t, s)()
		s.Apply([]manifest.Tool{capsuleTool("p", "one")})
		synctest.Wait()
		s.Apply([]manifest.Tool{capsuleTool("p", "two")})
		synctest.Wait()

		began := time.Now()
		var wg sync.WaitGroup
		want := func(what, want string, after time.Duration, ask func() (json.RawMessage, error)) {
			wg.Go(func() {
				raw, err := ask()
				text := string(raw)
				if err != nil {
					text = err.Error()
				}
				if !strings.Contains(text, want) || time.Since(began) != after {
					t.Errorf("%s gives %s after %s, want %s after %s", what, text, time.Since(began), want, after)
				}
			})
		}
		call := func(args string) func() (json.RawMessage, error) {
			return func() (json.RawMessage, error) {
				a, err := s.Call(t.Context(), peer.Call{Tool: "p", Args: json.RawMessage(args)})
				return a.Raw, err
			}
		}
		request := func(method, params string) func() (json.RawMessage, error) {
			return func() (json.RawMessage, error) {
				return s.Request(t.Context(), peer.Request{Method: method, Params: json.RawMessage(params)})
			}
		}
		want("a call", `"four p"`, 3*time.Second, call(`{"x":1}`))
		want("a call that the new schema refuses", "invalid_input", 0, call(`{}`))
		want("a read", `"four resources/read"`, 3*time.Second, request("resources/read", `{"uri":"file:///p"}`))
		want("a subscription", `"four resources/subscribe"`, 3*time.Second, request("resources/subscribe", `{"uri":"file:///p"}`))
		want("a prompt", `"four prompts/get"`, 3*time.Second, request("prompts/get", `{"name":"p"}`))
		synctest.Wait() // they wait for the second
		s.Apply([]manifest.Tool{capsuleTool("p", "three")})
		synctest.Wait() // and now for the third
		s.Apply([]manifest.Tool{capsuleTool("p", "four")})
		wg.Wait()
	})
}

// SPEC E1, M8: a peer that takes the place of one that has not begun yet may be one of which nobody
// knows what it offers, such as a version that has never run. Whatever waits, and what comes
// meanwhile, waits until it has said so, and goes to it.
func TestM8ASuccessorThatNobodyKnows(t *testing.T) {
	for what, offers := range map[string]peer.Offers{
		`"three `: {Known: true, Reads: true, Tools: listed("p"), Resources: resources("file:///p"), Prompts: []*mcp.Prompt{{Name: "p"}}},
		"err ":    {Known: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			known := peer.Offers{Known: true, Reads: true, Tools: listed("p"), Resources: resources("file:///p"), Prompts: []*mcp.Prompt{{Name: "p"}}}
			made := map[string]*patientPeer{"one": newPatientPeer("one", known), "two": newPatientPeer("two", known), "three": newPatientPeer("three", peer.Offers{})}
			made["one"].closing = 3 * time.Second
			s := inTurn(made)
			defer serving(t, s)()
			began := time.Now()
			var asked sync.WaitGroup
			want := func(ask func() (json.RawMessage, error)) {
				asked.Go(func() {
					raw, err := ask()
					if err != nil {
						raw = json.RawMessage("err " + err.Error())
					}
					if took := time.Since(began); !strings.HasPrefix(string(raw), what) || took != 4*time.Second {
						t.Errorf("%s after %s, want %s when the third has said what it offers", raw, took, what)
					}
				})
			}
			ask := func() {
				want(func() (json.RawMessage, error) {
					a, err := s.Call(t.Context(), peer.Call{Tool: "p"})
					return a.Raw, err
				})
				for method, params := range map[string]string{"resources/read": `{"uri":"file:///p"}`, "prompts/get": `{"name":"p"}`} {
					want(func() (json.RawMessage, error) {
						return s.Request(t.Context(), peer.Request{Method: method, Params: json.RawMessage(params)})
					})
				}
				synctest.Wait()
			}
			s.Apply([]manifest.Tool{capsuleTool("p", "one")})
			synctest.Wait()
			s.Apply([]manifest.Tool{capsuleTool("p", "two")})
			synctest.Wait()
			ask() // these wait for the second
			s.Apply([]manifest.Tool{capsuleTool("p", "three")})
			ask() // and now they wait for the third, as these do
			brief, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := s.Call(brief, peer.Call{Tool: "p"}); err == nil || brief.Err() == nil {
				t.Errorf("a call whose time is over gives %v", err)
			}
			time.Sleep(3 * time.Second)
			made["three"].offer(offers)
			asked.Wait()
		})
	}
}

// What waits for a peer that is removed, without another in its place, is told so.
func TestNobodyTakesThePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newPatientPeer("one", peer.Offers{Known: true, Tools: listed("p")})
		one.closing = 3 * time.Second
		two := newPatientPeer("two", peer.Offers{Known: true, Tools: listed("p"), Prompts: []*mcp.Prompt{{Name: "p"}}})
		s := inTurn(map[string]*patientPeer{"one": one, "two": two})
		defer serving(t, s)()
		s.Apply([]manifest.Tool{capsuleTool("p", "one")})
		synctest.Wait()
		s.Apply([]manifest.Tool{capsuleTool("p", "two")})
		synctest.Wait()
		var wg sync.WaitGroup
		wg.Go(func() {
			if got := raw(t, s, "p"); !strings.Contains(got, "not_ready") {
				t.Errorf("the call gives %s", got)
			}
		})
		wg.Go(func() {
			if got, err := s.Request(t.Context(), peer.Request{Method: "prompts/get", Params: json.RawMessage(`{"name":"p"}`)}); err == nil {
				t.Errorf("the request gives %s", got)
			}
		})
		synctest.Wait()
		s.Apply(nil)
		wg.Wait()
	})
}

// What is wrong with what a peer offers is said once, not at each change of
// something else; and once more when it comes back.
func TestIsWarnedOfOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		bad := &mcp.Tool{Name: "p__bad", InputSchema: json.RawMessage(`{"type":"object","properties":5}`)}
		p := newFakePeer("p", peer.Offers{Known: true, Tools: []*mcp.Tool{bad}})
		s := supervisor.New(supervisor.Options{
			Build: map[manifest.Kind]supervisor.Build{
				manifest.Capsule: func(manifest.Tool) (supervisor.Provider, error) { return p, nil },
				manifest.Simple:  func(t manifest.Tool) (supervisor.Provider, error) { return &fake{tool: t}, nil },
			},
			Log: slog.New(slog.NewTextHandler(&log, nil)),
		})
		defer serving(t, s)()
		want := func(what string, n int) {
			t.Helper()
			synctest.Wait()
			if got := strings.Count(log.String(), "is not served"); got != n {
				t.Errorf("%s: %d warnings, want %d", what, got, n)
			}
		}
		s.Apply([]manifest.Tool{capsuleTool("p", "")})
		want("at first", 1)
		for _, name := range []string{"a", "b", "c"} {
			s.Apply([]manifest.Tool{capsuleTool("p", ""), tool(name)})
		}
		want("after changes of others", 1)
		p.offer(peer.Offers{Known: true, Tools: listed("p")})
		synctest.Wait()
		p.offer(peer.Offers{Known: true, Tools: []*mcp.Tool{bad}})
		want("when it is back", 2)
	})
}
