package program

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/testing/costtest"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// repeated joins n texts by commas.
func repeated(n int, text func(i int) string) string {
	var out strings.Builder
	for i := range n {
		if i > 0 {
			out.WriteByte(',')
		}
		out.WriteString(text(i))
	}
	return out.String()
}

// hostileMain is an MCP server whose answers, lists and messages are as large as it is asked
// for: its tools do what the argument "do" names, n times.
const hostileMain = `#!PYTHON
import json, sys, time

now = {"tools": 0, "schemas": 0, "templates": 0, "prompts": 0}
fresh = 0  # no two lists have a schema in common: one that is known costs nothing


def say(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")


def keep_up(i):
    """Gives the client time to read: what is more than it keeps up with is left out, and costs less."""
    if i % 4 == 3:
        sys.stdout.flush()
        time.sleep(0.001)


def tools():
    yield {"name": "act", "inputSchema": {"type": "object"}}
    yield {"name": "checked", "inputSchema": FILTER}
    yield {"name": "fits", "inputSchema": {"type": "object"},
           "outputSchema": {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}}}}
    for i in range(now["tools"]):
        yield {"name": "t%d" % i, "inputSchema": {"type": "object"}}
    for i in range(now["schemas"]):
        yield {"name": "s%d" % i, "inputSchema": {"type": "object", "properties": {"p%d" % j: {"type": "string", "maxLength": fresh + i} for j in range(10)}}}


def act(do, n, meta):
    result = {"content": []}
    if do == "meta":
        result["_meta"] = {"io.modelcontextprotocol/k%d" % i: i for i in range(n)}
    elif do == "content":
        result["content"] = [{"type": "text", "text": "x"}] * n
    elif do == "misfits":
        result["structuredContent"] = {"a": list(range(n))}
    elif do == "progress":
        for i in range(n):
            say(method="notifications/progress", params={"progressToken": meta.get("progressToken"), "progress": i})
            keep_up(i)
    elif do == "log":
        for i in range(n):
            say(method="notifications/message", params={"level": "info", "data": i})
            keep_up(i)
    elif do == "stderr":
        for i in range(n):
            sys.stderr.write("line %d\n" % i)
        sys.stderr.flush()
    elif do in now:
        global fresh
        fresh += now["schemas"]
        now[do] = n
        say(method="notifications/%s/list_changed" % {"templates": "resources", "schemas": "tools"}.get(do, do))
    return result


for line in sys.stdin:
    m = json.loads(line)
    method, params = m.get("method"), m.get("params") or {}
    if "id" not in m or method is None:
        continue
    result = {}
    if method == "initialize":
        result = {"protocolVersion": "2025-06-18", "serverInfo": {"name": "hostile", "version": "1"},
                  "capabilities": {"tools": {"listChanged": True}, "resources": {"listChanged": True, "subscribe": True},
                                   "prompts": {"listChanged": True}, "logging": {}}}
    elif method == "tools/list":
        result = {"tools": list(tools())}
    elif method == "resources/list":
        result = {"resources": []}
    elif method == "resources/templates/list":
        result = {"resourceTemplates": [{"uriTemplate": "t%d:///{a}/{b}" % i, "name": "t%d" % i} for i in range(now["templates"])]}
    elif method == "prompts/list":
        result = {"prompts": [{"name": "p%d" % i} for i in range(now["prompts"])]}
    elif method == "resources/read":
        result = {"contents": [{"uri": params["uri"], "text": "x"}]}
    elif method == "tools/call":
        given = params.get("arguments", {})
        result = act(given.get("do"), given.get("n", 0), params.get("_meta", {}))
    elif method == "server/discover":
        say(id=m["id"], error={"code": -32601, "message": "no"})
        continue
    say(id=m["id"], result=result)
    sys.stdout.flush()
`

// filterSchema is recursive, as query languages have it.
const filterSchema = `{"type": "object", "properties": {"f": {"$ref": "#/$defs/f"}}, "$defs": {"f": {"oneOf": [
    {"type": "object", "properties": {"op": {"const": "and"}, "args": {"type": "array", "items": {"$ref": "#/$defs/f"}}}, "required": ["op", "args"]},
    {"type": "object", "properties": {"op": {"const": "or"}, "args": {"type": "array", "items": {"$ref": "#/$defs/f"}}}, "required": ["op", "args"]},
    {"type": "object", "properties": {"op": {"const": "eq"}, "value": {"type": "integer"}}, "required": ["op", "value"]}]}}}`

// s1Row is something that strangers may send more or less of.
type s1Row struct {
	name string
	n    int
	send func(s *s1Server, n int)
}

