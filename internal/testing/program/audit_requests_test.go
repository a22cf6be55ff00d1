package program

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/testing/testkit"
)

// bearer sends a token with each request.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// session is a client of the Go SDK of a version of the protocol, with the token of a caller.
func (r *ruled) session(caller, version string) *mcp.ClientSession {
	r.t.Helper()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(r.t.Context(),
		&mcp.StreamableClientTransport{Endpoint: r.url, HTTPClient: &http.Client{Transport: bearer(r.tokens[caller])}}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = session.Close() }) // the server may be gone
	return session
}

// requestsIn returns the requests of a caller in an audit log.
func requestsIn(t *testing.T, path, caller string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var l struct {
			auditLine
			Method, URI, Prompt, Rule string
			Took                      *float64 `json:"duration_ms"`
		}
		if err := json.Unmarshal(line, &l); err != nil {
			continue // it is being written
		}
		if l.Event != "request" || l.Caller != caller {
			continue
		}
		if l.Took == nil || (l.Verdict == "deny") != (l.Rule != "") {
			t.Errorf("%s", line)
		}
		all = append(all, strings.Join(strings.Fields(fmt.Sprint(l.Method, " ", l.URI+l.Prompt, " ", l.Target, " ", l.Verdict, " ", l.Outcome)), " "))
	}
	return all
}

// SPEC-TOOLS 8.8, 8.6: whoever reads a resource, gets a prompt, completes something or follows a resource has one line for it in the audit log, in each
// era and in a batch, and also if the rules refuse it. Lists have none.
func TestT88EveryReadHasALine(t *testing.T) {
	t.Parallel()
	r := serveRuled(t, `apiVersion: orloj.dev/v1
kind: AgentPolicy
metadata: {name: nobox}
spec: {target_systems: [eve], blocked_tools: [box]}
`, "callers:\n  - {name: eve}\naudit_log: audit.log\nstate_dir: state\n")
	r.knows("bob")
	path := filepath.Join(r.dir, "audit.log")

	want := map[string][]string{}
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		for _, caller := range []string{"ann", "eve"} {
			s, may := r.session(caller, version), caller == "ann"
			how := map[bool]string{true: "box allow ok", false: "box deny permission_denied"}[may]
			if got := s.InitializeResult().ProtocolVersion; got != version {
				t.Fatalf("the client speaks %s and not %s", got, version)
			}
			if _, err := s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "box://one"}); (err == nil) != may {
				t.Errorf("%s: a resource for %s: %v", version, caller, err)
			}
			if _, err := s.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "ask", Arguments: map[string]string{"a": "s3cret"}}); (err == nil) != may {
				t.Errorf("%s: a prompt for %s: %v", version, caller, err)
			}
			if _, err := s.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "nope"}); err == nil {
				t.Errorf("%s: %s gets a prompt that is not there", version, caller)
			}
			_, _ = s.Complete(t.Context(), &mcp.CompleteParams{Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: "ask"}, Argument: mcp.CompleteParamsArgument{Name: "a"}})
			if _, err := s.ListResources(t.Context(), nil); err != nil {
				t.Error(err)
			}
			want[caller] = append(want[caller], "resources/read box://one "+how, "prompts/get ask "+how, "prompts/get nope none -32602", "completion/complete ask "+how)
		}
	}
	for _, caller := range []string{"ann", "eve"} {
		how := map[string]string{"ann": "box allow ok", "eve": "box deny permission_denied"}[caller]
		r.listens(caller)
		_, _, _ = r.posts(caller, "", `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"\u0075ri":"box:\/\/one"}}`)
		_, headers := r.send(caller, openEra)
		r.send(caller, `[{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"box://one"}}]`, "Mcp-Session-Id", headers.Get("Mcp-Session-Id"), "Mcp-Protocol-Version", "2025-03-26")
		r.send(caller, `[{"jsonrpc":"2.0","id":1,"method":"resources/list"},{"jsonrpc":"2.0","id":2,"method":"resources/read","params":{"uri":"box://one"}}]`,
			"Mcp-Session-Id", headers.Get("Mcp-Session-Id"), "Mcp-Protocol-Version", "2025-03-26")
		want[caller] = append(want[caller], "subscriptions/listen box://one "+how, "resources/read box://one "+how, "resources/subscribe box://one "+how, "resources/read box://one "+how)
	}
	for caller, want := range want {
		testkit.Eventually(t, "the requests of "+caller+" are in the audit log", func() bool { return len(requestsIn(t, path, caller)) >= len(want) })
		if got := requestsIn(t, path, caller); !slices.Equal(got, want) {
			t.Errorf("the requests of %s are\n%s\nwant\n%s", caller, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	text, shown := testkit.ReadFile(t, path), 0
	if strings.Contains(text, "s3cret") {
		t.Error("arguments of a prompt are in the audit log")
	}
	for _, block := range examples(t, "docs/AUDIT.md") {
		if block.language == "json" && strings.Contains(block.text, `"event":"request"`) {
			var read string
			for line := range strings.Lines(text) {
				if strings.Contains(line, `"method":"resources/read"`) && strings.Contains(line, `"verdict":"allow"`) && !strings.Contains(line, `"task"`) { // the client named none
					read = line
				}
			}
			if got, want := keysOf(t, read), keysOf(t, strings.ReplaceAll(block.text, "…", "")); !slices.Equal(got, want) {
				t.Errorf("a line has the keys %q, and docs/AUDIT.md says %q", got, want)
			}
			shown++
		}
	}
	if shown != 1 {
		t.Errorf("docs/AUDIT.md shows %d such lines", shown)
	}
	config := filepath.Join(r.dir, "orla.yaml")
	show := func(more ...string) int {
		return strings.Count(r.mustOrla(append([]string{"audit", "show", "--config", config}, more...)...), "\n")
	}
	if all, denied := show("--tool", "box", "--caller", "eve"), show("--verdict", "deny"); all != len(want["eve"])-2 || denied != all {
		t.Errorf("orla audit show has %d lines of what eve asks of box, and %d that are denied", all, denied)
	}
	r.signal(syscall.SIGTERM)
	r.wait()
	if got := r.mustOrla("audit", "verify", "--config", config); !strings.Contains(got, "ok    signed up to") {
		t.Errorf("orla audit verify: %s", got)
	}
}
