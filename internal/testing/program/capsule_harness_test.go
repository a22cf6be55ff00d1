package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// python is the interpreter itself: what stands in PATH may be a script that
// looks for one, which takes longer than the capsules of these tests do.
var python = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	return strings.TrimSpace(string(out)), err
})

// capsuleMain is a capsule that answers with what answer.py says. It holds a
// lock for as long as it lives: two processes at once are found out (SPEC D2).
const capsuleMain = `#!PYTHON -SEB
import fcntl, json, os, sys

lock = open(os.environ["LOCK"], "a")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    open(os.environ["LOCK"] + ".overlap", "a").write("%d\n" % os.getpid())

out = sys.stdout
sys.stdout = sys.stderr


def say(**message):
    out.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    out.flush()


from answer import answer, offers

say(method="orla.hello", params={"name": "NAME", "version": "1.0.0", "capabilities": ["tools"] if offers else []})
for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if method == "tools/call":
        say(id=id, result=answer(message["params"]))
    elif method == "tools/list":
        say(id=id, result={"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in offers]})
    elif id is not None:
        say(id=id, error={"code": -32601, "message": "no method"})
`

// says is an answer.py that answers with a Python expression, and lists no tools.
func says(expression string) string {
	return "import os, time\n\noffers = []\n\n\ndef answer(params):\n    return " + expression + "\n"
}

// pack is the package of a capsule that a test writes.
type pack struct {
	t         *testing.T
	dir, name string
	lock      string // held by its process
	overlap   string // there when two processes held it at once
}

// newPack writes a capsule with the main.py above into the folder tools.
// runtime are further lines of that section; "mcp" among the files replaces the
// one line with its input schema, "" for none.
func newPack(t *testing.T, tools, name, runtime string, files map[string]string) *pack {
	t.Helper()
	interpreter, err := python()
	if err != nil {
		needs.Missing(t, "no python3: %v", err)
	}
	lock := filepath.Join(t.TempDir(), "lock")
	p := &pack{t: t, dir: filepath.Join(tools, name), name: name, lock: lock, overlap: lock + ".overlap"}
	main := strings.NewReplacer("PYTHON", interpreter, "NAME", name).Replace(capsuleMain)
	if _, given := files["main.py"]; !given {
		p.save("main.py", main)
	}
	for file, text := range files {
		p.save(file, text)
	}
	p.manifest(runtime, "mcp: {input_schema: {type: object}}")
	t.Cleanup(func() {
		if pids, err := os.ReadFile(p.overlap); err == nil {
			t.Errorf("two processes of %s at once: %s", name, pids)
		}
	})
	return p
}

// manifest writes tool.yaml, with further lines of runtime, and of the whole.
func (p *pack) manifest(runtime, more string) {
	p.t.Helper()
	text := fmt.Sprintf("name: %s\nversion: 1.0.0\ndescription: A capsule of a test.\nentrypoint: main.py\n%s\nruntime:\n  mode: capsule\n  env: {LOCK: %q, ORLATEST: %[3]q}\n", p.name, more, p.lock)
	if !strings.Contains(runtime, "hot_load:") {
		text += "  hot_load: {debounce_ms: 20}\n"
	}
	if !strings.Contains(runtime, "startup_timeout_ms:") {
		text += "  startup_timeout_ms: 60000\n" // Python takes its time on a busy machine
	}
	for line := range strings.Lines(runtime) {
		text += "  " + strings.TrimSuffix(line, "\n") + "\n"
	}
	p.save("tool.yaml", text)
}

// save writes a file as editors do.
func (p *pack) save(file, text string) {
	p.t.Helper()
	testkit.WriteTool(p.t, p.dir, file, text)
}

