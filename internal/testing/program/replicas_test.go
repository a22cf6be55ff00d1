package program

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/testing/kubetest"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// onceMain is an MCP server of which there must be one process in all replicas: it writes when it begins and ends, and
// asks its client.
const onceMain = `#!PYTHON -SEB
import fcntl, json, os, sys, time


def note(what):
    with open("NOTES", "a") as notes:
        notes.write("%s %s %d\n" % (what, os.environ.get("ORLA_GENERATION", "none"), os.getpid()))


lock = open("NOTES.lock", "a")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    note("two")
note("begin")


def say(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


asked = None
for line in sys.stdin:
    message = json.loads(line)
    method, id, result = message.get("method"), message.get("id"), {}
    if method is None and id == "q":
        say(id=asked, result={"content": [{"type": "text", "text": message["result"]["action"] if "result" in message else json.dumps(message)}]})
        continue
    name = message["params"]["name"] if method == "tools/call" else ""
    if name == "ask":
        asked = id
        say(id="q", method="elicitation/create", params={"message": "sure?", "requestedSchema": {"type": "object", "properties": {}}, "_meta": {"orla/call": id}})
        continue
    if name == "change":
        say(method="notifications/resources/updated", params={"uri": "mem://a"})
        say(method="notifications/message", params={"level": "debug", "data": "changed", "_meta": {"orla/call": id}})
        result = {"content": [{"type": "text", "text": "changed"}]}
    elif name == "pid":
        result = {"content": [{"type": "text", "text": str(os.getpid())}]}
    elif name == "large":
        result = {"content": [{"type": "text", "text": "x" * 200000 + "END"}]}
    elif name == "work":
        for n in range(5):
            token = message["params"].get("_meta", {}).get("progressToken")
            if token is not None:
                say(method="notifications/progress", params={"progressToken": token, "progress": n})
            time.sleep(0.1)
        result = {"content": [{"type": "text", "text": "worked"}]}
    elif method == "initialize":
        result = {"protocolVersion": message["params"]["protocolVersion"], "serverInfo": {"name": "box", "version": "1"},
                  "capabilities": {"resources": {"subscribe": True}, "logging": {}, "tools": {}}}
    elif method == "tools/list":
        result = {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in ("ask", "pid", "large", "work", "change")]}
    elif method == "resources/list":
        result = {"resources": [{"uri": "mem://a", "name": "a"}]}
    elif method == "resources/templates/list":
        result = {"resourceTemplates": []}
    if id is not None:
        say(id=id, result=result)
note("end")
`

// fleet is some replicas, and what is before them.
type fleet struct {
	t     *testing.T
	conf  string
	dir   string // of the API server
	tools string
	notes string
	env   []string
	has   string // a tool that each replica lists before it counts
	copy  string // of the tools folder, for every other replica; "" if all have the same
	orla  string // the configuration file of each replica; "" for none

	cluster   *kubetest.Cluster
	namespace string   // in the cluster
	sockets   sync.Map // of control, by *running

	mu   sync.Mutex // guards all
	all  []*running
	next atomic.Int64 // replica that gets a request

	started atomic.Int64
}

// newFleet starts n replicas against a real API server, which other tests use as well: in a namespace of their own.
func newFleet(t *testing.T, n int, env ...string) *fleet {
	t.Helper()
	cluster := sharedCluster(t)
	namespace := fmt.Sprint("fleet-", fleets.Add(1))
	cluster.Kubectl("", "create", "namespace", namespace)
	f := fleetAt(t, cluster, append(env, "ORLA_REPLICA_NAMESPACE="+namespace))
	f.namespace = namespace
	f.grow(n)
	return f
}

// fleets counts the fleets with namespaces of their own.
var fleets atomic.Int64

// grow starts n more replicas.
func (f *fleet) grow(n int) {
	f.t.Helper()
	for range n {
		f.all = append(f.all, f.start())
	}
}

