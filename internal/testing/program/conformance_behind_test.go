package program

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// stateless is the version without initialize.
const stateless = "2026-07-28"

// An everything is a server that has all that the suite asks for, made with an official
// SDK.
type everything struct {
	name  string
	stdio []string
	http  []string // what comes before the address
	// patience is how many milliseconds the suite waits for an answer; 0 for as long as ever.
	patience int
	// initialize comes before the address instead, to serve the versions with
	// initialize in sessions; nil if http does that too.
	initialize []string
}

// everythings are the servers: that of the Go SDK's own tests, and two of testdata, since
// those of the other SDKs are not published.
func everythings(t *testing.T, suite *conformance) []everything {
	t.Helper()
	python := needs.PythonSDK(t)
	needs.Programs(t, "go", "node")
	golang, err := goEverything()
	if err != nil {
		t.Fatal(err)
	}
	servers := filepath.Join(suite.dir, "servers")
	inTypeScript := []string{"node", filepath.Join(servers, "typescript", "main.mjs")}
	inPython := []string{python, filepath.Join(servers, "python", "server.py")}
	return []everything{
		{
			name: "go", stdio: []string{golang}, http: []string{golang, "-http"}, initialize: []string{golang, "-stateless=false", "-http"},
			patience: 15_000, // for a message that never comes; see differs
		},
		{name: "typescript", stdio: inTypeScript, http: slices.Concat(inTypeScript, []string{"--http"})},
		{name: "python", stdio: inPython, http: slices.Concat(inPython, []string{"--http"})},
	}
}

// goEverything builds the Go SDK's server, once.
var goEverything = sync.OnceValues(func() (string, error) {
	return goBuild("server", "github.com/modelcontextprotocol/go-sdk/conformance/everything-server", []string{"CGO_ENABLED=0"}, "-trimpath")
})

// A way is one to have a server behind Orla. Of its clients the suite is one of each
// revision that it is given, and of 2026-07-28.
type way struct {
	transport, protocol string
	revisions           []string
}

// ways are all that show something of their own. By default Orla speaks 2026-07-28 to a
// server that has both kinds of MCP, so a third protocol would add nothing. What a client's
// revision changes is in front of the transport, so that the newest one with initialize is enough
// but for one way. On the pipe many scenarios are run twice.
var ways = []way{
	{"stdio", "auto", revisions[2:3]},
	{"stdio", "initialize", revisions[2:3]},
	{"http", stateless, revisions[2:3]},
	{"http", "initialize", revisions[:3]},
}

// newestWays are the same ways with clients of the newest revisions alone.
var newestWays = []way{
	{"stdio", "auto", revisions[2:3]},
	{"stdio", "initialize", revisions[2:3]},
	{"http", stateless, revisions[2:3]},
	{"http", "initialize", revisions[2:3]},
}

// ways are all of them if more than the usual is asked for. Otherwise only the Go SDK's server, which costs least, has each
// transport and protocol, and the others have one of each: they differ in how they speak to Orla, which no revision of a
// client changes. A server behind Orla has clients of every revision in TestG2Conformance.
func (e everything) ways() []way {
	switch {
	case needs.More():
		return ways
	case e.name == "go":
		return newestWays
	case e.name == "typescript":
		return newestWays[:1]
	}
	return newestWays[len(newestWays)-1:]
}

// An exception is what a server passes alone and not behind Orla. All but the reason are
// patterns.
type exception struct {
	server, protocol, revision string
	checks                     string // "SCENARIO CHECK"
	reason                     string
}

const older = `2025-.*`

// differs are all differences. But for the first three, one side speaks a version with
// initialize and the other one 2026-07-28.
var differs = []exception{
	{
		"go", ".*", stateless, "server-stateless sep-2575-server-sends-tools-list-changed-on-subscription",
		"the server adds the same tool each time it is told to; Orla tells clients of a list only when it has become another",
	},
	{
		".*", ".*", "2025-11-25", "server-sse-polling server-sse-(priming-event|retry-field)",
		"the events are there to resume a broken stream, and Orla keeps no streams to resume; it resumes those of servers",
	},
	{
		"go", "initialize", "2025-11-25", "server-sse-polling incoming-sse-event",
		"the server closes the stream of its answer and gives no event to resume it from; alone, the client gets no answer",
	},
	{
		"go|python", "auto|" + stateless, older, "(elicitation-.*|tools-call-elicitation|tools-call-sampling) .*",
		"the tools ask by a request of their own, which 2026-07-28 does not have; protocol: initialize is for them",
	},
	{
		"python", "initialize", stateless, "input-required-result-.* .*|server-stateless sep-2575-.*-capability.*",
		"the SDK refuses an input_required result of a tool in the versions with initialize",
	},
	{
		"go|typescript", "initialize", stateless, "input-required-result-(basic-elicitation sep-2322-elicitation-incomplete|ignore-extra-params sep-2322-ignore-unexpected-params)",
		"a question that is a request has no name of the server's, and the suite expects one",
	},
	{
		"go|typescript", "initialize", stateless, "input-required-result-capability-check .*|server-stateless sep-2575-.*-capability.*",
		"initialize says once what all clients together can be asked, and the server asks the one client for that",
	},
	{
		"go", "initialize", stateless, "input-required-result-multi-round sep-2322-multi-round-r2",
		"the SDK asks for one round only in the versions with initialize",
	},
}

