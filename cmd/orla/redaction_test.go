package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// planted are the secrets of TestNoSecretIsShown by where they are found. Each
// begins with what occurs nowhere else, so that a part of one is found as well.
var planted = map[string]string{
	"resource":     "plantA7f3-resource/+&=? \"q' <x>",
	"file":         "plantB9c1-file/+&=%41 ~",
	"user":         "someone",
	"credential":   "plantC2e8-credential:with:colons/+",
	"client id":    "plantD4d6-client-id",
	"environment":  "plantE5b0-environment/+&= \\n",
	"access token": "plantF8a2-access-token-",
	"server":       "plantG1f9-server/+ \"quoted\"",
	"rotated":      "plantH6c4-rotated/+&=",
	"argument":     "plantI3d7-argument", // which is nobody's business either (SPEC I2)
}

// betrayal finds planted secrets in whatever form.
type betrayal struct {
	forms map[string]string // what is looked for, and what it is
}

func newBetrayal() betrayal {
	b := betrayal{map[string]string{}}
	for name, text := range planted {
		if name == "user" {
			continue
		}
		b.forms[text[:9]] = name // any of them begins so, in every escaped form too
		for before := range 3 {
			shifted := base64.RawStdEncoding.EncodeToString(append(make([]byte, before), text[:9]...))
			b.forms[shifted[(before*8+5)/6:(before+9)*8/6]] = name + " in base64"
		}
	}
	pair := base64.StdEncoding.EncodeToString([]byte(planted["user"] + ":" + planted["credential"]))
	b.forms[pair[:16]] = "the pair of user and password"
	return b
}

// search reports what of text betrays a secret.
func (b betrayal) search(t *testing.T, where string, text []byte) {
	t.Helper()
	for form, name := range b.forms {
		if i := bytes.Index(text, []byte(form)); i >= 0 {
			t.Errorf("%s shows %s: …%.300s…", where, name, text[max(0, i-100):])
			return
		}
	}
}

// gossip is a service that says whatever it hears in its errors.
type gossip struct {
	*httptest.Server
	elsewhere *httptest.Server

	mu    sync.Mutex // guards heard
	heard map[string][]string
}

func newGossip(t *testing.T) *gossip {
	g := &gossip{heard: map[string][]string{}}
	g.elsewhere = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.note("elsewhere", r, nil)
		http.Error(w, "you should not be here", http.StatusTeapot)
	}))
	g.Server = httptest.NewServer(g)
	t.Cleanup(g.Close)
	t.Cleanup(g.elsewhere.Close)
	return g
}

// note keeps what was said to the service, and returns it in every form.
func (g *gossip) note(at string, r *http.Request, body []byte) string {
	var all strings.Builder
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		fmt.Fprintf(&all, "%s: %s; ", name, r.Header[name])
	}
	all.Write(body)
	said := all.String()
	g.mu.Lock()
	g.heard[at] = append(g.heard[at], said)
	g.mu.Unlock()
	secret := r.Header.Get("Authorization") + r.Header.Get("X-Api-Key")
	_, secret, _ = strings.Cut(secret, " ")
	quoted, _ := json.Marshal(said)
	return strings.Join([]string{
		said, url.QueryEscape(said), base64.StdEncoding.EncodeToString([]byte(secret)), fmt.Sprintf("%q", secret), string(quoted), secret,
	}, " | ")
}

// listened returns what was said under a path.
func (g *gossip) listened(at string) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.heard[at])
}

// behaviours are the paths of the service.
var behaviours = []string{
	"500", "400", "401", "403", "429", "html", "envelope", "denied", "garbage", "number", "wrong-id", "half", "huge",
	"redirect-same", "redirect-away", "redirect-host", "redirect-metadata", "raw", "raw-header", "headers", "reset",
}