// SPEC S1: what strangers send costs the whole program at most in proportion: 2n takes
// at most three times the CPU time and the peak of memory that n takes. Clients come
// first, then what a capsule says.
func TestS1CostGrowsInProportion(t *testing.T) {
	t.Parallel()
	needs.Time(t, "measures for a while")
	member := func(i int) string { return fmt.Sprintf(`"k%d":%d`, i, i) }
	hello := func(params string) string { return rpcCall("hello", params) }
	post := func(body func(n int) string) func(*s1Server, int) {
		bodies := map[int]string{} // to make one takes longer than to send it
		return func(s *s1Server, n int) {
			if bodies[n] == "" {
				bodies[n] = body(n)
			}
			s.post(bodies[n])
		}
	}
	act := func(do string) func(*s1Server, int) {
		return func(s *s1Server, n int) { s.mustAnswer(s.post(s.act("act", do, n))) }
	}
	relist := func(what, method string) func(*s1Server, int) {
		return func(s *s1Server, n int) {
			s.mustAnswer(s.post(s.act("act", what, n)))
			s.until(n, method)
		}
	}
	eq := func(i int) string { return fmt.Sprintf(`{"op":"eq","value":%d}`, i) }
	for _, row := range []s1Row{
		{"a request's bytes", 1 << 20, post(func(n int) string { return hello(`"arguments":{` + strings.Repeat(" ", n) + `}`) })},
		{"headers", 40, func(s *s1Server, n int) {
			var headers []string
			for i := range n {
				headers = append(headers, fmt.Sprintf("X-Header-%d", i), strings.Repeat("x", 60))
			}
			for range 20 {
				s.mustAnswer(s.post(hello(`"arguments":{}`), headers...))
			}
		}},
		{"members of _meta", 250, post(func(n int) string { return hello(`"arguments":{},"_meta":{` + repeated(n, member) + `}`) })},
		{"members of _meta that are too many", 100_000, post(func(n int) string { return hello(`"arguments":{},"_meta":{` + repeated(n, member) + `}`) })},
		{"members of params", 8000, post(func(n int) string { return hello(`"arguments":{},` + repeated(n, member)) })},
		{"members of a message", 8000, post(func(n int) string {
			return `{"jsonrpc":"2.0","id":1,"method":"ping",` + repeated(n, member) + `}`
		})},
		{"depth", 20_000, post(func(n int) string {
			return hello(`"arguments":{"x":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}`)
		})},
		{"messages of a batch", 50, post(func(n int) string {
			return "[" + repeated(n, func(i int) string { return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`, i) }) + "]"
		})},
		{"messages of a batch that are too many", 50_000, post(func(n int) string {
			return "[" + repeated(n, func(i int) string { return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, i) }) + "]"
		})},
		{"depth of arguments that fit a recursive schema", 50, post(func(n int) string {
			return rpcCall("hostile__checked", `"arguments":{"f":`+strings.Repeat(`{"op":"and","args":[`, n)+eq(1)+strings.Repeat("]}", n)+`}`)
		})},
		{"arguments that fit", 2000, post(func(n int) string {
			return rpcCall("hostile__checked", `"arguments":{"f":{"op":"and","args":[`+repeated(n, eq)+`]}}`)
		})},
		{"arguments that do not fit", 2000, post(func(n int) string {
			return rpcCall("hostile__checked", `"arguments":{"f":{"op":"and","args":[`+repeated(n, func(int) string { return "1" })+`]}}`)
		})},
		{"arguments of a simple tool", 20_000, post(func(n int) string { return hello(`"arguments":{` + repeated(n, member) + `}`) })},
		{"subscriptions", 100, func(s *s1Server, n int) {
			session := s.session()
			for i := range n {
				s.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"resources/subscribe","params":{"uri":"x:///%d"}}`, i, i), "Mcp-Session-Id", session)
			}
		}},
		{"calls that wait and are cancelled", 50, func(s *s1Server, n int) {
			session := s.session()
			var calls sync.WaitGroup
			for i := range n {
				calls.Go(func() {
					s.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":"c%d","method":"tools/call","params":{"name":"sleeps","arguments":{}}}`, i), "Mcp-Session-Id", session)
				})
			}
			for i := range n {
				s.post(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c%d"}}`, i), "Mcp-Session-Id", session)
			}
			s.delete(session)
			calls.Wait()
		}},
		{"sessions", 100, func(s *s1Server, n int) {
			for range n {
				s.delete(s.session())
			}
		}},

		{"members of an answer's _meta", 10_000, act("meta")},
		{"blocks of an answer", 20_000, act("content")},
		{"misfits of an answer", 10_000, func(s *s1Server, n int) { s.post(s.act("fits", "misfits", n)) }},
		{"notifications of progress", 250, act("progress")},
		{"log messages", 250, act("log")},
		{"lines of stderr", 2000, act("stderr")},
		{"tools of a list", 300, relist("tools", "tools/list")},
		{"schemas of a list", 200, relist("schemas", "tools/list")},
		{"prompts of a list", 300, relist("prompts", "prompts/list")},
		{"templates of a list, and a read", 100, func(s *s1Server, n int) {
			relist("templates", "resources/templates/list")(s, n)
			for range 20 {
				s.post(`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"t1:///a/b"}}`)
			}
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := serveHostile(t)
			var all [2][]costtest.Cost
			var costs [2]costtest.Cost
			const most, few = 10, 5 // on a busy machine a usual round is a long time in coming
			for round := range most {
				longer := 1
				if round > few { // a longer one has more of what usually happens
					longer = 4
				}
				for i := range costs {
					if cost := s.costOf(longer, func() { row.send(s, (i+1)*row.n) }); round > 0 { // the first one warms up
						all[i] = append(all[i], cost)
						costs[i] = usual(all[i])
					}
				}
				if round > 1 && costs[1].Within(costs[0]) || round == 1 && costs[1].Clearly(costs[0]) {
					break
				}
			}
			costtest.Compare(t, row.n, costs[0], costs[1])
		})
	}
}

// usual is the median of what some rounds took: one may have a collection of garbage more than
// another, or one less.
func usual(rounds []costtest.Cost) (cost costtest.Cost) {
	cpu, bytes := make([]time.Duration, len(rounds)), make([]uint64, len(rounds))
	for i, r := range rounds {
		cpu[i], bytes[i] = r.CPU, r.Bytes
	}
	slices.Sort(cpu)
	slices.Sort(bytes)
	return costtest.Cost{CPU: cpu[len(cpu)/2], Bytes: bytes[len(bytes)/2]}
}

// SPEC S1: manifests that strangers may have written cost in proportion as well, to find,
// read and check.
func TestS1ManifestsCostInProportion(t *testing.T) {
	t.Parallel()
	needs.Time(t, "measures for a while")
	orla := orlaBinary(t)
	for _, row := range []struct {
		name  string
		n     int
		write func(dir string, n int)
	}{
		{"tools", 500, func(dir string, n int) {
			for i := range n {
				testkit.WriteTool(t, dir, fmt.Sprintf("t%d.sh", i), "#!/bin/sh\n# /// tool\n# description: x\n# ///\n")
			}
		}},
		{"unknown keys", 5000, func(dir string, n int) {
			testkit.WriteTool(t, dir, "t.sh", "#!/bin/sh\n# /// tool\n"+strings.ReplaceAll(repeated(n, func(i int) string { return fmt.Sprintf("# key%d: 1\n", i) }), ",", "")+"# ///\n")
		}},
		{"documents of a file", 300, func(dir string, n int) {
			text := strings.ReplaceAll(repeated(n, func(i int) string {
				return fmt.Sprintf("apiVersion: orloj.dev/v1\nkind: Tool\nmetadata: {name: d%d}\nspec: {endpoint: 'https://x.example/%d'}\n---\n", i, i)
			}), ",apiVersion", "apiVersion")
			testkit.WriteTool(t, dir, "all.yaml", text)
		}},
		{"properties of a schema", 400, func(dir string, n int) {
			testkit.WriteTool(t, dir, "t.sh", "#!/bin/sh\n# /// tool\n# description: x\n# mcp: {input_schema: {type: object, properties: {"+repeated(n, func(i int) string { return fmt.Sprintf("p%d: {type: string}", i) })+"}}}\n# ///\n")
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			var costs [2]costtest.Cost
			for i := range costs {
				dir := t.TempDir()
				row.write(dir, (i+1)*row.n)
				for round := range 3 {
					cmd := exec.Command(orla, "validate", "--tools-dir", dir)
					cmd.Dir = t.TempDir()
					cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
					out, err := cmd.CombinedOutput()
					if cmd.ProcessState == nil {
						t.Fatalf("%v: %s", err, out)
					}
					usage, _ := cmd.ProcessState.SysUsage().(*syscall.Rusage)
					cost := costtest.Cost{CPU: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), Bytes: uint64(usage.Maxrss) << 10}
					if round == 0 || cost.CPU < costs[i].CPU {
						costs[i] = cost
					}
				}
			}
			costtest.Compare(t, row.n, costs[0], costs[1])
		})
	}
}

// s1Server is an Orla with a simple tool, one that sleeps, and the hostile server.
type s1Server struct {
	*running
	client *http.Client
}

func serveHostile(t *testing.T) *s1Server {
	t.Helper()
	interpreter, err := python()
	if err != nil {
		t.Skipf("no python3: %v", err)
	}
	tools := t.TempDir()
	testkit.WriteTool(t, tools, "hello.sh", "#!/bin/sh\necho hello\n")
	testkit.WriteTool(t, tools, "sleeps.sh", "#!/bin/sh\nexec sleep 60\n")
	main := strings.NewReplacer("PYTHON", interpreter, "FILTER", filterSchema).Replace(hostileMain)
	testkit.WriteTool(t, tools, "hostile/main.py", main)
	testkit.WriteTool(t, tools, "hostile/tool.yaml", "name: hostile\nversion: 1.0.0\ndescription: x\nentrypoint: main.py\nruntime: {mode: capsule, handshake: mcp}\n")
	o := startCommand(t, t.TempDir(), orlaBinary(t), "--tools-dir", tools, "--port", "0", "--timeout", "5m")
	o.url, _ = o.waitLog("serving", nil)["url"].(string)
	s := &s1Server{running: o, client: &http.Client{Timeout: 4 * testkit.Patience}}
	t.Cleanup(s.client.CloseIdleConnections)
	o.waitListed("hostile__act")
	return s
}

func rpcCall(tool, params string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `",` + params + `}}`
}

// act is a call that has the hostile server do something n times.
func (s *s1Server) act(tool, do string, n int) string {
	return rpcCall("hostile__"+tool, fmt.Sprintf(`"arguments":{"do":%q,"n":%d},"_meta":{"progressToken":1}`, do, n))
}

// post sends a body, and returns how many bytes come back.
func (s *s1Server) post(body string, headers ...string) int { return len(s.ask(body, headers...)) }

// ask sends a body, and returns what comes back.
func (s *s1Server) ask(body string, headers ...string) []byte {
	req, err := http.NewRequest(http.MethodPost, s.url, strings.NewReader(body))
	if err != nil {
		panic(err) // its parts are constant
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := s.client.Do(req)
	if err != nil {
		s.t.Errorf("POST: %v", err)
		return nil
	}
	raw, _ := io.ReadAll(resp.Body) // it may be refused
	_ = resp.Body.Close()
	return raw
}

func (s *s1Server) mustAnswer(received int) {
	if received <= 0 {
		s.t.Error("there was no answer")
	}
}

// session begins a session.
func (s *s1Server) session() string {
	body := `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	req, err := http.NewRequest(http.MethodPost, s.url, strings.NewReader(body))
	if err != nil {
		panic(err) // its parts are constant
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body) // its headers say all
	_ = resp.Body.Close()
	return resp.Header.Get("Mcp-Session-Id")
}

func (s *s1Server) delete(session string) {
	req, err := http.NewRequest(http.MethodDelete, s.url, nil)
	if err != nil {
		panic(err) // its parts are constant
	}
	req.Header.Set("Mcp-Session-Id", session)
	resp, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	_ = resp.Body.Close()
}

// until lists by a method, page by page, until n items of the hostile server are there.
func (s *s1Server) until(n int, method string) {
	s.t.Helper()
	name := map[string]string{"tools/list": `"name":"hostile__`, "prompts/list": `"name":"`, "resources/templates/list": `"uriTemplate":`}[method]
	testkit.Eventually(s.t, fmt.Sprintf("%s has %d items", method, n), func() bool {
		found, cursor := 0, ""
		for {
			raw := s.ask(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{%s}}`, method, cursor))
			found += strings.Count(string(raw), name)
			_, after, more := strings.Cut(string(raw), `"nextCursor":"`)
			if !more {
				return found >= n && found <= n+3
			}
			next, _, _ := strings.Cut(after, `"`)
			cursor = fmt.Sprintf(`"cursor":%q`, next)
		}
	})
}

// costOf is the CPU time that Orla itself needs for some work when it is done three times, and
// the peak of its memory. The work is done longer times three times.
func (s *s1Server) costOf(longer int, work func()) costtest.Cost {
	s.t.Helper()
	pid := s.cmd.Process.Pid
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil { // resets VmHWM
		s.t.Fatal(err)
	}
	before := costtest.CPU(pid)
	for range 3 * longer {
		work()
	}
	return costtest.Cost{CPU: (costtest.CPU(pid) - before) / time.Duration(longer), Bytes: s.peak()}
}

// peak is the most memory that Orla has had since it was reset.
func (o *running) peak() uint64 {
	o.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", o.cmd.Process.Pid))
	if err != nil {
		o.t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	var kilobytes uint64
	if _, err := fmt.Sscan(after, &kilobytes); err != nil {
		o.t.Fatal(err)
	}
	return kilobytes << 10
}
