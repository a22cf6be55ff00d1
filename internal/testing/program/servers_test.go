package program

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// listings are the questions for what a server has.
var listings = []question{asked("list", nil), asked("listResources", nil), asked("listTemplates", nil), asked("listPrompts", nil)}

// ofEverything are the questions to the reference server: every tool, resource,
// template instance and prompt, and what it refuses.
//
// trigger-url-elicitation cannot be compared: the drivers do not declare
// elicitation by URL, so that the server does not have it for them. Orla
// declares all that some client may.
var ofEverything = slices.Concat(listings, []question{
	called("echo", fields{"message": "Grüße ☃"}, 0),
	called("get-annotated-message", fields{"messageType": "error", "includeImage": true}, 0),
	called("get-annotated-message", fields{"messageType": "debug"}, 0),
	called("get-env", nil, 0),
	called("get-resource-links", fields{"count": 4}, 0),
	called("get-resource-reference", fields{"resourceType": "Blob", "resourceId": 7}, 0),
	called("get-resource-reference", fields{"resourceType": "Text", "resourceId": -1}, 0),
	called("get-structured-content", fields{"location": "Chicago"}, 0),
	called("get-sum", fields{"a": 0.1, "b": 0.2}, 0),
	called("get-tiny-image", nil, 0),
	called("gzip-file-as-resource", fields{"name": "a.gz", "data": "data:text/plain,hello", "outputType": "resource"}, 0),
	called("gzip-file-as-resource", fields{"name": "b.gz", "data": "data:text/plain,hello"}, 0),
	asked("readResource", fields{"uri": "demo://resource/session/b.gz"}),
	called("trigger-long-running-operation", fields{"duration": 0.1, "steps": 4}, 4),
	called("get-roots-list", nil, 0),
	called("trigger-sampling-request", fields{"prompt": "hello", "maxTokens": 5}, 1),
	called("trigger-elicitation-request", nil, 1),
	called("simulate-research-query", fields{"topic": "python"}, 0), // refuses calls that are not tasks

	called("echo", nil, 0),
	called("get-sum", fields{"a": "one", "b": 2}, 0),
	called("get-sum", fields{"a": 1, "b": 2, "c": 3}, 0),
	called("get-structured-content", fields{"location": "Paris"}, 0),
	called("nonexistent", nil, 0),

	asked("readResource", fields{"uri": "demo://resource/static/document/architecture.md"}),
	asked("readResource", fields{"uri": "demo://resource/static/document/extension.md"}),
	asked("readResource", fields{"uri": "demo://resource/static/document/features.md"}),
	asked("readResource", fields{"uri": "demo://resource/static/document/how-it-works.md"}),
	asked("readResource", fields{"uri": "demo://resource/static/document/instructions.md"}),
	asked("readResource", fields{"uri": "demo://resource/static/document/startup.md"}),
	asked("readResource", fields{"uri": "demo://resource/static/document/structure.md"}),
	asked("readResource", fields{"uri": "demo://resource/dynamic/text/1"}),
	asked("readResource", fields{"uri": "demo://resource/dynamic/blob/2"}),
	asked("readResource", fields{"uri": "demo://resource/dynamic/text/none"}),
	asked("readResource", fields{"uri": "demo://nothing"}),

	asked("getPrompt", fields{"name": "simple-prompt"}),
	asked("getPrompt", fields{"name": "args-prompt", "arguments": fields{"city": "Bonn", "state": "NRW"}}),
	asked("getPrompt", fields{"name": "args-prompt", "arguments": fields{"city": "Bonn"}}),
	asked("getPrompt", fields{"name": "args-prompt"}),
	asked("getPrompt", fields{"name": "completable-prompt", "arguments": fields{"department": "Sales", "name": "Eve"}}),
	asked("getPrompt", fields{"name": "resource-prompt", "arguments": fields{"resourceType": "Text", "resourceId": "3"}}),
	asked("getPrompt", fields{"name": "resource-prompt", "arguments": fields{"resourceType": "Text", "resourceId": "x"}}),
	asked("getPrompt", fields{"name": "nonexistent"}),

	asked("complete", fields{"ref": fields{"type": "ref/prompt", "name": "completable-prompt"}, "argument": fields{"name": "department", "value": "S"}}),
	asked("complete", fields{"ref": fields{"type": "ref/prompt", "name": "completable-prompt"}, "argument": fields{"name": "name", "value": ""}, "context": fields{"arguments": fields{"department": "Support"}}}),
	asked("complete", fields{"ref": fields{"type": "ref/resource", "uri": "demo://resource/dynamic/text/{resourceId}"}, "argument": fields{"name": "resourceId", "value": "12"}}),
	asked("complete", fields{"ref": fields{"type": "ref/prompt", "name": "nonexistent"}, "argument": fields{"name": "a", "value": "b"}}),

	asked("subscribe", fields{"uri": "demo://resource/dynamic/text/1"}),
	called("toggle-subscriber-updates", nil, 1),
	called("toggle-subscriber-updates", fields{}, 0),
	asked("unsubscribe", fields{"uri": "demo://resource/dynamic/text/1"}),
	called("toggle-simulated-logging", nil, 1),
	called("toggle-simulated-logging", fields{}, 0),
})

