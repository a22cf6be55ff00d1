package capsule_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/testing/capsuletest"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/manifest"
)

// listing makes the hello of a capsule list its tools, and gives its start time enough.
var listing = capsuletest.Set("CAPS", "tools")

// byHandshake has no hello: initialize is all the readiness there is.
func byHandshake(tool *manifest.Tool) { tool.Runtime.Handshake = manifest.HandshakeMCP }

// known waits until the capsule's offers are what they will be.
func (l *living) known() *peer.Offers {
	l.t.Helper()
	eventually(l.t, "its tools are known", func() bool { return l.Offers().Known })
	return l.Offers()
}

func names(tools []*mcp.Tool) (names []string) {
	for _, tool := range tools {
		names = append(names, tool.Name)
	}
	return names
}

// oneTool checks that the capsule is one tool of that name, which works.
func (l *living) oneTool(name string) {
	l.t.Helper()
	l.known()
	eventually(l.t, fmt.Sprintf("it offers %q alone", name), func() bool {
		return slices.Equal(names(l.Offers().Tools), []string{name}) // late on a busy machine, but in the end
	})
	res, err := l.result(l.t.Context(), name, capsuletest.Args{}.JSON())
	if err != nil {
		l.t.Fatal(err)
	}
	if got := capsuletest.Read(l.t, textOf(l.t, res)); got.Tool != name {
		l.t.Errorf("the capsule was asked for %q, want %q", got.Tool, name)
	}
}

// SPEC D7: silence, refusal and nonsense mean that it is one tool.
func TestIsOneToolWhenItCannotSayWhatItOffers(t *testing.T) {
	needs.Time(t, "waits for lists that never come")
	for script, name := range map[string]string{
		"list-silent": "capsule", "list-refused": "capsule", "list-nonsense": "capsule",
		// These know no MCP but its lists.
		"list-late": "echo", "initialize-silent": "echo", "initialize-refused": "echo", "initialize-nonsense": "echo",
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel() // silence takes its time
			live(t, script, listing).oneTool(name)
		})
	}
	for _, result := range []string{"null", "[]", `"tools"`, "{}", `{"tools":null}`, `{"tools":[]}`, `{"tools":[42]}`} {
		t.Run(result, func(t *testing.T) {
			t.Parallel()
			live(t, "list-nonsense", listing, capsuletest.Set("RESULT", result)).oneTool("capsule")
		})
	}
	for _, result := range []string{"null", "[]", "{}", `{"protocolVersion":42}`, `{"protocolVersion":"1999-01-01","capabilities":"all"}`} {
		t.Run("initialize "+result, func(t *testing.T) {
			t.Parallel()
			l := live(t, "initialize-nonsense", listing, capsuletest.Set("RESULT", result))
			l.known()
			if n := l.log.count(`"to":"CRASHED"`); n > 0 {
				t.Errorf("it crashed %d times", n)
			}
		})
	}
}

// SPEC S1: resource templates beyond the bounds are left out, and the rest is served.
func TestS1TemplatesBeyondTheBounds(t *testing.T) {
	template := func(uri string) string { return fmt.Sprintf(`{"uriTemplate":%q,"name":"t"}`, uri) }
	all := []string{template("a:" + strings.Repeat("{a}", 1002)), template("{a" + strings.Repeat(",a", 1001) + "}"), template("{"), template("b:" + strings.Repeat("x", 2000))}
	for i := range 300 {
		all = append(all, template(fmt.Sprintf("a:%d/{x}", i)))
	}
	result := `{"tools":[],"resources":[],"resourceTemplates":[` + strings.Join(all, ",") + `]}`
	l := live(t, "list-nonsense", capsuletest.Set("CAPS", "tools,resources"), capsuletest.Set("RESULT", result))
	if n := len(l.known().Templates); n != 252 {
		t.Errorf("%d templates are served", n)
	}
	for text, want := range map[string]int{"a capsule lists more than Orla serves": 1, "does not have MCP's form": 1} {
		if n := l.log.count(text); n != want {
			t.Errorf("%d lines say %q, want %d", n, text, want)
		}
	}
}