// prepareFleet starts an API server for replicas, which the test may stop.
func prepareFleet(t *testing.T, env ...string) *fleet {
	t.Helper()
	cluster := kubetest.Start(t)
	cluster.Kubectl("", "apply", "-f", "../../../deploy/helm/orla/crds/replicarecords.yaml")
	return fleetAt(t, cluster, env)
}

// fleetAt prepares replicas that know each other by a cluster.
func fleetAt(t *testing.T, cluster *kubetest.Cluster, env []string) *fleet {
	t.Helper()
	interpreter, err := python()
	if err != nil {
		needs.Missing(t, "no python3: %v", err)
	}
	env = append(env, "ORLA_REPLICA_CAPSULES=all")
	f := &fleet{t: t, conf: cluster.Kubeconfig, dir: filepath.Dir(cluster.Kubeconfig), tools: t.TempDir(), notes: filepath.Join(t.TempDir(), "notes"), env: env, has: "box__pid"}
	main := strings.NewReplacer("PYTHON", interpreter, "NOTES", f.notes).Replace(onceMain)
	newPack(t, f.tools, "box", "handshake: mcp", map[string]string{"main.py": main}).manifest("handshake: mcp", "")
	testkit.WriteTool(t, f.tools, "hello", "#!/bin/sh\necho hello\n")
	f.cluster = cluster
	return f
}

// start starts one more replica, and waits until it serves the capsule.
func (f *fleet) start() *running {
	f.t.Helper()
	env := append([]string{
		"ORLA_REPLICA_LISTEN=127.0.0.1:" + strconv.Itoa(freePort(f.t)), "ORLA_TOOL_K8S_KUBECONFIG=" + f.conf,
	}, f.env...)
	tools := f.tools
	if f.copy != "" && f.started.Add(1)%2 == 0 {
		tools = f.copy
	}
	home := f.t.TempDir()
	if f.orla != "" {
		if err := os.WriteFile(filepath.Join(home, "orla.yaml"), []byte(f.orla), 0o600); err != nil {
			f.t.Fatal(err)
		}
	}
	o := startPrepared(f.t, home, withEnv(env...), orlaBinary(f.t), "--tools-dir", tools, "--port", "0")
	o.url, _ = o.waitLog("serving", nil)["url"].(string)
	o.waitListed(f.has)
	var status control.Status
	if err := json.Unmarshal([]byte(o.mustOrla("status", "--json", "--tools-dir", tools)), &status); err != nil {
		f.t.Fatal(err)
	}
	f.sockets.Store(o, status.Socket)
	return o
}

func (f *fleet) replace(i int) {
	f.t.Helper()
	next := f.start()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all[i] = next
}

// RoundTrip is a balancer: it passes each request to the next replica that takes connections.
func (f *fleet) RoundTrip(r *http.Request) (*http.Response, error) {
	for {
		f.mu.Lock()
		o := f.all[int(f.next.Add(1))%len(f.all)]
		f.mu.Unlock()
		to := r.Clone(r.Context())
		to.URL.Host = strings.TrimSuffix(strings.TrimPrefix(o.url, "http://"), "/mcp")
		to.Host = to.URL.Host
		if r.GetBody != nil {
			to.Body, _ = r.GetBody()
		}
		resp, err := http.DefaultTransport.RoundTrip(to)
		if err == nil || !strings.Contains(err.Error(), "connection refused") || r.Context().Err() != nil {
			return resp, err
		}
	}
}

// connect begins a session of an older version, or with "" a client of the newest.
func (f *fleet) connect(version string, opts *mcp.ClientOptions) *mcp.ClientSession {
	f.t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, opts)
	session, err := client.Connect(f.t.Context(), &mcp.StreamableClientTransport{Endpoint: "http://balancer/mcp", MaxRetries: 100, HTTPClient: &http.Client{Transport: f}},
		&mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = session.Close() })
	return session
}

