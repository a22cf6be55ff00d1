package program

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// errorPage is the page of a code.
func errorPage(code fault.Code) string {
	return filepath.Join("..", "..", "..", "docs", "errors", string(code)+".md")
}

// word says whether a code is retryable as the tables do.
func word(code fault.Code) string {
	if code.Retryable() {
		return "yes"
	}
	return "no"
}

// SPEC-TOOLS §4: each code has a page, a row in the table that links to
// it, and one in the table of the pages; all say the same of trying again.
func TestEachErrorHasAPage(t *testing.T) {
	t.Parallel()
	codes := map[string]bool{"README": true}
	tables := map[string]string{
		"docs/errors/README.md": section(t, "docs/errors/README.md", "The codes"),
	}
	prefix := map[string]string{"docs/errors/README.md": ""}
	for _, code := range fault.Codes() {
		codes[string(code)] = true
		for file, table := range tables {
			row := fmt.Sprintf("\n| [`%s`](%s%s.md) | %s", code, prefix[file], code, word(code))
			if !strings.Contains(table, row) {
				t.Errorf("%s has no row that begins with %s", file, strings.TrimSpace(row))
			}
		}
		text, err := os.ReadFile(errorPage(code))
		if err != nil {
			t.Error(err)
			continue
		}
		if head := fmt.Sprintf("# `%s`\n\nRetryable: **%s**", code, word(code)); !strings.HasPrefix(string(text), head) {
			t.Errorf("the page of %s does not begin with\n%s", code, head)
		}
		for _, part := range []string{"\n## When\n", "\n## What to do\n", "\n## Example\n"} {
			if !strings.Contains(string(text), part) {
				t.Errorf("the page of %s has no part %s", code, strings.TrimSpace(part))
			}
		}
	}
	pages, err := filepath.Glob(errorPage("*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		if name := strings.TrimSuffix(filepath.Base(page), ".md"); !codes[name] {
			t.Errorf("%s is the page of no code", page)
		}
	}
}

// errorTools are tools that fail. NAME stands for the address of a service.
var errorTools = map[string]string{
	"greet": "#!/bin/sh\n# /// tool\n# input_schema:\n#   name: string\n#   times: integer?\n# ///\necho hello\n",
	"slow":  "#!/bin/sh\n# /// tool\n# timeout: 3s\n# ///\necho \"12 of 90 pages\"\nexec sleep 100\n",
	"crawl": "#!/bin/sh\n# /// tool\n# timeout: 10m\n# ///\nexec sleep 100\n",
	"fails": "#!/bin/sh\necho 'cannot open report.csv' >&2\nexit 3\n",
	"crash/tool.yaml": "name: crash\nversion: 1.0.0\ndescription: Crashes.\nentrypoint: main.sh\nmcp: {input_schema: {type: object}}\n" +
		"runtime: {mode: capsule, restart: {initial_ms: 3600000, max_ms: 3600000}}\n",
	"crash/main.sh": "#!/bin/sh\necho '" + `{"jsonrpc":"2.0","method":"orla.hello","params":{"name":"crash","version":"1.0.0","capabilities":[]}}` + "'\n" +
		"while read -r line; do case $line in *tools/call*) exit 7 ;; esac; done\n",
	"stats/tool.yaml": "name: stats\nversion: 1.0.0\ndescription: Counts.\nentrypoint: main.sh\nmcp: {input_schema: {type: object}}\n" +
		"runtime: {mode: capsule, restart: {initial_ms: 3600000, max_ms: 3600000}}\n",
	"stats/main.sh": "#!/bin/sh\necho 'ModuleNotFoundError: No module named numpy' >&2\nexit 1\n",
	"model/tool.yaml": "name: model\nversion: 1.0.0\ndescription: Takes its time.\nentrypoint: main.sh\nmcp: {input_schema: {type: object}}\n" +
		"runtime: {mode: capsule, startup_timeout_ms: 3600000}\n",
	"model/main.sh": "#!/bin/sh\nexec sleep 3600\n",
	"services.yaml": resource("weather", "http", "NAME/429", "") + resource("news", "http", "NAME/401", "") + resource("payroll", "http", "NAME/403", "") +
		resource("intranet", "http", "http://10.0.0.1/search", "") + resource("mail", "http", "NAME/401", "\n  auth: {secretRef: mail-token}") +
		resource("deploy", "external", "NAME/permission_denied", "") + resource("pay", "external", "NAME/approval_pending", "") +
		resource("erase", "external", "NAME/approval_denied", "") + resource("order", "external", "NAME/approval_timeout", ""),
	"build/tool.yaml": "name: build\nversion: 1.0.0\ndescription: Builds.\nentrypoint: main.sh\nruntime: {isolation_mode: container, image: localhost/builder}\n",
	"build/main.sh":   "#!/bin/sh\n",
}

