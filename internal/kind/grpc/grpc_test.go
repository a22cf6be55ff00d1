package grpc_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/callid"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/trace"
	"github.com/orla-project/orla/internal/kind/grpc"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/service/auth"
	"github.com/orla-project/orla/internal/service/outbound"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/internal/testing/faultproxy"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
	"github.com/orla-project/orla/manifest"
)

// patience bounds every wait of these tests.
const patience = time.Minute

const maxOutput = 64 << 10

// secrets are those of the tests.
func secrets() *secret.Store {
	s := secret.New(secret.Options{})
	s.Set([]secret.Secret{{Namespace: "default", Name: "token", Data: map[string]secret.Value{"value": secret.NewValue("hunter2-token")}}})
	return s
}

var bearer = manifest.Auth{Profile: manifest.AuthBearer, Secret: secret.Ref{Namespace: "default", Name: "token", Key: "value"}}

// tool is a tool that is the service at addr.
func tool(t *testing.T, addr string, a manifest.Auth) *grpc.Tool {
	t.Helper()
	return toolOf(t, addr, a, maxOutput)
}

// toolOf is a tool whose answers may have most bytes.
func toolOf(t *testing.T, addr string, a manifest.Auth, most int64) *grpc.Tool {
	t.Helper()
	client := outbound.New(outbound.Options{})
	t.Cleanup(client.Close)
	made, err := grpc.New(manifest.Tool{
		Name: "weather", Kind: manifest.GRPC, Source: "weather.yaml",
		InputSchema: json.RawMessage(`{"type":"object"}`),
		Run:         manifest.Run{MaxOutput: most},
		Resource:    &manifest.Resource{Namespace: "default", Endpoint: "grpc://" + addr, Auth: a},
	}, grpc.Options{Client: client, Auth: auth.Options{Secrets: secrets(), Tokens: auth.NewTokens(client)}, UserAgent: "orla/1"})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// call makes a call with the given arguments.
func call(ctx context.Context, tool *grpc.Tool, args string) (*mcp.CallToolResult, error) {
	answer, err := tool.Call(ctx, peer.Call{Tool: "weather", Args: json.RawMessage(args), Caller: "anna", Task: "report", Attempt: 2})
	return answer.Result, err
}

// structured is the result's structured content.
func structured(t *testing.T, res *mcp.CallToolResult, into any) {
	t.Helper()
	raw, ok := res.StructuredContent.(json.RawMessage)
	if !ok {
		t.Fatalf("no structured content in %+v", res)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatal(err)
	}
}

// saw decodes what the service was sent. It says so twice: as it is, without the
// credentials that Orla takes out of results (SPEC-TOOLS 4.1), and backwards, with them.
func saw(t *testing.T, res *mcp.CallToolResult, into any) {
	t.Helper()
	var seen struct{ Backwards string }
	structured(t, res, &seen)
	if raw, _ := res.StructuredContent.(json.RawMessage); strings.Contains(string(raw), "hunter2-token") {
		t.Errorf("the result shows the credentials: %s", raw)
	}
	forwards := []rune(seen.Backwards)
	slices.Reverse(forwards)
	if err := json.Unmarshal([]byte(string(forwards)), into); err != nil {
		t.Fatal(err)
	}
}

// says returns what the service answers to a question.
func says(t *testing.T, tool *grpc.Tool, question string) string {
	t.Helper()
	res, err := call(t.Context(), tool, `{"do":"`+question+`"}`)
	if err != nil {
		t.Fatal(err)
	}
	return res.Content[0].(*mcp.TextContent).Text
}

// wantFault checks the code, and whether trying again can help.
func wantFault(t *testing.T, err error, code fault.Code, retryable bool) *fault.Error {
	t.Helper()
	f, ok := errors.AsType[*fault.Error](err)
	if !ok {
		t.Fatalf("got %v; want %s", err, code)
	}
	if f.Code != code || f.Retryable() != retryable {
		t.Errorf("got %s, retryable %v: %s; want %s, %v", f.Code, f.Retryable(), f.Reason, code, retryable)
	}
	return f
}

// SPEC-TOOLS 3.3: the same envelopes; credentials and the trace travel as metadata.
func TestCallCarriesEnvelopeAndMetadata(t *testing.T) {
	tool := tool(t, needs.Start(t, "grpc").Addr, bearer)
	at, _ := trace.Parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "vendor=1")
	ctx, cancel := context.WithTimeout(trace.With(callid.With(t.Context(), "call-7"), at), patience)
	defer cancel()
	res, err := call(ctx, tool, `{"do":"see","big":9007199254740993}`)
	if err != nil {
		t.Fatal(err)
	}
	var seen struct {
		Metadata map[string]string `json:"metadata"`
		Request  json.RawMessage   `json:"request"`
		Deadline float64           `json:"deadline_ms"`
	}
	saw(t, res, &seen)
	for key, want := range map[string]string{
		"authorization": "Bearer hunter2-token",
		"traceparent":   at.Parent(),
		"tracestate":    "vendor=1",
		"user-agent":    "orla/1",
	} {
		if seen.Metadata[key] != want {
			t.Errorf("metadata %s: got %q, want %q", key, seen.Metadata[key], want)
		}
	}
	if seen.Deadline <= 0 || seen.Deadline > float64(patience.Milliseconds()) {
		t.Errorf("the service was given %v ms; want at most %v", seen.Deadline, patience)
	}
	for _, part := range []string{
		`"request_id":"call-7"`, `"tool":"weather"`, `"action":"invoke"`, `"type":"bearer","token":"hunter2-token"`,
		`"task":"report"`, `"agent":"anna"`, `"attempt":2`, `"trace_id":"0af7651916cd43dd8448eb211c80319c"`,
	} {
		if !strings.Contains(string(seen.Request), part) {
			t.Errorf("the envelope has no %s: %s", part, seen.Request)
		}
	}
}

