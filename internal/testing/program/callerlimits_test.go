package program

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/testkit"
)

// posts sends a request of a caller, and returns its status, headers and whole answer. The answer of a stream is
// its first event.
func (r *ruled) posts(caller, session, body string, headers ...string) (status int, header http.Header, answer string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.url, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Authorization", "Bearer "+r.tokens[caller])
	if session != "" {
		req.Header.Set("Mcp-Session-Id", session)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = resp.Body.Close() })
	if strings.Contains(body, "subscriptions/listen") && resp.StatusCode == http.StatusOK {
		first := make([]byte, 1<<10)
		n, _ := resp.Body.Read(first)
		return resp.StatusCode, resp.Header, string(first[:n])
	}
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(all)
}

const beginSession = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

// listens follows a resource in the stateless era.
func (r *ruled) listens(caller, uri string) (status int, answer string) {
	r.t.Helper()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}},"notifications":{"resourceSubscriptions":[%q]}}}`, uri)
	status, _, answer = r.posts(caller, "", body, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "subscriptions/listen")
	return status, answer
}

// SPEC N1: a caller has no more sessions, streams, subscriptions and kept answers than its limits allow, in both
// eras. Others are not affected, and a reload changes the limits.
func TestN1LimitsOfWhatACallerHolds(t *testing.T) {
	t.Parallel()
	r := serveRuled(t, "", "max_inline: 64KiB\ncallers:\n  - {name: ann, limits: {sessions: 2, subscriptions: 1, kept_memory: 300KiB}}\n")
	testkit.WriteTool(t, r.dir+"/tools", "long", "#!/bin/sh\nhead -c 200000 /dev/zero | tr '\\0' x\n")
	r.reload()

	begins := func(caller string) (session string, status int, answer string) {
		status, header, answer := r.posts(caller, "", beginSession)
		return header.Get("Mcp-Session-Id"), status, answer
	}
	session, status, answer := begins("ann")
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, answer)
	}
	if status, answer := r.listens("ann", "box://one"); status != http.StatusOK || !strings.Contains(answer, "acknowledged") {
		t.Fatalf("%d %s", status, answer)
	}
	for range 2 {
		_, status, answer := begins("ann")
		if status != http.StatusTooManyRequests || !strings.Contains(answer, "ann may have 2 sessions and streams") || !strings.Contains(answer, `"rate_limited"`) {
			t.Errorf("a third session: %d %s", status, answer)
		}
	}
	if status, answer := r.listens("ann", "box://one"); status != http.StatusTooManyRequests {
		t.Errorf("a third stream: %d %s", status, answer)
	}
	const follow = `{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"box://two"}}`
	if _, _, answer := r.posts("ann", session, follow); !strings.Contains(answer, "ann may follow 1 resources") {
		t.Errorf("a second subscription: %s", answer)
	}
	bobs, status, answer := begins("bob")
	if status != http.StatusOK {
		t.Fatalf("bob: %d %s", status, answer)
	}
	for range 3 {
		if _, status, answer := begins("bob"); status != http.StatusOK {
			t.Errorf("bob: %d %s", status, answer)
		}
	}
	if _, _, answer := r.posts("bob", bobs, follow); strings.Contains(answer, "error") {
		t.Errorf("bob: %s", answer)
	}

	kept := func(caller string) string {
		answer := r.asks(caller, "tools/call", `{"name":"long"}`)
		_, uri, _ := strings.Cut(answer, `"uri":"`)
		uri, _, _ = strings.Cut(uri, `"`)
		if !strings.HasPrefix(uri, "orla://answers/") {
			t.Fatalf("%s: %.400s", caller, answer)
		}
		return uri
	}
	has := func(caller, uri string) bool {
		return strings.Contains(r.asks(caller, "resources/read", `{"uri":"`+uri+`"}`), "xxxx")
	}
	first, second := kept("ann"), kept("ann")
	if has("ann", first) || !has("ann", second) {
		t.Errorf("the first answer is kept: %t, the second: %t", has("ann", first), has("ann", second))
	}
	if first, second := kept("bob"), kept("bob"); !has("bob", first) || !has("bob", second) {
		t.Error("bob's answers are not kept")
	}

	r.configure("max_inline: 64KiB\ncallers:\n  - {name: ann, limits: {sessions: 3, kept_memory: 1KiB}}\n")
	r.reload()
	if _, status, answer := begins("ann"); status != http.StatusOK {
		t.Errorf("after the reload: %d %s", status, answer)
	}
	if _, _, answer := r.posts("ann", session, follow); strings.Contains(answer, "error") {
		t.Errorf("after the reload: %s", answer)
	}
	if answer := r.asks("ann", "tools/call", `{"name":"long"}`); !strings.Contains(answer, "not kept, since ann may have 1024 bytes") || strings.Contains(answer, "orla://") {
		t.Errorf("an answer of more than all: %.400s", answer)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, r.url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.tokens["ann"])
	req.Header.Set("Mcp-Session-Id", session)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	testkit.Eventually(t, "a session that has ended makes room", func() bool { _, status, _ := begins("ann"); return status == http.StatusOK })
}