func resource(name, kind, endpoint, more string) string {
	return fmt.Sprintf("---\napiVersion: orloj.dev/v1\nkind: Tool\nmetadata: {name: %s}\nspec:\n  type: %s\n  endpoint: %s%s\n", name, kind, endpoint, more)
}

// errorService answers with the status, or with the code, that the path names.
func errorService(w http.ResponseWriter, r *http.Request) {
	var req struct {
		ID string `json:"request_id"`
	}
	_ = json.NewDecoder(r.Body).Decode(&req) // the arguments of type http have none
	said := map[string][2]any{
		"permission_denied": {"tool_permission_denied: ada may not deploy on a Friday", false},
		"approval_pending":  {"the payment waits for the treasurer; ask again with the same reference", false},
		"approval_denied":   {"the treasurer has declined", false},
		"approval_timeout":  {"nobody decided within 10m0s", false},
	}
	switch path := strings.Trim(r.URL.Path, "/"); path {
	case "429":
		w.Header().Set("Retry-After", "7")
		http.Error(w, "60 requests a minute", http.StatusTooManyRequests)
	case "401":
		http.Error(w, "the token has expired", http.StatusUnauthorized)
	case "403":
		http.Error(w, "payroll is for the payroll office", http.StatusForbidden)
	default:
		_ = json.NewEncoder(w).Encode(map[string]any{"request_id": req.ID, "status": "error", "error": map[string]any{
			"tool_code": path, "tool_reason": said[path][0], "retryable": said[path][1],
		}})
	}
}

// errorExamples are the calls whose answers the pages show.
var errorExamples = map[fault.Code][2]string{
	fault.InvalidInput:           {"greet", `{"name": "Ada", "times": "twice"}`},
	fault.UnsupportedTool:        {"gret", `{}`},
	fault.RuntimePolicyInvalid:   {"intranet", `{}`},
	fault.IsolationUnavailable:   {"build", `{}`},
	fault.PermissionDenied:       {"deploy", `{}`},
	fault.ApprovalPending:        {"pay", `{}`},
	fault.ApprovalDenied:         {"erase", `{}`},
	fault.ApprovalTimeout:        {"order", `{}`},
	fault.SecretResolutionFailed: {"mail", `{}`},
	fault.AuthInvalid:            {"news", `{}`},
	fault.AuthForbidden:          {"payroll", `{}`},
	fault.RateLimited:            {"weather", `{}`},
	fault.Timeout:                {"slow", `{}`},
	fault.NotReady:               {"model", `{}`},
	fault.Crashed:                {"crash", `{}`},
	fault.StartFailed:            {"stats", `{}`},
	fault.ExecutionFailed:        {"fails", `{}`},
}

// nextStart is when a capsule is started again, which is never the same.
var nextStart = regexp.MustCompile(`due in [0-9hms.]+`)

// jsonBlock is the block of JSON in a page.
var jsonBlock = regexp.MustCompile("(?ms)^```json\n(.*?)^```$")

