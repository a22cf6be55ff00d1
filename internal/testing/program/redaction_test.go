package program

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/orla-project/orla/internal/observe/history"
	"github.com/orla-project/orla/internal/observe/logging"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
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

// plot is an Orla with secrets of every source, and services that betray them.
type plot struct {
	*gossip
	*running
	t                    *testing.T
	betrayal             betrayal
	tools, state         string
	secrets, credentials string
	names                []string // of the tools that are services

	mu     sync.Mutex // guards traced
	traced bytes.Buffer
}

// hatch lays everything out and starts Orla.
func hatch(t *testing.T) *plot {
	dir := t.TempDir()
	p := &plot{
		gossip: newGossip(t), t: t, betrayal: newBetrayal(),
		tools: filepath.Join(dir, "tools"), state: filepath.Join(dir, "state"),
		secrets: filepath.Join(dir, "secrets"), credentials: filepath.Join(dir, "credentials"),
	}
	p.writeServices()
	p.writeSecret(planted["resource"])
	testkit.WriteTool(t, p.secrets, "from-file/key", planted["file"]+"\n")
	testkit.WriteTool(t, p.credentials, "from-credential", planted["user"]+":"+planted["credential"])
	testkit.WriteTool(t, dir, "server.py", leakingServer)
	for name, more := range map[string]string{"leaks": "", "dies": "\n    - {name: DIES, value: 'yes'}", "refuses": "\n    - {name: REFUSES, value: 'yes'}"} {
		testkit.WriteTool(t, p.tools, name+".yaml", `apiVersion: orloj.dev/v1
kind: McpServer
metadata: {name: `+name+`}
spec:
  transport: stdio
  command: python3
  args: [`+filepath.Join(dir, "server.py")+`]
  env:
    - {name: LEAK, secretRef: 'from-resource:server'}`+more+"\n")
	}
	testkit.WriteTool(t, p.tools, "environ.sh", "#!/bin/sh\nenv\n")

	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.traced.Write(body)
	}))
	t.Cleanup(collector.Close)
	config := testkit.WriteTool(t, dir, "orla.yaml", fmt.Sprintf("port: 0\ntools_dir: tools\nsecrets_dir: secrets\nstate_dir: state\nlog_level: debug\ntool_container_engine: none\ntracing: {endpoint: %q}\n", collector.URL))
	p.running = startPrepared(t, dir, func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, "OTEL_BSP_SCHEDULE_DELAY=50", "CREDENTIALS_DIRECTORY="+p.credentials,
			"ORLOJ_SECRET_FROM_ENVIRONMENT_CLIENT_ID="+planted["client id"], "ORLOJ_SECRET_FROM_ENVIRONMENT_CLIENT_SECRET="+planted["environment"])
	}, orlaBinary(t), "--config", config)
	p.url, _ = p.waitLog("serving", nil)["url"].(string)
	return p
}

// writeServices writes a tool for each type, profile and behaviour.
func (p *plot) writeServices() {
	var text strings.Builder
	for kind, runtime := range map[string]string{
		"http":             "timeout: 2s, retry: {max_attempts: 2, backoff: 1ms}",
		"external":         "timeout: 2s, retry: {max_attempts: 2, backoff: 1ms}",
		"webhook-callback": "timeout: 3s",
		"grpc":             "timeout: 2s, retry: {max_attempts: 2, backoff: 1ms}",
	} {
		all := behaviours
		if kind == "grpc" {
			all = overGRPC
		}
		for profile, auth := range p.profiles() {
			for _, what := range all {
				first, _, _ := strings.Cut(kind, "-")
				name := strings.Join([]string{first, profile, what}, "-")
				endpoint := p.URL + "/" + name + "/" + what + "?in=query"
				if kind == "grpc" {
					endpoint = strings.Replace(p.grpc.URL, "http", "grpc", 1)
				}
				fmt.Fprintf(&text, `---
apiVersion: orloj.dev/v1
kind: Tool
metadata: {name: %s}
spec: {type: %s, endpoint: '%s', auth: %s, runtime: {%s}}
`, name, kind, endpoint, auth[0], runtime)
				p.names = append(p.names, name)
			}
		}
	}
	for profile, auth := range p.profiles() {
		server := func(name, what string) {
			fmt.Fprintf(&text, `---
apiVersion: orloj.dev/v1
kind: McpServer
metadata: {name: %[1]s}
spec: {transport: http, endpoint: '%[2]s/%[1]s/%[3]s?in=query', auth: %[4]s, default_tool_runtime: {timeout: 2s}}
`, name, p.URL, what, auth[0])
		}
		for _, what := range behaviours {
			server("far-"+profile+"-"+what, what)
			p.names = append(p.names, "far-"+profile+"-"+what)
		}
		server("near-"+profile, "mcp")
		for _, what := range append(overMCP, behaviours...) {
			p.names = append(p.names, "near-"+profile+"--"+what)
		}
	}
	testkit.WriteTool(p.t, p.tools, "tools.yaml", text.String())
}