func textOf(answer *mcp.CallToolResult, err error) (string, error) {
	if err != nil {
		return "", err
	}
	text, _ := answer.Content[0].(*mcp.TextContent)
	if text == nil || answer.IsError {
		return "", fmt.Errorf("%+v %v", answer, text)
	}
	return text.Text, nil
}

func (f *fleet) mustText(answer *mcp.CallToolResult, err error) string {
	f.t.Helper()
	text, err := textOf(answer, err)
	if err != nil {
		f.t.Fatal(err)
	}
	return text
}

// onlyOne checks that there were never two processes of the capsule, and that generations only grow.
func (f *fleet) onlyOne() (begins int) {
	f.t.Helper()
	said, err := os.ReadFile(f.notes)
	if err != nil {
		f.t.Fatal(err)
	}
	last := 0
	for line := range strings.Lines(string(said)) {
		var what string
		var generation, pid int
		if _, err := fmt.Sscan(line, &what, &generation, &pid); err != nil {
			f.t.Fatalf("%q: %v", line, err)
		}
		switch {
		case what == "two":
			f.t.Errorf("two processes at once: %s", said)
		case what == "begin" && generation < last:
			f.t.Errorf("an older generation began: %s", said)
		}
		if what == "begin" {
			begins++
		}
		last = generation
	}
	return begins
}

// SPEC P3, P4: any replica answers any request of a client, also with a session or a conversation that another one
// has, and reaches the one process of a capsule.
func TestP4AnyReplicaAnswersAnyRequest(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, "ORLA_MAX_INLINE=64KiB")
	var asked, progress, updates atomic.Int32
	opts := &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			asked.Add(1)
			return &mcp.ElicitResult{Action: "decline"}, nil
		},
		ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { progress.Add(1) },
		ResourceUpdatedHandler:      func(context.Context, *mcp.ResourceUpdatedNotificationRequest) { updates.Add(1) },
	}
	pids := map[string]bool{}
	for _, version := range []string{"2025-11-25", ""} {
		s := f.connect(version, opts)
		if version != "" {
			if err := s.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "mem://a"}); err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, "who follows a resource hears of it", func() bool {
				f.mustText(s.CallTool(t.Context(), &mcp.CallToolParams{Name: "box__change"}))
				return updates.Load() > 0
			})
		}
		for range 9 {
			pids[f.mustText(s.CallTool(t.Context(), &mcp.CallToolParams{Name: "box__pid"}))] = true
			if got := f.mustText(s.CallTool(t.Context(), &mcp.CallToolParams{Name: "hello"})); strings.TrimSpace(got) != "hello" {
				t.Errorf("%q", got)
			}
		}
		for n := range 3 {
			if got := f.mustText(s.CallTool(t.Context(), &mcp.CallToolParams{Name: "box__ask", Arguments: map[string]any{"n": n}})); got != "decline" {
				t.Errorf("%q", got)
			}
		}
		params := &mcp.CallToolParams{Name: "box__work"}
		params.SetProgressToken("p" + version)
		if got := f.mustText(s.CallTool(t.Context(), params)); got != "worked" {
			t.Errorf("%q", got)
		}
		answer, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "box__large"})
		f.mustText(answer, err)
		for _, c := range answer.Content {
			link, is := c.(*mcp.ResourceLink)
			if !is {
				continue
			}
			for range 3 {
				read, err := s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: link.URI})
				if err != nil {
					t.Fatalf("%q %s: %v", version, link.URI, err)
				}
				if !strings.HasSuffix(read.Contents[0].Text, "END") {
					t.Fatalf("%s: %.100v", link.URI, read)
				}
			}
		}
	}
	if len(pids) != 1 || f.onlyOne() != 1 {
		t.Errorf("processes: %v", pids)
	}
	if asked.Load() < 6 || progress.Load() < 8 {
		t.Errorf("asked %d times, progress %d times", asked.Load(), progress.Load())
	}
}

// holder is the place of the replica that holds a capsule; -1 for none.
func (f *fleet) holder() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, o := range f.all {
		if o.count("this replica holds a capsule", nil) > o.count("this replica does not hold a capsule any more", nil) {
			return i
		}
	}
	return -1
}