// What the pages show is what Orla answers. UPDATE=1 in the environment writes
// what it answers now.
func TestTheErrorsAreAsDescribed(t *testing.T) {
	t.Parallel()
	needs.Time(t, "waits for deadlines")
	service := httptest.NewServer(http.HandlerFunc(errorService))
	defer service.Close()
	tools := t.TempDir()
	for name, text := range errorTools {
		testkit.WriteTool(t, tools, name, strings.ReplaceAll(text, "NAME", service.URL))
	}
	o := startOrla(t, t.TempDir(), "--config", writeConfig(t, tools, "queue_timeout: 2s\ntool_container_engine: none\n"))
	o.url, _ = o.waitLog("serving", nil)["url"].(string)
	usual := strings.NewReplacer(service.URL, "http://127.0.0.1:8090", tools, "/home/ada/tools")
	o.waitLog("state", is("crash", "READY"))
	o.waitLog("state", is("stats", "CRASHED"))
	for code, call := range errorExamples {
		got := nextStart.ReplaceAllString(usual.Replace(o.shown(call[0], call[1])), "due in 1h2m0s")
		if !strings.Contains(got, `"`+string(code)+`"`) && code != fault.UnsupportedTool {
			t.Errorf("%s answers something else than %s: %s", call[0], code, got)
			continue
		}
		compareExample(t, code, got)
	}
	compareExample(t, fault.Canceled, o.cancelledCall("crawl"))
}

// shown calls a tool and returns its answer for people.
func (o *running) shown(tool, args string) string {
	o.t.Helper()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, tool, args)
	req, err := http.NewRequest(http.MethodPost, o.url, strings.NewReader(body))
	if err != nil {
		o.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		o.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var raw bytes.Buffer
	if _, err := raw.ReadFrom(resp.Body); err != nil {
		o.t.Fatal(err)
	}
	var answer map[string]json.RawMessage
	for line := range bytes.Lines(raw.Bytes()) {
		if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
			if err := json.Unmarshal(data, &answer); err != nil {
				o.t.Fatal(err)
			}
		}
	}
	for _, part := range []string{"result", "error"} {
		if answer[part] != nil {
			return indentedJSON(o.t, answer[part])
		}
	}
	o.t.Fatalf("%s answers %s", tool, &raw)
	return ""
}

func indentedJSON(t *testing.T, raw []byte) string {
	t.Helper()
	var out bytes.Buffer
	if err := json.Indent(&out, raw, "", "  "); err != nil {
		t.Fatal(err)
	}
	return out.String() + "\n"
}

// cancelledCall returns the log line of a call whose client cancels it.
func (o *running) cancelledCall(tool string) string {
	o.t.Helper()
	session, log := goClient(o.t, o), o.follow()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		_, err := session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: map[string]any{}})
		done <- err
	}()
	testkit.Eventually(o.t, "a call is in flight", func() bool {
		o.signal(syscall.SIGUSR1)
		return fmt.Sprint(log.next("summary", nil)["in_flight"]) == "1"
	})
	cancel()
	line := log.next("call", func(l map[string]any) bool { return l["tool"] == tool && l["code"] == "canceled" })
	if err := <-done; err == nil {
		o.t.Error("the client got an answer all the same")
	}
	for _, key := range []string{"time", "call_id", "session", "duration_ms", "request_bytes", "response_bytes"} {
		delete(line, key)
	}
	raw, err := json.Marshal(line)
	if err != nil {
		o.t.Fatal(err)
	}
	return indentedJSON(o.t, raw)
}

// compareExample compares the example of a page with what Orla answers.
func compareExample(t *testing.T, code fault.Code, got string) {
	t.Helper()
	page := errorPage(code)
	text, err := os.ReadFile(page)
	if err != nil {
		t.Error(err)
		return
	}
	shown := jsonBlock.FindAllSubmatchIndex(text, -1)
	if len(shown) != 1 {
		t.Errorf("%s shows %d answers; want one", page, len(shown))
		return
	}
	from, to := shown[0][2], shown[0][3]
	took := regexp.MustCompile(`"duration_ms": \d+`)
	if want := string(text[from:to]); took.ReplaceAllString(got, "") == took.ReplaceAllString(want, "") {
		return
	} else if os.Getenv("UPDATE") == "" {
		t.Errorf("Orla answers\n%s%s shows\n%s", got, page, want)
		return
	}
	changed := append(append(bytes.Clone(text[:from]), got...), text[to:]...)
	if err := os.WriteFile(page, changed, 0o644); err != nil {
		t.Fatal(err)
	}
}