func (g *gossip) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	what := strings.Trim(r.URL.Path, "/")
	what = what[strings.LastIndex(what, "/")+1:]
	if what == "token" {
		g.mu.Lock()
		n := len(g.heard["token"])
		g.mu.Unlock()
		g.note("token", r, body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"access_token":"%s%d","token_type":"Bearer","expires_in":3600}`, planted["access token"], n)
		return
	}
	said := g.note(r.URL.Path, r, body)
	quoted, _ := json.Marshal(said)
	var request struct {
		ID string `json:"request_id"`
	}
	_ = json.Unmarshal(body, &request)
	status := map[string]int{"500": 500, "400": 400, "401": 401, "403": 403, "429": 429}[what]
	switch what {
	case "500", "400", "401", "403", "429":
		w.Header().Set("WWW-Authenticate", "Bearer error=\""+url.QueryEscape(said)+"\"")
		http.Error(w, said, status)
	case "html":
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusBadGateway)
		_, _ = io.WriteString(w, "<html>"+said)
	case "envelope":
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"request_id":%q,"status":"error","error":{"tool_code":"execution_failed","tool_reason":%s,"retryable":false}}`, request.ID, quoted)
	case "denied":
		_, _ = fmt.Fprintf(w, `{"request_id":%q,"status":"denied","error":{"code":"no","reason":%s,"message":%[2]s}}`, request.ID, quoted)
	case "garbage":
		_, _ = io.WriteString(w, `{"status":"error","error":{"tool_reason":`+string(quoted))
	case "number":
		_, _ = fmt.Fprintf(w, `{"request_id":%s,"status":%[1]s}`, quoted)
	case "wrong-id":
		_, _ = fmt.Fprintf(w, `{"request_id":%s,"status":"error","error":{"tool_code":%[1]s,"tool_reason":%[1]s}}`, quoted)
	case "half":
		w.Header().Set("Content-Length", "1000000")
		_, _ = io.WriteString(w, said)
	case "huge":
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, strings.Repeat("x", 500)+strings.Repeat(said, 1000))
	case "redirect-same":
		http.Redirect(w, r, "/500?key="+url.QueryEscape(said), http.StatusTemporaryRedirect)
	case "redirect-away":
		http.Redirect(w, r, g.elsewhere.URL+"/?key="+url.QueryEscape(said), http.StatusTemporaryRedirect)
	case "redirect-host":
		_, secret, _ := strings.Cut(r.Header.Get("Authorization")+" "+r.Header.Get("X-Api-Key"), " ")
		w.Header().Set("Location", "http://"+url.PathEscape(strings.TrimSpace(secret))+".invalid/")
		w.WriteHeader(http.StatusPermanentRedirect)
	case "redirect-metadata":
		http.Redirect(w, r, "http://169.254.169.254/?"+url.QueryEscape(said), http.StatusSeeOther)
	case "headers":
		w.Header().Set("Content-Type", url.QueryEscape(said))
		w.Header().Set("Retry-After", url.QueryEscape(said))
		w.WriteHeader(http.StatusServiceUnavailable)
	case "raw", "raw-header", "reset":
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer func() { _ = conn.Close() }()
		line := strings.NewReplacer("\r", " ", "\n", " ").Replace(said)
		switch what {
		case "raw":
			_, _ = fmt.Fprintf(conn, "%s\r\n\r\n", line)
		case "raw-header":
			_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\n%s\r\n\r\n", strings.ReplaceAll(line, ":", " "))
		case "reset":
			_ = conn.(*net.TCPConn).SetLinger(0)
		}
	}
}

// leakingServer is an MCP server that says what it was given wherever it can.
const leakingServer = `import base64, json, os, sys
token = os.environ["LEAK"]
print("starting with", token, flush=True)
print("stderr has", token, base64.b64encode(token.encode()).decode(), json.dumps(token), file=sys.stderr, flush=True)
if os.environ.get("DIES"):
    sys.exit(token + " was not accepted")
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m:
        continue
    answer = {"jsonrpc": "2.0", "id": m["id"]}
    if m["method"] == "initialize":
        answer["result"] = {"protocolVersion": m["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "leak", "version": "1"}}
    elif m["method"] == "tools/list":
        answer["result"] = {"tools": [{"name": "fail", "inputSchema": {"type": "object"}}]}
    elif m["method"] == "tools/call":
        answer["error"] = {"code": -32000, "message": token, "data": {"tool_code": "auth_invalid", "tool_reason": "the token " + token}}
    else:
        answer["error"] = {"code": -32601, "message": "no " + token}
    print(json.dumps(answer), flush=True)
`

