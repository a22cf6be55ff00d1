package supervisor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
)

// reading are the offers of a peer that can be read from.
func reading(all []*mcp.Resource, texts ...string) peer.Offers {
	return peer.Offers{Known: true, Reads: true, Completes: true, Resources: all, Templates: templates(texts...)}
}

// reads checks which peer answers the read of each URI; "" for none.
func reads(t *testing.T, s *supervisor.Supervisor, want map[string]string) {
	t.Helper()
	for uri, name := range want {
		got, err := s.Request(t.Context(), peer.Request{Method: "resources/read", Params: json.RawMessage(fmt.Sprintf(`{"uri":%q}`, uri))})
		switch {
		case name == "" && (err == nil || !strings.Contains(err.Error(), "Resource not found")):
			t.Errorf("%s: %s, %v; want not found", uri, got, err)
		case name != "" && (err != nil || string(got) != `"`+name+` resources/read"`):
			t.Errorf("%s: %s, %v; want the answer of %s", uri, got, err, name)
		}
	}
}

func apply(s *supervisor.Supervisor, names ...string) {
	var tools []manifest.Tool
	for _, name := range names {
		tools = append(tools, capsuleTool(name, ""))
	}
	s.Apply(tools)
}

// SPEC N2: a capsule whose name sorts first does not take over what another one serves,
// also not after a moment in which the other one was gone.
func TestN2NoTakeoverByName(t *testing.T) {
	b := newFakePeer("b", peer.Offers{
		Known: true, Reads: true, Completes: true, Tools: listed("shared"), Resources: resources("file:///r"), Templates: templates("note:///{id}"), Prompts: []*mcp.Prompt{{Name: "p"}},
	})
	a := newFakePeer("a", peer.Offers{
		Known: true, Reads: true, Completes: true, Tools: listed("shared"), Resources: resources("file:///r", "file:///s"), Templates: templates("note:///{other}"), Prompts: []*mcp.Prompt{{Name: "p"}},
	})
	var log bytes.Buffer
	s := supervisor.New(supervisor.Options{
		Build: map[manifest.Kind]supervisor.Build{
			manifest.Capsule: func(t manifest.Tool) (supervisor.Provider, error) {
				return map[string]supervisor.Provider{"a": a, "b": b}[t.Name], nil
			},
		},
		Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	check := func(when, owner string) {
		t.Helper()
		reads(t, s, map[string]string{"file:///r": owner, "note:///1": owner})
		if got := raw(t, s, "shared"); got != `"`+owner+` shared"` {
			t.Errorf("%s the tool gives %s", when, got)
		}
		for _, params := range []string{`{"name":"p"}`, `{"ref":{"type":"ref/prompt","name":"p"}}`, `{"ref":{"type":"ref/resource","uri":"file:///r"}}`} {
			method := "completion/complete"
			if strings.HasPrefix(params, `{"name"`) {
				method = "prompts/get"
			}
			got, err := s.Request(t.Context(), peer.Request{Method: method, Params: json.RawMessage(params)})
			if err != nil || string(got) != `"`+owner+` `+method+`"` {
				t.Errorf("%s %s gives %s, %v", when, params, got, err)
			}
		}
	}
	apply(s, "b")
	check("alone", "b")
	apply(s, "a", "b")
	check("beside another", "b")
	apply(s, "a", "b")
	if n := strings.Count(log.String(), "is not served"); n != 4 {
		t.Errorf("%d lines are logged of four sorts:\n%s", n, log.String())
	}
	problems := s.Problems()
	if len(problems) != 4 {
		t.Errorf("%d problems of four sorts: %v", len(problems), problems)
	}
	for _, p := range problems {
		if text := p.Err.Error(); p.Tool != "a" || p.Severity != manifest.Warning || !strings.Contains(text, " of a ") || !strings.Contains(text, ": b ") {
			t.Errorf("problem of %s: %s", p.Tool, text)
		}
	}
	apply(s, "a")
	check("when the other is gone", "a")
	apply(s, "a", "b")
	check("when it is back", "b")
	all := *b.Offers()
	b.offer(peer.Offers{Known: true, Silent: true})
	s.Refresh()
	check("when the other has failed before it said anything", "a")
	b.offer(all)
	s.Refresh()
	check("when it has said it again", "b")
	b.offer(peer.Offers{Known: true, Reads: true})
	s.Refresh()
	check("when the other does not offer it any more", "a")
	b.offer(peer.Offers{Known: true, Reads: true, Completes: true, Tools: listed("shared"), Resources: resources("file:///r"), Templates: templates("note:///{id}"), Prompts: []*mcp.Prompt{{Name: "p"}}})
	s.Refresh()
	check("when the other offers it again", "a")
}

// SPEC M7 and N2: what an installed package offers is never served in place of what one of the user's own offers: not if its
// name sorts first, not if it was first, and not if the name is rather its own.
func TestM7TheUsersOwnComeFirst(t *testing.T) {
	peers := map[string]supervisor.Provider{}
	for _, name := range []string{"aaa", "solo"} {
		peers[name] = newFakePeer(name, peer.Offers{
			Known: true, Reads: true, Tools: listed("send", "aaa__send"), Resources: resources("file:///r"), Prompts: []*mcp.Prompt{{Name: "p"}},
		})
	}
	s := supervisor.New(supervisor.Options{
		Build: map[manifest.Kind]supervisor.Build{manifest.Capsule: func(t manifest.Tool) (supervisor.Provider, error) { return peers[t.Name], nil }},
		Log:   slog.New(slog.DiscardHandler),
	})
	installed, own := capsuleTool("aaa", ""), capsuleTool("solo", "")
	installed.Run.Setup.Package = "aaa h1:x"
	check := func(owner string) {
		t.Helper()
		reads(t, s, map[string]string{"file:///r": owner})
		for _, name := range []string{"send", "aaa__send"} {
			if got := raw(t, s, name); got != `"`+owner+" "+name+`"` {
				t.Errorf("%s gives %s, want the answer of %s", name, got, owner)
			}
		}
		if got, err := s.Request(t.Context(), peer.Request{Method: "prompts/get", Params: json.RawMessage(`{"name":"p"}`)}); err != nil || string(got) != `"`+owner+` prompts/get"` {
			t.Errorf("the prompt gives %s, %v, want that of %s", got, err, owner)
		}
	}
	s.Apply([]manifest.Tool{installed, own})
	check("solo")
	s.Apply([]manifest.Tool{installed})
	check("aaa")
	s.Apply([]manifest.Tool{installed, own})
	check("solo")
}

// SPEC M7: a resource that a template of one of the user's own matches is read from that one, also if an installed package
// lists it, or has a template that matches it better. A template of a package that begins with no scheme is not served.
func TestM7ATemplateOfTheUsersOwnComesFirst(t *testing.T) {
	aaa := newFakePeer("aaa", peer.Offers{
		Known: true, Reads: true, Resources: resources("notes://7", "deep://1/2", "other://1", "{x"),
		Templates: templates("notes://8{+x}", "deep://{+x}", "{+any}", "not{+any}", "{scheme}://x"),
	})
	solo := newFakePeer("solo", peer.Offers{Known: true, Reads: true, Resources: resources("notes://home"), Templates: templates("notes://{id}", "deep://{a}/{b}")})
	s := peers(map[string]*fakePeer{"aaa": aaa, "solo": solo})
	installed := capsuleTool("aaa", "")
	installed.Run.Setup.Package = "aaa h1:x"
	s.Apply([]manifest.Tool{installed, capsuleTool("solo", "")})
	reads(t, s, map[string]string{
		"notes://7": "solo", "notes://8x": "solo", "notes://home": "solo", "deep://1/2": "solo", "deep://1/2/3": "aaa", "other://1": "aaa",
	})
	for _, uri := range []string{"file:///etc/passwd", "nothing://x", "noted://x"} {
		if p, _ := s.Catalog().Holder(uri); p != nil {
			t.Errorf("%s is read from %v", uri, p)
		}
	}
	var uris, problems []string
	for _, r := range s.Catalog().Resources {
		uris = append(uris, r.URI)
	}
	if want := []string{"notes://home", "other://1", "{x"}; !slices.Equal(uris, want) {
		t.Errorf("listed are %q, want %q", uris, want)
	}
	for _, p := range s.Problems() {
		problems = append(problems, p.Err.Error())
	}
	if len(problems) != 1 || !strings.Contains(problems[0], `resource "notes://7" of aaa is not served, and 1 more: solo`) {
		t.Errorf("what is not served is told as %q", problems)
	}
	s.Apply([]manifest.Tool{installed})
	reads(t, s, map[string]string{"notes://7": "aaa", "deep://1/2": "aaa"})
}

// SPEC D7a: when a peer that was given up is about to say what it offers, there is something to wait for at once, until
// a catalog has it.
func TestD7aACatalogIsNotKnownBeforeItIsMade(t *testing.T) {
	a := newFakePeer("a", peer.Offers{Known: true, Silent: true})
	s := supervisor.New(supervisor.Options{
		Log:   slog.New(slog.DiscardHandler),
		Build: map[manifest.Kind]supervisor.Build{manifest.Capsule: func(manifest.Tool) (supervisor.Provider, error) { return a, nil }},
	})
	apply(s, "a")
	if !s.Catalog().Known() {
		t.Error("a peer is waited for that was given up")
	}
	for _, next := range []peer.Offers{{}, {Known: true, Tools: listed("one")}} {
		a.offer(next)
		if s.Catalog().Known() {
			t.Errorf("after %+v nothing is waited for", next)
		}
	}
	s.Refresh()
	if c := s.Catalog(); !c.Known() || c.Of("one") != "a" {
		t.Errorf("the catalog is known: %t, and has %v", c.Known(), c.Tools)
	}
}

// SPEC N2: who offered something first does so after a restart of Orla too, also if another
// one that offers the same came meanwhile, and said so first.
func TestN2NoTakeoverByARestart(t *testing.T) {
	offers := peer.Offers{Known: true, Reads: true, Completes: true, Tools: listed("shared"), Resources: resources("file:///r"), Templates: templates("note:///{id}")}
	file := filepath.Join(t.TempDir(), "state", "claims.json")
	begin := func(a, b *fakePeer, names ...string) (s *supervisor.Supervisor, end func()) {
		s = supervisor.New(supervisor.Options{
			Build: map[manifest.Kind]supervisor.Build{
				manifest.Capsule: func(t manifest.Tool) (supervisor.Provider, error) {
					return map[string]supervisor.Provider{"a": a, "b": b}[t.Name], nil
				},
			},
			ClaimFile: file,
			Log:       slog.New(slog.DiscardHandler),
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Serve(ctx) }()
		apply(s, names...)
		return s, func() {
			cancel()
			<-done //nolint:errcheck // it is that of the context
		}
	}
	_, end := begin(newFakePeer("a", peer.Offers{Known: true}), newFakePeer("b", offers), "b")
	testkit.Eventually(t, "it is kept", func() bool { _, err := os.Stat(file); return err == nil })
	end()
	b := newFakePeer("b", peer.Offers{})
	s, end := begin(newFakePeer("a", offers), b, "a", "b")
	reads(t, s, map[string]string{"file:///r": "a", "note:///1": "a"}) // b has not said anything yet
	b.offer(offers)
	s.Refresh()
	reads(t, s, map[string]string{"file:///r": "b", "note:///1": "b"})
	if got := raw(t, s, "shared"); got != `"b shared"` {
		t.Errorf("the tool gives %s", got)
	}
	end()
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, end = begin(newFakePeer("a", offers), newFakePeer("b", offers), "a", "b")
	defer end()
	reads(t, s, map[string]string{"file:///r": "a"}) // nobody knows any more
}

// SPEC N2: who was first stays so after a restart, however much another one offers that came later: what nobody remembers for want
// of room is of who offers most.
func TestN2NoTakeoverByMany(t *testing.T) {
	needs.Time(t, "offers thousands of resources")
	const others = 12_000
	file := filepath.Join(t.TempDir(), "claims.json")
	first := peer.Offers{Known: true, Reads: true, Resources: resources("file:///r")}
	uris := []string{"file:///r"}
	for i := range others {
		uris = append(uris, fmt.Sprintf("file:///%d/%s", i, strings.Repeat("<", 1500)))
	}
	many := peer.Offers{Known: true, Reads: true, Resources: resources(uris...)}
	begin := func(names ...string) (s *supervisor.Supervisor, b *fakePeer, end func()) {
		peers := map[string]*fakePeer{"a": newFakePeer("a", many), "b": newFakePeer("b", peer.Offers{})}
		s = supervisor.New(supervisor.Options{
			Build:     map[manifest.Kind]supervisor.Build{manifest.Capsule: func(t manifest.Tool) (supervisor.Provider, error) { return peers[t.Name], nil }},
			ClaimFile: file,
			Log:       slog.New(slog.DiscardHandler),
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Serve(ctx) }()
		apply(s, names...)
		return s, peers["b"], func() {
			cancel()
			<-done //nolint:errcheck // it is that of the context
		}
	}
	s, b, end := begin("b")
	b.offer(first)
	s.Refresh()
	apply(s, "a", "b")
	reads(t, s, map[string]string{"file:///r": "b"})
	end()
	for range 2 {
		s, b, end = begin("a", "b")
		apply(s, "a", "b")
		b.offer(first)
		s.Refresh()
		reads(t, s, map[string]string{"file:///r": "b"})
		end()
	}
}

// SPEC N2: a tool has the name of its manifest, whoever offers that name and since when.
func TestN2ANameBelongsToItsManifest(t *testing.T) {
	a := newFakePeer("a", peer.Offers{Known: true, Tools: listed("w", "w__get")})
	w := newFakePeer("w", peer.Offers{Known: true, Tools: listed("w", "w__get")})
	s := peers(map[string]*fakePeer{"a": a, "w": w})
	apply(s, "a")
	if got := raw(t, s, "w"); got != `"a w"` {
		t.Errorf("alone it gives %s", got)
	}
	apply(s, "a", "w")
	for _, tool := range []string{"w", "w__get"} {
		if got := raw(t, s, tool); got != `"w `+tool+`"` {
			t.Errorf("%s gives %s", tool, got)
		}
	}
}

// SPEC N2: what is listed comes before templates, and of these the most specific serves.
func TestN2TheMostSpecificTemplateServes(t *testing.T) {
	s := peers(map[string]*fakePeer{
		"a": newFakePeer("a", reading(nil, "{+all}", "note:///{a}{b}", "orla://answers/{id}")),
		"b": newFakePeer("b", reading(resources("note:///listed"), "note:///deep/{id}", "file:///{+path}")),
		"c": newFakePeer("c", reading(resources("orla://answers/1", "ORLA:x"), "note:///deep/{id}/end", "note:///{+rest}")),
	})
	apply(s, "a", "b", "c")
	reads(t, s, map[string]string{
		"note:///listed":     "b",
		"note:///deep/1":     "b",
		"note:///deep/1/end": "c",
		"note:///1":          "a",
		"note:///x/y":        "c",
		"file:///etc/passwd": "b",
		"other:x":            "a",
		"orla://answers/1":   "",
		"orla://answers/2":   "",
		"ORLA:x":             "",
	})
	for _, r := range s.Catalog().Resources {
		if peer.IsOwn(r.URI) {
			t.Errorf("%s is listed", r.URI)
		}
	}
	for _, r := range s.Catalog().Templates {
		if peer.IsOwn(r.URITemplate) {
			t.Errorf("%s is listed", r.URITemplate)
		}
	}
}

// SPEC N2: what nobody lists is asked of nobody, unless only one can have it.
func TestN2AnUnlistedURI(t *testing.T) {
	one, two := newFakePeer("one", reading(resources("a:1"))), newFakePeer("two", reading(nil))
	tools := newFakePeer("tools", peer.Offers{Known: true, Tools: listed("tools")})
	s := peers(map[string]*fakePeer{"one": one, "two": two, "tools": tools})
	apply(s, "one", "tools")
	reads(t, s, map[string]string{"b:1": "one"})
	apply(s, "one", "tools", "two")
	reads(t, s, map[string]string{"a:1": "one", "b:1": "", "a:2": "one", "A:2": "one"})
	if n := two.requests.Load(); n != 0 {
		t.Errorf("another one was asked %d times", n)
	}
}

// SPEC N2: only the owner of a resource says that it was updated.
func TestN2AnUpdateOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newFakePeer("a", reading(resources("a:1"))), newFakePeer("b", reading(resources("b:1")))
		s := peers(map[string]*fakePeer{"a": a, "b": b})
		go func() { _ = s.Serve(t.Context()) }()
		apply(s, "a", "b")
		synctest.Wait()
		a.updates <- "b:1"
		a.updates <- "c:1"
		a.updates <- "orla://answers/1"
		a.updates <- "a:1"
		b.updates <- "b:1"
		synctest.Wait()
		for range 2 {
			if uri := <-s.Updated(); uri != "a:1" && uri != "b:1" {
				t.Errorf("%s was updated", uri)
			}
		}
		select {
		case uri := <-s.Updated():
			t.Errorf("%s was updated too", uri)
		default:
		}
	})
}

// A link in a tool's answer may lead to a resource that no list has: it is its peer's
// whose all other resources of that authority are. Where there are several, it is nobody's.
func TestN2AnUnlistedURIOfAnAuthority(t *testing.T) {
	one := newFakePeer("one", reading(resources("demo://r/1")))
	two := newFakePeer("two", reading(resources("file:///2")))
	s := peers(map[string]*fakePeer{"one": one, "two": two, "three": newFakePeer("three", reading(resources("demo://r/3")))})
	apply(s, "one", "two")
	reads(t, s, map[string]string{"demo://r/new": "one", "DEMO://r/new": "one", "file:///new": "two", "demo://other/1": "", "demo:": "", "x": ""})
	apply(s, "one", "two", "three")
	reads(t, s, map[string]string{"demo://r/new": "", "demo://r/1": "one", "demo://r/3": "three", "file:///new": "two"})
}