func (p *plot) writeSecret(value string) {
	p.t.Helper()
	text, err := json.Marshal(map[string]any{
		"apiVersion": "orloj.dev/v1", "kind": "Secret", "metadata": map[string]string{"name": "from-resource"},
		"stringData": map[string]string{"value": value, "server": planted["server"]},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	testkit.WriteTool(p.t, p.tools, "secrets.yaml", string(text))
}

// call calls a tool, and looks at what it answers.
func (p *plot) call(name string) {
	a, err := p.running.call(name, fmt.Sprintf(`{"text":%q}`, planted["argument"]))
	if err != nil {
		p.t.Errorf("%s: %v", name, err)
		return
	}
	answer, err := json.Marshal(a)
	switch {
	case err != nil:
		p.t.Error(err)
	case a.Error == nil && !a.Result.IsError && !strings.HasPrefix(name, "http-") && !strings.HasSuffix(name, "success"): // what is not an envelope is a result as it is
		p.t.Errorf("%s succeeds: %.100s", name, answer)
	case a.Error != nil || a.Result.IsError:
		if strings.HasSuffix(name, "success") && !strings.HasPrefix(name, "far-") && !strings.HasPrefix(name, "near-") {
			p.t.Errorf("%s fails: %.300s", name, answer)
		}
	}
	// What the client itself has sent it may see again.
	p.betrayal.search(p.t, "the answer of "+name, bytes.ReplaceAll(answer, []byte(planted["argument"]), nil))
}

// SPEC-TOOLS 5.3: secrets of every source and profile, shown to services and a
// server that repeat them wherever they can, are nowhere in what Orla says: its
// log at its most talkative, its errors, status, events, metrics, traces, and
// what it keeps.
func TestNoSecretIsShown(t *testing.T) {
	t.Parallel()
	needs.Time(t, "makes hundreds of calls")
	p := hatch(t)
	events := p.command("events", "--json")
	var happened bytes.Buffer
	events.Stdout = &happened
	if err := events.Start(); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	places := make(chan struct{}, 64) // calls at once
	for _, name := range append(p.names, "leaks--fail", "leaks--plain", "dies", "refuses") {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			p.call(name)
		})
	}
	wg.Wait()
	p.betrayal.search(t, "the environment of a tool", []byte(p.mustCall("environ")))
	p.check()

	// A rotated secret holds from the next call on, without a restart.
	p.writeSecret(planted["rotated"])
	testkit.Eventually(t, "the rotated secret is shown", func() bool {
		p.call("http-bearer-500")
		heard := p.listened("http-bearer-500")
		return strings.Contains(heard[len(heard)-1], planted["rotated"])
	})
	p.waitLog("stderr", func(l map[string]any) bool {
		return l["tool"] == "leaks" && strings.HasPrefix(fmt.Sprint(l["text"]), "stderr has [redacted] [redacted] ")
	})

	p.ask()
	p.signal(syscall.SIGUSR1)
	p.signal(syscall.SIGHUP)
	p.waitLog("reload", func(l map[string]any) bool { return l["reason"] == "SIGHUP" })
	_ = events.Process.Kill()
	_ = events.Wait() // it was killed
	p.betrayal.search(t, "orla events", happened.Bytes())
	if !bytes.Contains(happened.Bytes(), []byte("http-bearer-500")) {
		t.Errorf("orla events has no call: %.300s", happened.Bytes())
	}
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	p.searchWhatIsLeft()
}