// SPEC G2, D8: behind Orla a server of each official SDK passes all that it passes alone,
// over both transports, whichever kind of MCP Orla speaks to it.
func TestG2ConformanceBehindOrla(t *testing.T) {
	t.Parallel()
	suite := conformanceSuite(t)
	var mu sync.Mutex
	seen := map[string]bool{} // the reasons of differences
	t.Run("servers", func(t *testing.T) {
		for _, server := range everythings(t, suite) {
			t.Run(server.name, func(t *testing.T) {
				t.Parallel()
				alone := server.alone(t, suite)
				for _, w := range server.ways() {
					t.Run(w.transport+"/"+w.protocol, func(t *testing.T) {
						t.Parallel()
						why := server.behind(t, suite, alone, w)
						mu.Lock()
						defer mu.Unlock()
						maps.Copy(seen, why)
					})
				}
			})
		}
	})
	for _, d := range differs {
		if !seen[d.reason] && !t.Failed() {
			t.Errorf("%s passes %s in %s; it is expected to be lost: %s", d.server, d.checks, d.revision, d.reason)
		}
	}
}

// explained returns the reason why a check is lost; "" if there is none.
func explained(server, protocol, check string) string {
	for _, d := range differs {
		pattern := fmt.Sprintf("^(%s) (%s) (%s) (%s)$", d.server, d.protocol, d.revision, d.checks)
		if regexp.MustCompile(pattern).MatchString(server + " " + protocol + " " + check) {
			return d.reason
		}
	}
	return ""
}

// alone returns what the server fails without Orla.
func (e everything) alone(t *testing.T, suite *conformance) results {
	t.Helper()
	var older []string
	for _, w := range e.ways() {
		older = slices.Concat(older, w.revisions)
	}
	slices.Sort(older)
	older = slices.Compact(older)
	if e.initialize == nil {
		return e.suiteOf(t, suite, serveAlone(t, e.http), append(older, stateless)...)
	}
	all := e.suiteOf(t, suite, serveAlone(t, e.http), stateless)
	maps.Copy(all, e.suiteOf(t, suite, serveAlone(t, e.initialize), older...))
	return all
}

// behind compares the server behind Orla with the server alone, and returns the reasons of
// the differences.
func (e everything) behind(t *testing.T, suite *conformance, alone results, w way) (reasons map[string]bool) {
	t.Helper()
	o, url := e.serve(t, w)
	all := e.suiteOf(t, suite, url, stateless)
	maps.Copy(all, e.suiteOf(t, suite, url, w.revisions...))
	reasons = map[string]bool{}
	again := map[string]bool{}
	for check, fault := range all.lost(alone) {
		part := strings.Fields(check) // the revision, the scenario, and the check if it was run
		switch reason := explained(e.name, w.protocol, check); {
		case reason != "":
			reasons[reason] = true
		case w.transport == "stdio" && part[0] != stateless && len(part) > 2:
			again[part[0]+" "+part[1]] = true
		default:
			t.Errorf("%s is lost: %s", check, fault)
		}
	}
	// On a pipe, a log message or question that does not say which request it is about
	// goes to the only client that the process has ever served (SPEC N2). In the older
	// versions each scenario is another client, so it gets a process of its own.
	for scenario := range again {
		o.restartServer()
		revision, name, _ := strings.Cut(scenario, " ")
		for check, fault := range resultsIn(t, suite.scenario(t, url, revision, name)).lost(results{scenario: alone[scenario]}) {
			t.Errorf("%s is lost: %s", check, fault)
		}
	}
	return reasons
}

