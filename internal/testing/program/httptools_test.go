package program

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/testing/testkit"
)

// httpService is a service with an endpoint for each of the types that speak HTTP.
type httpService struct {
	t   *testing.T
	url string

	mu     sync.Mutex // guards the fields that follow
	asked  []string   // method, path, type of what was sent, and attempt
	base   string     // where answers are pushed to; "" if they are not
	ids    []string
	pushed []int // the statuses that came back
	tokens []string
}

// envelope is what a service that speaks the contract is sent.
type envelope struct {
	ID         string          `json:"request_id"`
	Parameters json.RawMessage `json:"parameters"`
	Context    struct {
		Attempt int    `json:"attempt"`
		Agent   string `json:"agent"`
		Task    string `json:"task"`
	} `json:"context"`
}

// serveHTTPTools starts the service, and writes a folder of tools that call it.
func serveHTTPTools(t *testing.T) (s *httpService, tools string) {
	t.Helper()
	s = &httpService{t: t}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /raw", s.raw)
	mux.HandleFunc("POST /envelope", s.envelope)
	mux.HandleFunc("POST /jobs", s.accept)
	mux.HandleFunc("GET /jobs/{id}", s.poll)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	s.url = server.URL
	tools = t.TempDir()
	for name, spec := range map[string]string{
		"raw":    "type: http\n  endpoint: %s/raw\n  auth: {secretRef: key}",
		"strict": "type: external\n  endpoint: %s/envelope\n  runtime: {retry: {max_attempts: 3, backoff: 1ms}}",
		"job":    "type: webhook-callback\n  endpoint: %s/jobs?v=1\n  auth: {secretRef: key}",
	} {
		text := "apiVersion: orloj.dev/v1\nkind: Tool\nmetadata: {name: " + name + "}\nspec:\n  " + fmt.Sprintf(spec, s.url) + "\n  description: A service.\n  input_schema: {type: object}\n"
		if err := os.WriteFile(filepath.Join(tools, name+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	secret := "apiVersion: orloj.dev/v1\nkind: Secret\nmetadata: {name: key}\nspec: {stringData: {value: hunter2-hunter2}}\n"
	if err := os.WriteFile(filepath.Join(tools, "secret.yaml"), []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	return s, tools
}

// note remembers a request, and returns it as an envelope if it is one.
func (s *httpService) note(r *http.Request) (e envelope, body []byte) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Error(err)
	}
	_ = json.Unmarshal(body, &e) // arguments are none
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, fmt.Sprintf("%s %s %s %d", r.Method, r.URL.Path, r.Header.Get("X-Tool-Contract-Version"), e.Context.Attempt))
	s.tokens = append(s.tokens, r.Header.Get("Authorization"))
	return e, body
}

// raw answers with what it was sent.
func (s *httpService) raw(w http.ResponseWriter, r *http.Request) {
	_, body := s.note(r)
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"status":"queued","got":%s}`, body)
}

// envelope answers the third attempt of a call.
func (s *httpService) envelope(w http.ResponseWriter, r *http.Request) {
	e, _ := s.note(r)
	switch e.Context.Attempt {
	case 1:
		w.WriteHeader(http.StatusServiceUnavailable)
	case 2:
		_, _ = fmt.Fprintf(w, `{"request_id":%q,"status":"error","error":{"tool_code":"quota","tool_reason":"none left","retryable":true}}`, e.ID)
	default:
		_, _ = fmt.Fprintf(w, `{"request_id":%q,"status":"success","result":{"got":%s,"agent":%q}}`, e.ID, e.Parameters, e.Context.Agent)
	}
}

// accept takes a job, and pushes its answer if there is where to.
func (s *httpService) accept(w http.ResponseWriter, r *http.Request) {
	e, _ := s.note(r)
	s.mu.Lock()
	s.ids = append(s.ids, e.ID)
	base := s.base
	s.mu.Unlock()
	if base != "" {
		for _, status := range []string{"running", "success", "success"} {
			s.push(base, e.ID, status)
		}
	}
	w.WriteHeader(http.StatusAccepted)
}

func (s *httpService) push(base, id, status string) {
	body := fmt.Sprintf(`{"request_id":%q,"status":%q,"result":"pushed"}`, id, status)
	resp, err := http.Post(base+"/callbacks/"+id, "application/json", strings.NewReader(body))
	if err != nil {
		s.t.Error(err)
		return
	}
	_ = resp.Body.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pushed = append(s.pushed, resp.StatusCode)
}

func (s *httpService) poll(w http.ResponseWriter, r *http.Request) {
	s.note(r)
	if r.URL.RawQuery != "v=1" {
		s.t.Errorf("polled %s", r.URL)
	}
	_, _ = fmt.Fprintf(w, `{"request_id":%q,"status":"success","result":"polled"}`, r.PathValue("id"))
}

// answers returns what came of the three answers that were pushed. The call does
// not wait for the last of them.
func (s *httpService) answers() []int {
	s.t.Helper()
	var all []int
	testkit.Eventually(s.t, "all answers are pushed", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		all = slices.Clone(s.pushed)
		return len(all) == 3
	})
	return all
}

// callThree calls the three tools, and checks what a client sees of them.
func callThree(t *testing.T, client *mcp.ClientSession, progress <-chan *mcp.ProgressNotificationParams, agent, job string) {
	t.Helper()
	see := func(name string, params *mcp.CallToolParams) (text, structured string) {
		t.Helper()
		params.Name, params.Arguments = name, json.RawMessage(`{"n":1.10,"big":12345678901234567890}`)
		res, err := client.CallTool(t.Context(), params)
		if err != nil || res.IsError || len(res.Content) != 1 {
			t.Fatalf("%s: %+v, %v", name, res, err)
		}
		raw, err := json.Marshal(res.StructuredContent)
		if err != nil {
			t.Fatal(err)
		}
		return res.Content[0].(*mcp.TextContent).Text, string(raw)
	}
	const got = `{"n":1.10,"big":12345678901234567890}`
	if text, structured := see("raw", &mcp.CallToolParams{}); text != `{"status":"queued","got":`+got+`}` || !strings.Contains(structured, `"status":"queued"`) {
		t.Errorf("raw = %s, structured %s", text, structured)
	}
	if text, _ := see("strict", &mcp.CallToolParams{}); text != `{"got":`+got+`,"agent":"`+agent+`"}` {
		t.Errorf("strict = %s", text)
	}
	params := &mcp.CallToolParams{}
	params.SetProgressToken("p")
	if text, _ := see("job", params); text != job {
		t.Errorf("job = %s; want %s", text, job)
	}
	if job == "polled" {
		if p := <-progress; !strings.Contains(p.Message, "job is at work") || p.Progress != 1 {
			t.Errorf("progress = %+v", p)
		}
	}
}

// connectHTTPTools connects a client that passes progress on.
func connectHTTPTools(t *testing.T, transport mcp.Transport) (*mcp.ClientSession, <-chan *mcp.ProgressNotificationParams) {
	t.Helper()
	progress := make(chan *mcp.ProgressNotificationParams, 16) // more than one call tells
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { progress <- r.Params },
	})
	session, err := client.Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() }) // the server may be gone
	return session, progress
}

// SPEC-TOOLS 3.1, 3.2, 3.4: the types that speak HTTP, as a client on HTTP sees
// them, and the answer that is pushed.
func TestHTTPToolsOverHTTP(t *testing.T) {
	t.Parallel()
	s, tools := serveHTTPTools(t)
	o := startOrla(t, t.TempDir(), "--tools-dir", tools, "--port", "0", "--log-level", "debug")
	o.url, _ = o.waitLog("serving", nil)["url"].(string)
	client, progress := connectHTTPTools(t, &mcp.StreamableClientTransport{Endpoint: o.url})
	callThree(t, client, progress, "anonymous", "polled")

	s.mu.Lock()
	s.base = strings.TrimSuffix(o.url, "/mcp")
	s.mu.Unlock()
	callThree(t, client, progress, "anonymous", "pushed")
	if got := s.answers(); got[0] != 400 || got[1] != 204 || got[2] != 404 && got[2] != 409 {
		t.Errorf("pushed: %v; want 400, 204, and 404 or 409", got)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	want := []string{"POST /raw  0", "POST /envelope v1 1", "POST /envelope v1 2", "POST /envelope v1 3", "POST /jobs v1 1"}
	if got := slices.DeleteFunc(slices.Clone(s.asked), func(a string) bool { return strings.HasPrefix(a, "GET ") }); !slices.Equal(got, slices.Concat(want, want)) {
		t.Errorf("asked %q", got)
	}
	if !slices.Contains(s.tokens, "Bearer hunter2-hunter2") {
		t.Errorf("shown %q", s.tokens)
	}
	told := o.waitLog("request", func(l map[string]any) bool { return strings.Contains(fmt.Sprint(l["path"]), "callbacks") })
	if told["path"] != "/callbacks/{request_id}" {
		t.Errorf("the log tells of %v", told)
	}
}

// On stdio the same is so, and there is polling alone.
func TestHTTPToolsOverStdio(t *testing.T) {
	t.Parallel()
	_, tools := serveHTTPTools(t)
	cmd := exec.Command(orlaBinary(t), "--stdio", "--tools-dir", tools)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	cmd.Dir = t.TempDir()
	client, progress := connectHTTPTools(t, &mcp.CommandTransport{Command: cmd})
	callThree(t, client, progress, "stdio", "polled")
}

// A callback needs no token, since the id is one; a browser's page is refused.
func TestCallbacksAreGuardedByTheirID(t *testing.T) {
	t.Parallel()
	s, tools := serveHTTPTools(t)
	dir := t.TempDir()
	const token = "0123456789abcdef"
	for name, text := range map[string]string{
		"token":     token,
		"orla.yaml": "port: 0\ntools_dir: " + tools + "\nauth:\n  tokens:\n    - name: ci\n      file: token\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := startOrla(t, dir)
	o.url, _ = o.waitLog("serving", nil)["url"].(string)
	base := strings.TrimSuffix(o.url, "/mcp")
	status := func(path, key, value string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+path, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"job"}}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set(key, value)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	s.mu.Lock()
	s.base = base
	s.mu.Unlock()
	for _, c := range []struct {
		path, key, value string
		want             int
	}{
		{"/mcp", "X-None", "", 401},
		{"/mcp", "Authorization", "Bearer " + token, 200},
		{"/callbacks/AAAAAAAAAAAAAAAAAAAAAAAAAA", "X-None", "", 404},
		{"/callbacks/AAAAAAAAAAAAAAAAAAAAAAAAAA", "Origin", "http://localhost", 403},
		{"/callbacks/", "X-None", "", 404},
		{"/callbacks/a/b", "X-None", "", 404},
	} {
		if got := status(c.path, c.key, c.value); got != c.want {
			t.Errorf("%s with %s: status = %d; want %d", c.path, c.key, got, c.want)
		}
	}
	if got := s.answers(); got[1] != http.StatusNoContent {
		t.Errorf("pushed: %v; want the second to be taken", got)
	}
}