// check asserts that the secrets were shown to whom they are for, and to nobody else.
func (p *plot) check() {
	p.t.Helper()
	for _, name := range p.names {
		profile, _ := split(name)
		service, _, _ := strings.Cut(name, "--")
		testkit.Eventually(p.t, name+": the service is asked", func() bool { // where many call, the time of some is over before
			asked := len(p.listened(service)) > 0
			if !asked {
				p.call(name)
			}
			return asked
		})
		for i, heard := range p.listened(service) {
			if !strings.Contains(heard, p.profiles()[profile][1]) {
				p.t.Errorf("%s: request %d came without the secret: %q", name, i, heard)
			}
		}
	}
	if len(p.listened("token")) == 0 {
		p.t.Error("the token endpoint was not asked")
	}
	for _, heard := range p.listened("elsewhere") { // polls may be sent there, but without anything
		p.betrayal.search(p.t, "another host", []byte(heard))
	}
}

// ask asks Orla in every way there is.
func (p *plot) ask() {
	for _, args := range [][]string{
		{"status"},
		{"status", "--json"},
		{"status", "leaks"},
		{"status", "dies", "--json"},
		{"status", "refuses"},
		{"status", "http-oauth-500"},
		{"logs", "-n", "10000"},
		{"logs", "-n", "10000", "--json"},
		{"tools"},
		{"tools", "--json"},
		{"config"},
		{"validate"},
		{"doctor"},
		{"call", "http-bearer-envelope", "--result"},
		{"restart", "dies"},
		{"restart", "refuses"},
	} {
		s := p.orla(args...)
		p.betrayal.search(p.t, "orla "+strings.Join(args, " "), []byte(s.out+s.err))
	}
	list, err := p.post("tools/list", "{}")
	if err != nil {
		p.t.Fatal(err)
	}
	listed, err := json.Marshal(list)
	if err != nil {
		p.t.Fatal(err)
	}
	p.betrayal.search(p.t, "tools/list", listed)
	resp, err := http.Get(strings.TrimSuffix(p.url, "/mcp") + "/metrics")
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	metrics, err := io.ReadAll(resp.Body)
	if err != nil || !bytes.Contains(metrics, []byte("http-bearer-500")) {
		p.t.Errorf("metrics: %v: %.200s", err, metrics)
	}
	p.betrayal.search(p.t, "/metrics", metrics)
}

// searchWhatIsLeft looks at the log, the traces and the state folder.
func (p *plot) searchWhatIsLeft() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.betrayal.search(p.t, "a trace", p.traced.Bytes())
	if !bytes.Contains(p.traced.Bytes(), []byte("http-bearer-500")) {
		p.t.Error("no call was traced")
	}
	p.running.mu.Lock()
	defer p.running.mu.Unlock()
	for _, line := range p.lines {
		var text bytes.Buffer
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(false)
		if err := e.Encode(line); err != nil {
			p.t.Fatal(err)
		}
		p.betrayal.search(p.t, "the log", text.Bytes())
	}
	if err := filepath.WalkDir(p.state, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		p.betrayal.search(p.t, path, text)
		return err
	}); err != nil {
		p.t.Error(err)
	}
}

// split returns the profile and the behaviour that the name of a tool tells.
func split(name string) (profile, what string) {
	fields := strings.SplitN(name, "-", 3)
	if len(fields) < 3 {
		return "", ""
	}
	return fields[1], fields[2]
}

// SPEC-TOOLS 5.3: a secret that is logged is [redacted] in every format, however
// deep it is in what is logged.
func TestSecretsInTheLogAreRedacted(t *testing.T) {
	t.Parallel()
	value := secret.NewValue(planted["resource"])
	deep := struct {
		inner []struct{ value secret.Value }
	}{[]struct{ value secret.Value }{{value}}}
	b := newBetrayal()
	for _, format := range []string{logging.JSON, logging.Pretty} {
		var out bytes.Buffer
		l := logging.New(&out, "")
		l.Configure("debug", format, nil)
		for _, what := range []any{value, &value, deep, &deep, map[string]secret.Value{"key": value}, fmt.Errorf("using %v", value)} {
			l.With("with", what).Debug("x", "what", what, slog.Group("group", "what", what))
		}
		if !strings.Contains(out.String(), "[redacted]") {
			t.Errorf("%s: the log is %s", format, &out)
		}
		b.search(t, "the log as "+format, out.Bytes())
		for _, line := range l.History().Last(history.Query{}) {
			b.search(t, "the history", line.JSON)
		}
	}
}