// SPEC D8: without a hello, the same are failures of the start.
func TestAnswersInitializeBadly(t *testing.T) {
	for _, script := range []string{"initialize-silent", "initialize-refused", "initialize-nonsense"} {
		t.Run(script, func(t *testing.T) {
			l := live(t, script, byHandshake, startsOnce, capsuletest.Set("HELLO", "no"), startupTimeout(500*time.Millisecond))
			l.await("STOPPED")
			if reason := l.Life().Reason; !strings.Contains(reason, "initialize") {
				t.Errorf("the reason is %q, want initialize in it", reason)
			}
		})
	}
	t.Run("exits", func(t *testing.T) {
		l := live(t, "exits-starting", byHandshake, startsOnce, capsuletest.Set("STDERR", "no such package"), capsuletest.SetInt("CODE", 2))
		l.await("STOPPED")
		_, err := l.ask(capsuletest.Args{})
		wantFault(t, err, fault.StartFailed, "STOPPED", "code 2", "no such package")
	})
}

// SPEC D8: an MCP server that never heard of Orla is served unchanged.
func TestServesAnMCPServer(t *testing.T) {
	l := live(t, "mcp", byHandshake, capsuletest.Set("TOOLS", "one,two"))
	offers := l.known()
	if got := names(offers.Tools); !slices.Equal(got, []string{"capsule__one", "capsule__two"}) {
		t.Errorf("it offers %q", got)
	}
	if len(offers.Resources) != 1 || len(offers.Templates) != 1 || len(offers.Prompts) != 1 ||
		!offers.Reads || !offers.Completes || !offers.Logs || !offers.Talks {
		t.Errorf("it offers %+v", offers)
	}
	res, err := l.result(t.Context(), "capsule__two", capsuletest.Args{}.JSON())
	if err != nil {
		t.Fatal(err)
	}
	if got := capsuletest.Read(t, textOf(t, res)); got.Tool != "two" {
		t.Errorf("the server was asked for %q, want its own name for it", got.Tool)
	}
}

// wellNamed checks that clients accept the names, and that each is there once.
func wellNamed(t *testing.T, tools []*mcp.Tool) {
	t.Helper()
	good := regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)
	seen := map[string]bool{}
	for _, tool := range tools {
		if !good.MatchString(tool.Name) || seen[tool.Name] {
			t.Errorf("the name %q is bad, or there twice", tool.Name)
		}
		seen[tool.Name] = true
	}
}

// SPEC D7, G5b: a bad schema keeps no other tool from being served. That it goes
// no further is seen to by whoever checks the arguments of calls.
func TestListsBadSchemas(t *testing.T) {
	l := live(t, "list-bad-schemas", listing)
	tools := l.known().Tools
	wellNamed(t, tools)
	if !slices.Contains(names(tools), "capsule__good") {
		t.Errorf("the good one is not among %q", names(tools))
	}
	res, err := l.result(t.Context(), "capsule__good", capsuletest.Args{}.JSON())
	if err != nil {
		t.Fatal(err)
	}
	capsuletest.Read(t, textOf(t, res))
}

// SPEC D7: each name is there once, and as clients accept it.
func TestListsDuplicatesAndBadNames(t *testing.T) {
	l := live(t, "list-duplicates", listing)
	tools := l.known().Tools
	wellNamed(t, tools)
	got := names(tools)
	if !slices.Contains(got, "capsule__twice") || !slices.Contains(got, "capsule__once") {
		t.Errorf("it offers %q", got)
	}
}

// SPEC D7: many are served like one.
func TestLists300Tools(t *testing.T) {
	for _, script := range []string{"list-many", "list-pages"} {
		l := live(t, script, listing)
		tools := l.known().Tools
		wellNamed(t, tools)
		if len(tools) != 300 || !slices.IsSorted(names(tools)) {
			t.Errorf("%s: it offers %d tools, sorted %t, want 300", script, len(tools), slices.IsSorted(names(tools)))
		}
	}
}

// SPEC D7: names over 64 characters get a hash that is the same every time.
func TestListsLongNames(t *testing.T) {
	first := names(live(t, "list-long-names", listing).known().Tools)
	l := live(t, "list-long-names", listing)
	wellNamed(t, l.known().Tools)
	if got := names(l.Offers().Tools); !slices.Equal(got, first) || len(got) != 6 {
		t.Errorf("it offers %q, and %q before", got, first)
	}
	for _, name := range first {
		res, err := l.result(t.Context(), name, capsuletest.Args{}.JSON())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		capsuletest.Read(t, textOf(t, res))
	}
}

// SPEC D7: a cursor that never ends does.
func TestListsPagesWithoutAnEnd(t *testing.T) {
	for _, cursor := range []string{"same", "new"} {
		t.Run(cursor, func(t *testing.T) {
			l := live(t, "list-endless", listing, capsuletest.Set("CURSOR", cursor))
			tools := l.known().Tools
			wellNamed(t, tools)
			if len(tools) == 0 {
				t.Error("it offers nothing")
			}
			if l.Life().State != "READY" {
				t.Errorf("it is %s", l.Life().State)
			}
			l.stop()
		})
	}
}

