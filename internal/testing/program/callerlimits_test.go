package program

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/app/control"
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

// box is the resource that listens and knows are about.
const box = "box://one"

// listens follows a resource in the stateless era.
func (r *ruled) listens(caller string) (status int, answer string) {
	r.t.Helper()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}},"notifications":{"resourceSubscriptions":[%q]}}}`, box)
	status, _, answer = r.posts(caller, "", body, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "subscriptions/listen")
	return status, answer
}

// knows waits until a resource can be read: the log says a moment before that the capsule offers it.
func (r *ruled) knows(caller string) {
	r.t.Helper()
	testkit.Eventually(r.t, box+" can be read", func() bool {
		return strings.Contains(r.asks(caller, "resources/read", `{"uri":"`+box+`"}`), "contents")
	})
}

// SPEC N1: a caller has no more sessions, streams, subscriptions and kept answers than its limits allow, in both
// eras. Others are not affected, and a reload changes the limits.
func TestN1LimitsOfWhatACallerHolds(t *testing.T) {
	t.Parallel()
	r := serveRuled(t, "", "max_inline: 64KiB\ncallers:\n  - {name: ann, limits: {sessions: 2, subscriptions: 1, kept_memory: 300KiB}}\n")
	testkit.WriteTool(t, r.dir+"/tools", "long", "#!/bin/sh\nhead -c 200000 /dev/zero | tr '\\0' x\n")
	r.reload()
	r.knows("ann")

	begins := func(caller string) (session string, status int, answer string) {
		status, header, answer := r.posts(caller, "", beginSession)
		return header.Get("Mcp-Session-Id"), status, answer
	}
	session, status, answer := begins("ann")
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, answer)
	}
	if status, answer := r.listens("ann"); status != http.StatusOK || !strings.Contains(answer, "acknowledged") {
		t.Fatalf("%d %s", status, answer)
	}
	for range 2 {
		_, status, answer := begins("ann")
		if status != http.StatusTooManyRequests || !strings.Contains(answer, "ann may have 2 sessions and streams") || !strings.Contains(answer, `"rate_limited"`) {
			t.Errorf("a third session: %d %s", status, answer)
		}
	}
	if status, answer := r.listens("ann"); status != http.StatusTooManyRequests {
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

// SPEC N1: orla status says who may call how many tools, and what each uses now; orla config has the callers as they are
// configured. 1000 callers cause no trouble.
func TestN1StatusAndConfigShowTheCallers(t *testing.T) {
	t.Parallel()
	callers := "callers:\n  - {name: ann, roles: [greeter], may_speak_for: [bot], limits: {sessions: 4, calls_in_flight: 9}}\n  - {group: staff, roles: [looker], limits: {kept_memory: 1MiB}}\n"
	r := serveRuled(t, ruledDocuments, callers)
	r.knows("bob")
	if status, _, answer := r.posts("ann", "", beginSession); status != http.StatusOK {
		t.Fatal(answer)
	}
	if status, answer := r.listens("bob"); status != http.StatusOK {
		t.Fatal(answer)
	}
	testkit.WriteTool(t, r.dir+"/tools", "slow", "#!/bin/sh\nwhile ! [ -e '"+r.dir+"/go' ]; do sleep 0.05; done\n")
	r.reload()
	answered := make(chan string, 1)
	go func() { answered <- r.asks("eve", "tools/call", `{"name":"slow"}`) }()
	callersNow := func() map[string]control.CallerStatus {
		var status control.Status
		if err := json.Unmarshal([]byte(r.mustOrla("status", "--json")), &status); err != nil {
			t.Fatal(err)
		}
		all := map[string]control.CallerStatus{}
		for _, c := range status.Callers {
			all[c.Name+"@"+c.Group] = c
		}
		return all
	}
	testkit.Eventually(t, "the call is seen", func() bool { return callersNow()["eve@"].InFlight == 1 })
	all := callersNow()
	tools := func(name string) int {
		if c := all[name]; c.Tools != nil {
			return *c.Tools
		}
		return -1
	}
	// box__wipe is denied to all, and a ToolPermission for a tool decides without roles.
	if tools("ann@") != 3 || tools("@staff") != 2 || tools("bob@") != 5 || tools("eve@") != 5 {
		t.Errorf("%+v: ann %d, staff %d, bob %d, eve %d tools", all, tools("ann@"), tools("@staff"), tools("bob@"), tools("eve@"))
	}
	if ann := all["ann@"]; ann.Sessions != 1 || ann.Limits.Sessions != 4 || !slices.Equal(ann.Roles, []string{"greeter"}) || !ann.Configured {
		t.Errorf("%+v", ann)
	}
	if bob := all["bob@"]; bob.Sessions != 1 || bob.Subscriptions != 1 {
		t.Errorf("%+v", bob)
	}
	page := r.mustOrla("status")
	for _, want := range []string{"4 callers", "ann ", "1/4", "0/9", "roles greeter; acts for bot", "group staff", "-/1.0M"} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not in\n%s", want, page)
		}
	}
	testkit.WriteTool(t, r.dir, "go", "")
	<-answered
	testkit.Eventually(t, "the call is not seen any more", func() bool { return callersNow()["eve@"].InFlight == 0 })

	config := r.mustOrla("config", "--config", r.dir+"/orla.yaml")
	for _, want := range []string{`callers[0]`, `{"name":"ann","roles":["greeter"],"may_speak_for":["bot"],"limits":{"calls_in_flight":9,"sessions":4}}`, `callers[1]`, `"kept_memory":"1MiB"`} {
		if !strings.Contains(config, want) {
			t.Errorf("%q is not in\n%s", want, config)
		}
	}

	var many strings.Builder
	many.WriteString("callers:\n")
	for i := range 1000 {
		fmt.Fprintf(&many, "  - {name: 'oauth:%d', roles: [greeter], limits: {sessions: 3}}\n", i)
	}
	r.configure(many.String())
	r.reload()
	if all := callersNow(); len(all) != 1003 || all["oauth:999@"].Tools == nil {
		t.Errorf("%d callers, the last one is %+v", len(all), all["oauth:999@"])
	}
	if page := r.mustOrla("status"); !strings.Contains(page, "1003 callers") || !strings.Contains(page, "and 953 more") {
		t.Error(page)
	}
}