// ofFastMCP are the same for the FastMCP server.
var ofFastMCP = slices.Concat(listings, []question{
	called("weather", fields{"city": "Oslo"}, 0),
	called("weather", fields{"city": "Oslo", "unit": "F"}, 0),
	called("add", fields{"a": 1}, 0),
	called("pid", nil, 0),
	called("fail", fields{"reason": "rain"}, 0),
	called("mixed", nil, 0),
	called("picture", nil, 0),
	called("count", fields{"to": 3}, 7),
	called("book", nil, 1),
	called("compose", fields{"topic": "rain"}, 1),
	called("roots", nil, 0),
	called("weather", nil, 0),
	called("weather", fields{"city": "Oslo", "unit": "K"}, 0),
	called("nonexistent", nil, 0),
	asked("readResource", fields{"uri": "almanac://moon"}),
	asked("readResource", fields{"uri": "almanac://tide"}),
	asked("readResource", fields{"uri": "almanac://sun/Oslo/today"}),
	asked("readResource", fields{"uri": "almanac://nothing"}),
	asked("getPrompt", fields{"name": "greet", "arguments": fields{"name": "Ada"}}),
	asked("getPrompt", fields{"name": "greet", "arguments": fields{"name": "Ada", "style": "long"}}),
	asked("getPrompt", fields{"name": "talk", "arguments": fields{"topic": "rain"}}),
	asked("getPrompt", fields{"name": "talk"}),
	asked("getPrompt", fields{"name": "nonexistent"}),
	asked("complete", fields{"ref": fields{"type": "ref/prompt", "name": "greet"}, "argument": fields{"name": "style", "value": "l"}}),
	asked("complete", fields{"ref": fields{"type": "ref/resource", "uri": "almanac://sun/{city}/{day}"}, "argument": fields{"name": "day", "value": "B"}, "context": fields{"arguments": fields{"city": "Ulm"}}}),
})

// difference is one that there is on purpose between what a server answers and
// what Orla makes of it.
type difference struct {
	line *regexp.Regexp
	why  string
}

// known are all of them (docs/decisions/0013).
var known = []difference{
	{regexp.MustCompile(`^/hello/(server/(name|version)|era|protocolVersion|listening) is `), "a client is connected with Orla"},
	{regexp.MustCompile(`^/hello/capabilities/\S* is (true|new)`), "Orla declares what some capsule may have, now or later"},
	{regexp.MustCompile(`^/hello/capabilities/(tasks|experimental) is missing`), "tasks and experiments do not pass"},
	{regexp.MustCompile(`^/hello/instructions is missing`), "instructions are of one server, and Orla is many"},

	{regexp.MustCompile(`^/list/result/tools/trigger-url-elicitation is new`), "Orla declares what some client may have"},
	{regexp.MustCompile(`^/list/result/tools/\S+/execution is missing`), "it says how a tool is called as a task"},
	{regexp.MustCompile(`^/list/result/tools/\S+/annotations/idempotentHint is new: false`), "the SDK writes out what is so by default"},
	{regexp.MustCompile(`^/listPrompts/.*/required is missing: false`), "the SDK leaves out what is so by default"},
	{regexp.MustCompile(`^/listResources/.*/description is missing: ""`), "the SDK leaves out what is empty"},

	{regexp.MustCompile(`^/call .*/result/_meta is new: .*"tool_code":`), "a failed call says why (G5)"},
	{regexp.MustCompile(`^/call .*/result/content/0/text is "arguments: `), "Orla checks arguments itself (G4)"},
	{regexp.MustCompile(`^/call nonexistent `), "an unknown tool is a JSON-RPC error (G5)"},
	{regexp.MustCompile(`^/(getPrompt|readResource) .*(nonexistent|//nothing).*/error/`), "what nobody has is refused by Orla, in its words"},
	{regexp.MustCompile(`^/complete .*nonexistent`), "what nobody has is completed by nothing"},
	{regexp.MustCompile(`^/getPrompt .*/error/code is -32603, directly (0|"sdk")`), "the code 0 is none, to the SDK"},
	{regexp.MustCompile(`event .*Fulfilling input required.* is new`), "the SDK of the client counts its own rounds"},
}