// end ends a replica, and puts another one in its place.
func (f *fleet) end(i int, sig syscall.Signal) {
	f.t.Helper()
	f.mu.Lock()
	o := f.all[i]
	f.mu.Unlock()
	o.signal(sig)
	_ = o.wait() // 0, or that it was killed
	f.replace(i)
}

// SPEC P4: sessions of older versions go on, with their ids, when the replica that has them is killed or stops.
func TestP4SessionsOutliveTheirReplica(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	var sessions []*mcp.ClientSession
	ids := map[string]bool{}
	for range 6 {
		s := f.connect("2025-11-25", nil)
		ids[s.ID()] = true
		sessions = append(sessions, s)
	}
	for round, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGKILL, syscall.SIGTERM} {
		f.end(round%3, sig)
		for _, s := range sessions {
			for range 3 {
				if got := f.mustText(s.CallTool(t.Context(), &mcp.CallToolParams{Name: "hello"})); strings.TrimSpace(got) != "hello" || !ids[s.ID()] {
					t.Errorf("%q %s", got, s.ID())
				}
			}
		}
	}
	// One that has ended does not come back.
	ended := sessions[0].ID()
	if err := sessions[0].Close(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://balancer/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
		req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Mcp-Session-Id": {ended}}
		resp, err := (&http.Client{Transport: f}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			t.Errorf("a session that has ended is there: %s", resp.Status)
		}
	}
}

// SPEC P4, Q2: a client whose replica is killed hears of the resources that it follows, and gets log messages of the level
// that it has set, from the one that goes on with its session, and from the next one after that.
func TestQ2AnotherReplicaGoesOnWithLevelAndSubscriptions(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	var updates, messages atomic.Int32
	s := f.connect("2025-11-25", &mcp.ClientOptions{
		ResourceUpdatedHandler: func(context.Context, *mcp.ResourceUpdatedNotificationRequest) { updates.Add(1) },
		LoggingMessageHandler:  func(context.Context, *mcp.LoggingMessageRequest) { messages.Add(1) }, //nolint:staticcheck // deprecated by the newest era only
	})
	id := s.ID()
	if err := s.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "debug"}); err != nil { //nolint:staticcheck // the same
		t.Fatal(err)
	}
	if err := s.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "mem://a"}); err != nil {
		t.Fatal(err)
	}
	hears := func(after string) {
		t.Helper()
		updated, said := updates.Load(), messages.Load()
		testkit.Eventually(t, "the client hears of the resource and of the log after "+after, func() bool {
			if err := f.persist(s, "box__change"); err != nil {
				t.Fatal(err)
			}
			return updates.Load() > updated && messages.Load() > said
		})
	}
	hears("the begin")
	record := func() string {
		return f.cluster.Kubectl("", "get", "replicarecords", "--namespace", f.namespace, "--selector", "orla.dev/part=sessions", "--output", "jsonpath={.items[*].metadata.ownerReferences[*].kind}")
	}
	testkit.Eventually(t, "it is written once, and goes with the Lease of its replica", func() bool { return record() == "Lease" })
	for _, i := range []int{0, 1, 0} { // the session moves at least twice
		f.end(i, syscall.SIGKILL)
		hears(fmt.Sprint("kill -9 of replica ", i))
	}
	if s.ID() != id {
		t.Errorf("session %q became %q", id, s.ID())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "nothing is left of a session that has ended", func() bool { return record() == "" })
}

// SPEC P3: the process of a capsule moves to another replica when its holder is killed or stops, and there are never two.
func TestP3OneProcessWhoeverHoldsIt(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	pid := func() (text string) {
		testkit.Eventually(t, "the capsule answers", func() bool {
			a, err := f.all[0].call("box__pid", "{}")
			if err != nil || a.Result == nil || a.Result.IsError {
				return false
			}
			text = a.Result.Content[0].Text
			return true
		})
		return text
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, syscall.SIGTERM} {
		before := pid()
		var at int
		testkit.Eventually(t, "a replica holds it", func() bool { at = f.holder(); return at >= 0 })
		f.end(at, sig)
		if after := pid(); after == before {
			t.Errorf("after %v the process %s answers still", sig, after)
		}
	}
	if begins := f.onlyOne(); begins != 4 {
		t.Errorf("the process began %d times", begins)
	}
}