// pids lists the processes of a capsule's tree that run, by what the manifest
// put into their environment.
func (p *pack) pids() []int {
	var pids []int
	found, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range found {
		env, _ := os.ReadFile(path)
		pid, err := strconv.Atoi(strings.Split(path, "/")[2])
		if err == nil && strings.Contains(string(env), "ORLATEST="+p.lock) && alive(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// serveCapsules starts Orla with a tools folder, further lines of configuration, and
// further variables of its environment. When the test is over, the history of each
// capsule that the log tells must be one that can be (SPEC I3).
func serveCapsules(t *testing.T, tools, config string, env ...string) *running {
	t.Helper()
	o := startPrepared(t, t.TempDir(), withEnv(env...), checkedBinary(t), "--config", writeConfig(t, tools, config))
	t.Cleanup(func() { o.checkHistories() })
	o.url, _ = o.waitLog("serving", nil)["url"].(string)
	return o
}

func writeConfig(t *testing.T, tools, more string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "orla.yaml")
	if err := os.WriteFile(path, fmt.Appendf(nil, "tools_dir: %s\nport: 0\n%s", tools, more), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// is returns what fits a state line of a tool: to, and optionally a part of the reason.
func is(tool, to string, reason ...string) func(map[string]any) bool {
	return func(l map[string]any) bool {
		text, _ := l["reason"].(string)
		return l["tool"] == tool && l["to"] == to && (len(reason) == 0 || strings.Contains(text, reason[0]))
	}
}

// pid is the process that a log line is about.
func pid(line map[string]any) int {
	n, _ := line["pid"].(float64)
	return int(n)
}

// step is one line of a capsule's history.
type step struct {
	from, to, reason string
	pid              int
	lasted           time.Duration
	at               time.Time
}

// moves are those of SPEC D1's table. A capsule whose manifest changed begins
// anew, after it was STOPPED.
var moves = map[string]string{
	"CREATED":   "STARTING STOPPED",
	"STARTING":  "READY CRASHED STOPPING",
	"READY":     "RELOADING CRASHED STOPPING",
	"RELOADING": "STARTING STOPPING",
	"CRASHED":   "STARTING STOPPED RELOADING",
	"STOPPING":  "STOPPED",
	"STOPPED":   "STARTING RELOADING",
}

// histories reads what each capsule went through from the log alone.
func (o *running) histories() map[string][]step {
	o.mu.Lock()
	lines := slices.Clone(o.lines)
	o.mu.Unlock()
	all := map[string][]step{}
	for _, l := range lines {
		tool, ok := l["tool"].(string)
		if l["msg"] != "state" || !ok {
			continue
		}
		s := step{pid: pid(l)}
		s.from, _ = l["from"].(string)
		s.to, _ = l["to"].(string)
		s.reason, _ = l["reason"].(string)
		ms, _ := l["lasted_ms"].(float64)
		s.lasted = time.Duration(ms) * time.Millisecond
		s.at = o.timeOf(l)
		all[tool] = append(all[tool], s)
	}
	return all
}

// timeOf is when a line was written.
func (o *running) timeOf(line map[string]any) time.Time {
	text, _ := line["time"].(string)
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		o.t.Errorf("the time of a log line: %v", err)
	}
	return at
}

// checkHistories fails the test for each move that cannot be, or that says not why.
func (o *running) checkHistories() map[string][]step {
	o.t.Helper()
	all := o.histories()
	for tool, steps := range all {
		was := "CREATED"
		for i, s := range steps {
			if s.from != was && (was != "STOPPED" || s.from != "CREATED") {
				o.t.Errorf("%s, line %d of its history: from %s, but it was %s", tool, i, s.from, was)
			}
			if !slices.Contains(strings.Fields(moves[s.from]), s.to) {
				o.t.Errorf("%s, line %d of its history: %s to %s is not a transition", tool, i, s.from, s.to)
			}
			if s.reason == "" {
				o.t.Errorf("%s, line %d of its history: %s to %s for no reason", tool, i, s.from, s.to)
			}
			was = s.to
		}
	}
	return all
}

// caller calls one tool and returns its text.
type caller func() (string, error)

// session returns a caller with a session of the Go SDK.
func (o *running) session(tool string) caller {
	o.t.Helper()
	session := goClient(o.t, o)
	return func() (string, error) {
		res, err := session.CallTool(context.Background(), &mcp.CallToolParams{Name: tool, Arguments: map[string]any{}})
		switch {
		case err != nil:
			return "", err
		case len(res.Content) == 0:
			return "", errors.New("an answer without content")
		}
		text, _ := res.Content[0].(*mcp.TextContent)
		if text == nil || res.IsError {
			return "", fmt.Errorf("isError %t: %+v", res.IsError, text)
		}
		return text.Text, nil
	}
}

// plain returns a caller without a session.
func (o *running) plain(tool string) caller {
	return func() (string, error) {
		a, err := o.call(tool, "{}")
		switch {
		case err != nil:
			return "", err
		case a.Error != nil:
			return "", fmt.Errorf("%+v", *a.Error)
		case a.Result.IsError:
			return "", fmt.Errorf("%+v", *a.Result)
		}
		return a.Result.Content[0].Text, nil
	}
}

// foreign returns callers with sessions of the official SDKs that are installed.
func (o *running) foreign(tool string) []caller {
	o.t.Helper()
	var all []caller
	for _, s := range sdks(o.t) {
		if s.via != "http" || s.era != "legacy" {
			continue
		}
		c := s.connect(o.t, o, "")
		all = append(all, func() (string, error) {
			_, answered := c.send("call", map[string]any{"name": tool, "arguments": map[string]any{}})
			var a reply
			select {
			case a = <-answered: // the zero reply, when the driver ends
			case <-time.After(testkit.Patience):
			}
			var r result
			if err := json.Unmarshal(a.Result, &r); err != nil || !a.OK || r.IsError || len(r.Content) == 0 {
				return "", fmt.Errorf("%s: %+v %+v", s.name, a, r)
			}
			return r.Content[0].Text, nil
		})
	}
	return all
}

// pressure are callers that call again and again.
type pressure struct {
	calls, failed atomic.Int64
	ended         sync.WaitGroup
	over          chan struct{}
}

// press lets each caller call until the function that it returns is called. check sees each answer, and when its call began.
// A reload, an install or an upgrade takes much longer than the pause between calls: there are always some when something
// happens, and callers without a pause would only take the cores from the tests beside it. There is none if more than the
// usual is asked for.
func press(t *testing.T, callers []caller, check func(began time.Time, text string, err error) error) (p *pressure, stop func()) {
	p = &pressure{over: make(chan struct{})}
	for _, call := range callers {
		p.ended.Go(func() {
			for {
				select {
				case <-p.over:
					return
				default:
				}
				if !needs.More() {
					<-time.After(rand.N(20 * time.Millisecond))
				}
				began := time.Now()
				text, err := call()
				p.calls.Add(1)
				if err := check(began, text, err); err != nil && p.failed.Add(1) <= 5 {
					t.Error(err)
				}
			}
		})
	}
	stop = sync.OnceFunc(func() {
		close(p.over)
		p.ended.Wait()
	})
	t.Cleanup(stop)
	return p, stop
}

// lossless is a check that lets no call fail.
func lossless(_ time.Time, _ string, err error) error {
	if err != nil {
		return fmt.Errorf("a call was lost: %w", err)
	}
	return nil
}