// wayOf returns the way to drive an MCP server that has a name such as
// "typescript legacy http". Without its SDK the test is skipped.
func wayOf(t *testing.T, name string) sdk {
	t.Helper()
	for _, s := range sdks(t) {
		if s.name+" "+s.era+" "+s.via == name {
			return s
		}
	}
	needs.Missing(t, "there is no %s client here", name)
	return sdk{}
}

// directly starts a server without Orla and asks it questions.
func (s offShelf) directly(t *testing.T, way sdk, questions []question) map[string]any {
	t.Helper()
	w := attend(t, way, s.dir, append([]string{"--stdio", "--"}, s.argv...)...)
	if s.asks {
		testkit.Eventually(t, "the server has asked for the roots", func() bool { return w.happened("method", "roots/list") == 1 })
	}
	got := w.ask(questions)
	got["hello"] = lasting(w.hello)
	return got
}

// complete wants a question to everything that a server lists.
func complete(t *testing.T, questions []question, got map[string]any) {
	t.Helper()
	for op, key := range map[string]string{"call": "name", "readResource": "uri", "getPrompt": "name"} {
		from := map[string][2]string{"call": {"list", "tools"}, "readResource": {"listResources", "resources"}, "getPrompt": {"listPrompts", "prompts"}}[op]
		answer, _ := got[from[0]].(map[string]any)
		result, _ := answer["result"].(map[string]any)
		listed, _ := result[from[1]].(map[string]any)
		if len(listed) == 0 {
			t.Errorf("it lists no %s: %v", from[1], answer)
		}
		for name := range listed {
			asks := func(q question) bool { return q.op == op && q.fields[key] == name }
			if !slices.ContainsFunc(questions, asks) && name != "grow" { // which has a test of its own
				t.Errorf("there is no %s of %s among the questions", op, name)
			}
		}
	}
}

// SPEC D7, D8, G4, G5: two servers as they come answer behind one Orla as each
// does by itself, to the official clients of both eras.
func TestServersAnswerTheSame(t *testing.T) {
	t.Parallel()
	tools, all := servers(t)
	// One for each client: a server of before 2026-07-28 that has served two cannot tell
	// whom its log messages and questions are for (docs/decisions/0030).
	orla := func(t *testing.T) string {
		t.Helper()
		o := serveOrla(t, tools)
		for _, tool := range []string{"echo", "weather"} { // of each of them
			o.waitListed(tool)
		}
		return o.url
	}

	alone := map[string]map[string]any{} // by the client and the server; guarded by mu
	var mu sync.Mutex
	t.Run("directly", func(t *testing.T) {
		for client, servers := range map[string]map[string][]question{
			"typescript": {"everything": ofEverything, "fastmcp": ofFastMCP},
			"python":     {"everything": listings, "fastmcp": ofFastMCP},
		} {
			for server, questions := range servers {
				t.Run(client+"/"+server, func(t *testing.T) {
					t.Parallel()
					got := all[server].directly(t, wayOf(t, client+" legacy stdio"), questions)
					if len(questions) > len(listings) {
						complete(t, questions, got)
					}
					mu.Lock()
					defer mu.Unlock()
					alone[client+" "+server] = got
				})
			}
		}
	})
	met, ran := make([]bool, len(known)), 0 // guarded by mu as well
	behind := func(t *testing.T, server string, questions []question, ways ...string) {
		for _, way := range ways {
			t.Run(server+"/"+way, func(t *testing.T) {
				t.Parallel()
				s := wayOf(t, way)
				target := []string{"--stdio", "--", orlaBinary(t), "--stdio", "--tools-dir", tools}
				if s.via != "stdio" {
					target = []string{"--http", orla(t)}
				}
				w := attend(t, s, t.TempDir(), target...)
				got := w.ask(questions)
				got["hello"] = lasting(w.hello)
				mu.Lock()
				defer mu.Unlock()
				ran++
				want := maps.Clone(alone[s.name+" "+server])
				if want == nil {
					t.Fatal("it did not answer by itself")
				}
				for _, q := range listings { // Orla lists what both have
					want[q.name] = merged(alone[s.name+" everything"][q.name], alone[s.name+" fastmcp"][q.name])
				}
				for _, line := range differences(want, got, "") {
					i := slices.IndexFunc(known, func(d difference) bool { return d.line.MatchString(line) })
					if i < 0 {
						t.Error(line)
						continue
					}
					met[i] = true
				}
			})
		}
	}
	t.Run("behind", func(t *testing.T) {
		behind(t, "everything", ofEverything, "typescript legacy http", "typescript modern http")
		behind(t, "fastmcp", ofFastMCP, "typescript modern http", "python modern http")
		if needs.More() { // TestForeignClients has these clients as well
			behind(t, "everything", ofEverything, "typescript legacy stdio")
			behind(t, "fastmcp", ofFastMCP, "python legacy http")
		}
	})
	for i, d := range known {
		if !met[i] && (ran == 6 || ran == 4 && !needs.More()) { // nothing was left out
			t.Errorf("nothing differs any more because %s: %s", d.why, d.line)
		}
	}
}