// starting is held while a server starts: one that shares the machine with many might take more
// than the 5 seconds after which Orla no longer waits to be told which protocol it speaks.
var starting sync.Mutex

// serve serves the server behind Orla, and returns where the suite finds it.
func (e everything) serve(t *testing.T, w way) (o *running, url string) {
	t.Helper()
	starting.Lock()
	defer starting.Unlock()
	dir := t.TempDir()
	if w.transport == "stdio" {
		e.capsule(t, dir, "server", w.protocol, `""`)
		o = serveOrla(t, dir)
		o.waitListed("test_simple_text")
		return o, o.url
	}
	argv := e.http
	if w.protocol == "initialize" && e.initialize != nil {
		argv = e.initialize
	}
	testkit.WriteTool(t, dir, "server.yaml", fmt.Sprintf("apiVersion: orloj.dev/v1\nkind: McpServer\nmetadata: {name: server}\n"+
		"spec: {transport: http, protocol: %s, endpoint: %q}\n", w.protocol, serveAlone(t, argv)))
	o = serveOrla(t, dir)
	o.waitListed("server--test-simple-text")
	return o, bareNames(t, "server", o.url)
}

// restartServer gives the server another process.
func (o *running) restartServer() {
	o.t.Helper()
	starting.Lock()
	defer starting.Unlock()
	log := o.follow()
	log.seen = o.lineCount()
	_ = o.orla("restart", "server") // Orla tries again if it fails
	log.next("state", is("server", "READY"))
}

// capsule writes the server as a capsule of a name and a prefix of its tools' names.
func (e everything) capsule(t *testing.T, dir, name, protocol, prefix string) {
	t.Helper()
	testkit.WriteTool(t, dir, name+"/tool.yaml", "name: "+name+"\nversion: 1.0.0\ndescription: The conformance server.\nentrypoint: run.sh\n"+
		"runtime:\n  mode: capsule\n  handshake: mcp\n  protocol: "+protocol+"\n  tool_prefix: "+prefix+"\n  startup_timeout_ms: 60000\n  hot_load: {watch: []}\n")
	testkit.WriteTool(t, dir, name+"/run.sh", "#!/bin/sh\nexec "+strings.Join(e.stdio, " ")+"\n")
}

// serveAlone serves over HTTP until the test is over.
func serveAlone(t *testing.T, argv []string) (url string) {
	t.Helper()
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(freePort(t)))
	cmd := exec.Command(argv[0], slices.Concat(argv[1:], []string{addr})...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	testkit.Eventually(t, "the server listens", func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return "http://" + addr + "/"
}

// results have what failed of each scenario that was run: "REVISION SCENARIO" to check to
// what the suite says of it.
type results map[string]map[string]string

// lost are the checks that failed and did not fail alone, "REVISION SCENARIO CHECK", in the
// revisions that were run.
func (r results) lost(alone results) map[string]string {
	lost := map[string]string{}
	for scenario := range alone {
		revision, _, _ := strings.Cut(scenario, " ")
		of := func(run string) bool { return strings.HasPrefix(run, revision+" ") }
		if _, ok := r[scenario]; !ok && slices.ContainsFunc(slices.Collect(maps.Keys(r)), of) {
			lost[scenario] = "it was not run"
		}
	}
	for scenario, faults := range r {
		for check, fault := range faults {
			if _, ok := alone[scenario][check]; !ok {
				lost[scenario+" "+check] = fault
			}
		}
	}
	return lost
}

// suiteOf runs all scenarios of some revisions.
func (e everything) suiteOf(t *testing.T, suite *conformance, url string, revisions ...string) results {
	t.Helper()
	return resultsIn(t, suite.all(t, url, e.patience, revisions...))
}

func resultsIn(t *testing.T, dir string) results {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*", "*", "checks.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the suite left no results: %v", err)
	}
	named := regexp.MustCompile(`([^/]+)/server-([^/]+?)-\d{4}-\d\d-\d\dT[^/]*/checks\.json$`)
	all := results{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var checks []struct{ ID, Status, ErrorMessage string }
		if err := json.Unmarshal(raw, &checks); err != nil || len(checks) == 0 {
			t.Fatalf("%s has no checks: %v", file, err)
		}
		m := named.FindStringSubmatch(file)
		faults := map[string]string{}
		for _, c := range checks {
			if slices.Contains([]string{"FAILURE", "WARNING"}, c.Status) {
				faults[c.ID] = c.ErrorMessage
			}
		}
		all[m[1]+" "+m[2]] = faults
	}
	return all
}