// persist makes a call until it succeeds: a client may do that with one that fails in a way that says so.
func (f *fleet) persist(s *mcp.ClientSession, tool string) error {
	var err error
	for deadline := time.Now().Add(3 * testkit.Patience); time.Now().Before(deadline); <-time.After(50 * time.Millisecond) {
		var answer *mcp.CallToolResult
		answer, err = s.CallTool(f.t.Context(), &mcp.CallToolParams{Name: tool})
		switch {
		case err == nil && !answer.IsError:
			return nil
		case err == nil && answer.Meta["retryable"] != true:
			text, _ := textOf(answer, nil)
			return fmt.Errorf("a call failed for good: %v %s", answer.Meta, text)
		case err != nil && strings.Contains(err.Error(), "session not found"):
			return err
		case err == nil:
			err = fmt.Errorf("%v", answer.Meta)
		}
	}
	return fmt.Errorf("a call did not succeed: %w", err)
}

// SPEC P4: while replicas are killed and replaced one after the other, clients of both eras lose no session and no call that
// they may retry, and there are never two processes of the capsule.
func TestP4NothingIsLostWhileReplicasChange(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	var clients sync.WaitGroup
	over := make(chan struct{})
	var calls, sessions atomic.Int64
	for n := range 8 {
		s := f.connect([]string{"2025-11-25", ""}[n%2], nil)
		id := s.ID()
		clients.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-over:
					if s.ID() == id {
						sessions.Add(1)
					}
					return
				default:
				}
				if !needs.More() { // a change of replicas takes much longer than the pause between calls
					<-time.After(rand.N(20 * time.Millisecond))
				}
				if err := f.persist(s, []string{"hello", "box__pid", "box__work"}[(i+n)%3]); err != nil {
					t.Errorf("client %d: %v", n, err)
					return
				}
				calls.Add(1)
			}
		})
	}
	for round, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGTERM, syscall.SIGTERM, syscall.SIGKILL, syscall.SIGKILL} {
		f.end(round%3, sig)
	}
	close(over)
	clients.Wait()
	t.Logf("%d calls, %d processes", calls.Load(), f.onlyOne())
	if sessions.Load() != 8 || calls.Load() < 50 {
		t.Errorf("%d of 8 clients go on with their sessions after %d calls", sessions.Load(), calls.Load())
	}
}

// SPEC P3, D4: a capsule whose process cannot start is not READY on any replica, and each says why.
func TestP3EachReplicaSaysWhyAProcessCannotStart(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	newPack(t, f.tools, "bad", "handshake: mcp\nrestart: {max_failures: 2}", map[string]string{"main.py": "#!/bin/sh\nexec 0<&-\nsleep 0.3\nexit 3\n"})
	for _, o := range f.all {
		o.signal(syscall.SIGHUP)
	}
	const why = "it exited with code 3 before it answered initialize"
	for _, o := range f.all {
		o.waitLog("state", func(l map[string]any) bool {
			reason, _ := l["reason"].(string)
			return l["tool"] == "bad" && l["to"] == "CRASHED" && strings.HasPrefix(reason, "bad: ") && strings.Contains(reason, why)
		})
		if n := o.count("state", func(l map[string]any) bool { return l["tool"] == "bad" && l["to"] == "READY" }); n > 0 {
			t.Errorf("it was READY %d times", n)
		}
	}
}