// SPEC S2: a cursor is copied and kept for each page, so that a long one is refused.
func TestS2ACursorIsBounded(t *testing.T) {
	l := live(t, "list-endless", listing, capsuletest.Set("CURSOR", "long"))
	if tools := names(l.known().Tools); len(tools) > 1 {
		t.Errorf("it offers %d tools of pages with cursors of 100 KB, want those of the first at most", len(tools))
	}
	l.stop()
}

// SPEC S2: what is listed stays in memory, decoded, where small values take many times
// their bytes: lists of 7.5 MB took 350 MB each.
func TestS2TheValuesOfAListAreBounded(t *testing.T) {
	l := live(t, "list-endless", listing, capsuletest.Set("CURSOR", "values"))
	if n := len(l.known().Tools); n == 0 || n > 8 {
		t.Errorf("it offers %d tools of 50 000 values each, want 8 at most", n)
	}
	l.stop()
}

// SPEC D7, D7a: what it says later counts, also that nothing is left.
func TestChangesItsTools(t *testing.T) {
	t.Parallel()
	l := live(t, "echo", listing, capsuletest.Set("TOOLS", "a,b"))
	offers := l.known()
	change := func(call string, tools ...string) []string {
		t.Helper()
		before := l.Offers()
		if _, err := l.result(t.Context(), call, capsuletest.Args{Tools: tools}.JSON()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-before.Changed:
		case <-time.After(patience):
			t.Fatalf("its offers have not changed: %q", names(l.Offers().Tools))
		}
		return names(l.Offers().Tools)
	}
	if got := names(offers.Tools); !slices.Equal(got, []string{"capsule__a", "capsule__b"}) {
		t.Fatalf("it offers %q", got)
	}
	if got := change("capsule__a", "b", "c", "d"); !slices.Equal(got, []string{"capsule__b", "capsule__c", "capsule__d"}) {
		t.Errorf("it offers %q", got)
	}
	var many []string
	for i := range 50 {
		many = append(many, fmt.Sprintf("t%02d", i))
	}
	if got := change("capsule__b", many...); len(got) != 50 {
		t.Errorf("it offers %d tools, want 50", len(got))
	}
}

// SPEC D7: the first tool of a capsule gets another name when a second one comes, which the
// log says once.
func TestD7ARenamedToolIsTold(t *testing.T) {
	t.Parallel()
	l := live(t, "echo", listing, capsuletest.Set("TOOLS", "a"))
	call := names(l.known().Tools)[0]
	for _, tools := range [][]string{{"a", "b"}, {"a", "b", "c"}} {
		before := l.Offers()
		if _, err := l.result(t.Context(), call, capsuletest.Args{Tools: tools}.JSON()); err != nil {
			t.Fatal(err)
		}
		<-before.Changed
		call = "capsule__a"
	}
	l.stop()
	if got := strings.Count(l.log.String(), "a tool has another name now"); got != 1 {
		t.Errorf("it is told %d times", got)
	}
}

// SPEC D7: what the manifest says of its one tool is all that counts.
func TestDeclaredToolsAreNotAskedFor(t *testing.T) {
	l := live(t, "list-many", listing, func(tool *manifest.Tool) {
		tool.Runtime.Declared = true
		tool.InputSchema = json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}}}`)
	})
	l.await("READY")
	l.oneTool("capsule")
	if schema, err := json.Marshal(l.Offers().Tools[0].InputSchema); err != nil || !strings.Contains(string(schema), `"text"`) {
		t.Errorf("its schema is %s", schema)
	}
}

// SPEC D7: what a capsule offered stands while a new process of it is asked again that
// did not answer in time: nobody else gets its names meanwhile.
func TestALateListChangesNothing(t *testing.T) {
	t.Parallel() // silence takes its time
	needs.Time(t, "waits for lists that are late")
	l := live(t, "list-late", listing)
	l.oneTool("echo")
	const late, offers = "a capsule does not list what it offers", `"msg":"offers"`
	eventually(t, "its tools are known", func() bool { return l.log.has(offers, `"tools":["echo"]`) })
	before := l.log.count(offers)
	for n := 2; n <= 3; n++ {
		pid := l.Life().Pid
		l.Reload("a test")
		l.newer(pid)
		eventually(t, "a list is late again", func() bool { return l.log.count(late) == n })
	}
	if n := l.log.count(offers); n != before {
		t.Errorf("its offers changed %d times:\n%s", n-before, l.log)
	}
}