func TestAPIKeyIsMetadataOfItsOwnName(t *testing.T) {
	key := bearer
	key.Profile, key.HeaderName = manifest.AuthAPIKey, "X-Api-Key"
	res, err := call(t.Context(), tool(t, needs.Start(t, "grpc").Addr, key), `{"do":"see"}`)
	if err != nil {
		t.Fatal(err)
	}
	var seen struct {
		Metadata map[string]string `json:"metadata"`
	}
	saw(t, res, &seen)
	if seen.Metadata["x-api-key"] != "hunter2-token" || seen.Metadata["authorization"] != "" {
		t.Errorf("got %v", seen.Metadata)
	}
}

// SPEC-TOOLS 3.3: one connection, kept and reused.
func TestConnectionIsKept(t *testing.T) {
	proxy := faultproxy.New(t, needs.Start(t, "grpc").Addr)
	tool := tool(t, proxy.Addr(), manifest.Auth{})
	for range 4 {
		if _, err := call(t.Context(), tool, `{"say":"one by one"}`); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for range 96 {
		wg.Go(func() {
			if _, err := call(t.Context(), tool, `{"say":"all at once"}`); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := proxy.Connections(); n != 1 {
		t.Errorf("100 calls took %d connections", n)
	}
}

// The deadline of an attempt ends it, whatever the service does, and reaches
// the service as well.
func TestDeadline(t *testing.T) {
	tool := tool(t, needs.Start(t, "grpc").Addr, manifest.Auth{})
	for timeout := 300 * time.Millisecond; says(t, tool, "hanging") == "0"; timeout *= 2 { // it may be over before the call is there
		ctx, cancel := context.WithTimeoutCause(t.Context(), timeout, fault.New(fault.Timeout, "weather is late"))
		_, err := call(ctx, tool, `{"do":"hang"}`)
		cancel()
		_ = wantFault(t, err, fault.Timeout, true)
	}
	testkit.Eventually(t, "it comes to that", func() bool { return says(t, tool, "cancelled") == says(t, tool, "hanging") })
}

func TestCancellationReachesTheService(t *testing.T) {
	tool := tool(t, needs.Start(t, "grpc").Addr, manifest.Auth{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := call(ctx, tool, `{"do":"hang"}`)
		done <- err
	}()
	testkit.Eventually(t, "it comes to that", func() bool { return says(t, tool, "hanging") == "1" })
	cancel()
	_ = wantFault(t, <-done, fault.Canceled, false)
	testkit.Eventually(t, "it comes to that", func() bool { return says(t, tool, "cancelled") == "1" })
}

// A service that was restarted between two calls is connected to again.
func TestServiceIsRestarted(t *testing.T) {
	addr := needs.Address(t)
	port := "PORT=" + strings.TrimPrefix(addr, "127.0.0.1:")
	first := needs.Start(t, "grpc", port)
	tool := tool(t, addr, manifest.Auth{})
	if _, err := call(t.Context(), tool, `{}`); err != nil {
		t.Fatal(err)
	}
	first.Stop()
	testkit.Eventually(t, "it comes to that", func() bool { // a call may be sent before the connection's end is seen
		_, err := call(t.Context(), tool, `{}`)
		return wantFault(t, err, fault.ExecutionFailed, true).Unsent
	})
	needs.Start(t, "grpc", port)
	if _, err := call(t.Context(), tool, `{}`); err != nil {
		t.Fatal(err)
	}
}