// merged is what two answers to the same question list.
func merged(a, b any) any {
	first, ok := a.(map[string]any)
	second, _ := b.(map[string]any)
	if !ok {
		return a
	}
	both := maps.Clone(first)
	for key, value := range second {
		if mine, shared := both[key]; shared {
			value = merged(mine, value)
		}
		both[key] = value
	}
	return both
}

// SPEC D7, D9, E1, G3: the FastMCP server grows, is saved, and is killed, and
// the sessions with Orla go on.
func TestServerChangesUnderOpenSessions(t *testing.T) {
	t.Parallel()
	_, all := servers(t)
	tools := t.TempDir()
	dir := filepath.Join(tools, "fastmcp")
	text := map[string]string{}
	for _, name := range []string{"server.py", "run.sh", "tool.yaml"} {
		raw, err := os.ReadFile(filepath.Join(all["fastmcp"].dir, name))
		if err != nil {
			t.Fatal(err)
		}
		text[name] = string(raw)
		testkit.WriteTool(t, dir, name, text[name])
	}
	// A call waits for the next process, which a busy machine takes long to start.
	o := serveOrla(t, tools, "MCP_PYTHON="+filepath.Join(all["fastmcp"].dir, ".venv", "bin", "python"), "ORLA_QUEUE_TIMEOUT=60s", "ORLA_TIMEOUT=60s")
	states := o.follow()
	var clients []*witness
	for _, s := range sdks(t) {
		if s.via == "http" && (s.name == "typescript" || s.name == "python" && s.era == "modern") {
			clients = append(clients, attend(t, s, t.TempDir(), "--http", o.url))
		}
	}
	each := func(do func(*witness)) {
		for _, c := range clients {
			do(c)
		}
	}
	// changed waits until a client has heard of it that the tools are others now.
	changed := func(c *witness, there, gone string) {
		if a := c.do("waitListChanged", fields{"timeoutMs": testkit.Patience.Milliseconds()}); !a.OK {
			t.Errorf("nobody said that %s is there: %+v", there, a)
		}
		testkit.Eventually(t, there+" is listed", func() bool { return slices.Contains(c.names(), there) })
		if slices.Contains(c.names(), gone) {
			t.Errorf("%s is still listed", gone)
		}
	}
	// says wants every client to be answered by one process, and returns that.
	says := func(word string) (pid int) {
		each(func(c *witness) {
			var now int
			var said string
			answer := c.call("pid", nil)
			if _, err := fmt.Sscanf(answer.Content[0].Text, "%d says %s", &now, &said); err != nil || said != word {
				t.Errorf("it answers %+v (%v), want %s", answer, err, word)
			}
			if pid != 0 && now != pid {
				t.Errorf("process %d answers, and process %d", pid, now)
			}
			pid = now
		})
		return pid
	}
	ready := states.next("state", is("fastmcp", "READY"))
	first := says("ONE")
	if pid(ready) != first {
		t.Errorf("process %d answers, but %d is READY", first, pid(ready))
	}

	clients[0].call("grow", fields{"name": "grown"})
	each(func(c *witness) {
		changed(c, "grown", "")
		if got := c.call("grown", nil).Content[0].Text; got != "grown" {
			t.Errorf("the grown tool says %q", got)
		}
		if a := c.do("readResource", fields{"uri": "almanac://grown/grown"}); !a.OK {
			t.Errorf("the grown resource: %+v", a)
		}
		if a := c.do("getPrompt", fields{"name": "grown"}); !a.OK {
			t.Errorf("the grown prompt: %+v", a)
		}
		for _, what := range []string{"resources", "prompts"} {
			testkit.Eventually(t, "it is said that there are other "+what, func() bool { return c.happened("what", what) > 0 })
		}
	})

	testkit.WriteTool(t, dir, "server.py", strings.NewReplacer("says ONE", "says TWO", "def picture", "def painting").Replace(text["server.py"]))
	states.next("state", is("fastmcp", "RELOADING", "server.py"))
	second := says("TWO")
	if second == first || alive(first) {
		t.Errorf("process %d answers after %d, which lives: %t", second, first, alive(first))
	}
	each(func(c *witness) { changed(c, "painting", "picture") })

	if err := syscall.Kill(second, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	states.next("state", is("fastmcp", "CRASHED", "kill"))
	if third := says("TWO"); third == second {
		t.Errorf("process %d answers after it was killed", third)
	}
}