// SPEC P3, J1: an operator of any replica stops and starts the process of a capsule, whichever replica holds it, and the next
// holder knows that too.
func TestP3AnOperatorReachesTheHolder(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.copy = t.TempDir() // so that each has its own control socket
	if err := os.CopyFS(f.copy, os.DirFS(f.tools)); err != nil {
		t.Fatal(err)
	}
	f.started.Store(1)
	f.all = append(f.all, f.start())
	holder, other := f.all[0], f.all[1]
	begun := func() int { return strings.Count(testkit.ReadFile(t, f.notes), "begin") }
	other.mustOrla("stop", "box", "--tools-dir", f.copy)
	for _, o := range f.all {
		o.waitLog("state", func(l map[string]any) bool {
			return l["tool"] == "box" && l["to"] == "STOPPED" && l["reason"] == "stopped by an operator"
		})
	}
	testkit.Eventually(t, "the process has ended", func() bool { return strings.Count(testkit.ReadFile(t, f.notes), "end") == 1 })
	holder.signal(syscall.SIGTERM)
	_ = holder.wait()
	other.waitLog("this replica holds a capsule", nil)
	if n := begun(); n != 1 {
		t.Errorf("the process began %d times, though it was stopped", n)
	}
	other.mustOrla("start", "box", "--tools-dir", f.copy)
	other.mustCall("box__pid")
	other.mustOrla("restart", "box", "--tools-dir", f.copy)
	testkit.Eventually(t, "there is a new process", func() bool { return begun() == 3 })
	f.all = f.all[1:]
	f.onlyOne()
}

// SPEC P3: a holder that cannot renew its Lease ends the process before others may start one. Simple tools and sessions do
// not need the API server.
func TestP3WithoutTheAPIServerNothingIsHeld(t *testing.T) {
	t.Parallel()
	f := prepareFleet(t)
	f.grow(2)
	s := f.connect("2025-11-25", nil)
	f.mustText(s.CallTool(t.Context(), &mcp.CallToolParams{Name: "box__pid"}))
	stopped := time.Now()
	resume := f.stopAPIServer()
	var ended time.Time
	var err error
	lost := func() int {
		at := func(line map[string]any) bool {
			text, _ := line["time"].(string)
			ended, err = time.Parse(time.RFC3339Nano, text)
			return err == nil
		}
		return f.all[0].count("this replica does not hold a capsule any more", at) + f.all[1].count("this replica does not hold a capsule any more", at)
	}
	testkit.Eventually(t, "the holder ends the process", func() bool {
		f.mustText(s.CallTool(t.Context(), &mcp.CallToolParams{Name: "hello"}))
		return lost() == 1
	})
	if after := ended.Sub(stopped); after > 15*time.Second { // then others may start one
		t.Errorf("the process was ended after %s", after)
	}
	resume()
	if err := f.persist(s, "box__pid"); err != nil {
		t.Error(err)
	}
	if begins := f.onlyOne(); begins != 2 {
		t.Errorf("the process began %d times", begins)
	}
}

// stopAPIServer has the API server answer nothing until resume is called.
func (f *fleet) stopAPIServer() (resume func()) {
	f.t.Helper()
	raw, err := os.ReadFile(filepath.Join(f.dir, "kube-apiserver.pid"))
	if err != nil {
		f.t.Fatal(err)
	}
	server, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		f.t.Fatal(err)
	}
	if err := syscall.Kill(server, syscall.SIGSTOP); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = syscall.Kill(server, syscall.SIGCONT) })
	return func() {
		if err := syscall.Kill(server, syscall.SIGCONT); err != nil {
			f.t.Fatal(err)
		}
	}
}

// SPEC H4, P4: a second signal ends a replica at once also while it still tells the others that it stops.
func TestH4ASecondSignalEndsAReplicaThatLeaves(t *testing.T) {
	t.Parallel()
	f := prepareFleet(t)
	f.grow(1)
	o := f.all[0]
	f.stopAPIServer()
	o.signal(syscall.SIGTERM)
	signalAgain(o)
	if code := o.wait(); code == 0 || o.count("stopping", nil) > 0 {
		t.Errorf("it ended with %d, and waited for the API server before", code)
	}
}