// profiles are the ways in which secrets are shown, by name: what stands below
// auth, and what the service then hears.
func (g *gossip) profiles() map[string][2]string {
	return map[string][2]string{
		"bearer": {"{secretRef: from-resource}", planted["resource"]},
		"key":    {"{profile: api_key_header, headerName: X-Api-Key, secretRef: 'from-file:key'}", planted["file"]},
		"basic":  {"{profile: basic, secretRef: from-credential}", base64.StdEncoding.EncodeToString([]byte(planted["user"] + ":" + planted["credential"]))},
		"oauth":  {"{profile: oauth2_client_credentials, secretRef: from-environment, tokenURL: '" + g.URL + "/token?k=1'}", planted["access token"]},
	}
}

// secretTools writes a tool for each kind, profile and behaviour, and returns
// their names.
func (g *gossip) secretTools(t *testing.T, dir string, kinds ...string) []string {
	var names []string
	var text strings.Builder
	for _, kind := range kinds {
		for profile, auth := range g.profiles() {
			for _, what := range behaviours {
				name := strings.Join([]string{kind, profile, what}, "-")
				fmt.Fprintf(&text, `---
apiVersion: orloj.dev/v1
kind: Tool
metadata: {name: %s}
spec:
  type: %s
  endpoint: %s/%s/%s?in=query
  auth: %s
  runtime: {timeout: 2s, retry: {max_attempts: 2, backoff: 1ms}}
`, name, kind, g.URL, name, what, auth[0])
				names = append(names, name)
			}
		}
	}
	writeTool(t, dir, "tools.yaml", text.String())
	return names
}

func writeSecret(t *testing.T, dir, value string) {
	t.Helper()
	quoted, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	server, err := json.Marshal(planted["server"])
	if err != nil {
		t.Fatal(err)
	}
	writeTool(t, dir, "secrets.yaml", fmt.Sprintf("apiVersion: orloj.dev/v1\nkind: Secret\nmetadata: {name: from-resource}\nstringData: {value: %s, server: %s}\n", quoted, server))
}

// SPEC-TOOLS 5.3: secrets of every source and profile, shown to services and a
// server that repeat them wherever they can, are nowhere in what Orla says: its
// log at its most talkative, its errors, status, events, metrics, traces, and
// what it keeps.
func TestNoSecretIsShown(t *testing.T) {
	g := newGossip(t)
	dir := t.TempDir()
	tools, secrets, credentials, state := filepath.Join(dir, "tools"), filepath.Join(dir, "secrets"), filepath.Join(dir, "credentials"), filepath.Join(dir, "state")
	names := g.secretTools(t, tools, "http", "external")
	writeSecret(t, tools, planted["resource"])
	writeTool(t, secrets, "from-file/key", planted["file"]+"\n")
	writeTool(t, credentials, "from-credential", planted["user"]+":"+planted["credential"])
	writeTool(t, dir, "server.py", leakingServer)
	for name, more := range map[string]string{"leaks": "", "dies": "\n    - {name: DIES, value: 'yes'}"} {
		writeTool(t, tools, name+".yaml", `apiVersion: orloj.dev/v1
kind: McpServer
metadata: {name: `+name+`}
spec:
  transport: stdio
  command: python3
  args: [`+filepath.Join(dir, "server.py")+`]
  env:
    - {name: LEAK, secretRef: 'from-resource:server'}`+more+"\n")
	}
	writeTool(t, tools, "environ.sh", "#!/bin/sh\nenv\n")

	var traced bytes.Buffer
	var tracedMu sync.Mutex
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		tracedMu.Lock()
		defer tracedMu.Unlock()
		traced.Write(body)
	}))
	t.Cleanup(collector.Close)

	config := writeTool(t, dir, "orla.yaml", fmt.Sprintf("port: 0\ntools_dir: tools\nsecrets_dir: secrets\nstate_dir: %s\nlog_level: debug\ntracing: {endpoint: %q}\n", state, collector.URL))
	o := startPrepared(t, dir, func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, "OTEL_BSP_SCHEDULE_DELAY=50", "CREDENTIALS_DIRECTORY="+credentials,
			"ORLOJ_SECRET_FROM_ENVIRONMENT_CLIENT_ID="+planted["client id"], "ORLOJ_SECRET_FROM_ENVIRONMENT_CLIENT_SECRET="+planted["environment"])
	}, orlaBinary(t), "--config", config)
	o.url, _ = o.waitLog("serving", nil)["url"].(string)

	b := newBetrayal()
	events := o.command("events", "--json")
	var said bytes.Buffer
	events.Stdout = &said
	if err := events.Start(); err != nil {
		t.Fatal(err)
	}

	call := func(name string) {
		a, err := o.call(name, fmt.Sprintf(`{"text":%q}`, planted["argument"]))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		answer, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		if a.Error == nil && !a.Result.IsError {
			if !strings.HasPrefix(name, "http-") { // what is no envelope is a result as it is
				t.Errorf("%s succeeds: %.100s", name, answer)
			}
			return
		}
		// What the client itself has sent it may see again.
		b.search(t, "the answer of "+name, bytes.ReplaceAll(answer, []byte(planted["argument"]), nil))
	}
	var wg sync.WaitGroup
	places := make(chan struct{}, 16)
	for _, name := range names {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			call(name)
		})
	}
	wg.Wait()
	for _, name := range []string{"leaks--fail", "leaks__fail", "dies", "environ"} {
		if a, err := o.call(name, "{}"); err == nil && a.Error == nil {
			answer, _ := json.Marshal(a)
			b.search(t, "the answer of "+name, answer)
		}
	}

	// They have all been shown to whom they are for, and to nobody else.
	for _, name := range names {
		profile, what := split(name)
		heard := strings.Join(g.listened("/"+name+"/"+what), "\n")
		if !strings.Contains(heard, g.profiles()[profile][1]) {
			t.Errorf("the service of %s was not shown the secret; it heard %q", name, heard)
		}
	}
	if n := len(g.listened("token")); n == 0 {
		t.Error("the token endpoint was not asked")
	}
	for _, heard := range g.listened("elsewhere") {
		t.Errorf("another host heard %s", heard)
	}

	// A rotated secret holds from the next call on, without a restart.
	writeSecret(t, tools, planted["rotated"])
	eventually(t, "the rotated secret is shown", func() bool {
		call("http-bearer-500")
		heard := g.listened("/http-bearer-500/500")
		return strings.Contains(heard[len(heard)-1], planted["rotated"])
	})

	for _, args := range [][]string{
		{"status"},
		{"status", "--json"},
		{"status", "leaks"},
		{"status", "dies", "--json"},
		{"status", "http-oauth-500"},
		{"logs", "-n", "100000"},
		{"logs", "-n", "100000", "--json"},
		{"tools"},
		{"tools", "--json"},
		{"config"},
		{"validate"},
		{"call", "http-bearer-envelope", "--result"},
		{"doctor"},
	} {
		s := o.orla(args...)
		b.search(t, "orla "+strings.Join(args, " "), []byte(s.out+s.err))
	}
	list, err := o.post("tools/list", "{}")
	if err != nil {
		t.Fatal(err)
	}
	listed, _ := json.Marshal(list)
	b.search(t, "tools/list", listed)
	resp, err := http.Get(strings.TrimSuffix(o.url, "/mcp") + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || !bytes.Contains(metrics, []byte("orla_")) {
		t.Fatalf("metrics: %v: %.200s", err, metrics)
	}
	b.search(t, "/metrics", metrics)

	o.signal(syscall.SIGUSR1)
	o.signal(syscall.SIGHUP)
	o.waitLog("reload", func(l map[string]any) bool { return l["reason"] == "SIGHUP" })
	_ = events.Process.Kill()
	_ = events.Wait()
	b.search(t, "orla events", said.Bytes())
	if !bytes.Contains(said.Bytes(), []byte("http-bearer-500")) {
		t.Errorf("orla events has no call: %.300s", said.Bytes())
	}
	o.signal(syscall.SIGTERM)
	if code := o.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}

	tracedMu.Lock()
	b.search(t, "a trace", traced.Bytes())
	if !bytes.Contains(traced.Bytes(), []byte("http-bearer-500")) {
		t.Error("no call was traced")
	}
	tracedMu.Unlock()
	o.mu.Lock()
	for _, line := range o.lines {
		var text bytes.Buffer
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(false)
		if err := e.Encode(line); err != nil {
			t.Fatal(err)
		}
		b.search(t, "the log", text.Bytes())
	}
	o.mu.Unlock()
	if err := filepath.WalkDir(state, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		b.search(t, path, text)
		return err
	}); err != nil {
		t.Error(err)
	}
}

// split returns the profile and the behaviour that the name of a tool tells.
func split(name string) (profile, what string) {
	fields := strings.SplitN(name, "-", 3)
	return fields[1], fields[2]
}
