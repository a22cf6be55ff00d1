package program

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// asking is an Orla whose tool wipe needs an approval, and writes down its runs.
type asking struct {
	*running
	dir, socket, program string
}

const wipeRule = "apiVersion: orloj.dev/v1\nkind: ToolPermission\nmetadata: {name: wipe}\nspec: {operation_rules: [{verdict: approval_required%s}]}\n"

// serveAsking serves it as a user, with more in the configuration.
func serveAsking(t *testing.T, uid int, config string) *asking {
	t.Helper()
	a := &asking{program: orlaBinary(t)}
	a.socket = shortPath(t)
	a.dir = filepath.Dir(a.socket)
	testkit.WriteTool(t, filepath.Join(a.dir, "tools"), "wipe", "#!/bin/sh\necho \"$*\" >> ../runs\necho wiped\n")
	testkit.WriteTool(t, filepath.Join(a.dir, "tools"), "rule.yaml", fmt.Sprintf(wipeRule, ""))
	a.configure(t, config)
	as := func(*exec.Cmd) {}
	if uid != os.Geteuid() {
		raw, err := os.ReadFile(a.program)
		if err != nil {
			t.Fatal(err)
		}
		a.program = filepath.Join(a.dir, "orla") // where that user finds it
		if err := testkit.WriteProgram(a.program, raw); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("chown", "-R", fmt.Sprint(uid), a.dir).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		as = asUser(uid)
	}
	a.running = startPrepared(t, a.dir, func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, "HOME="+a.dir)
		as(cmd)
	}, a.program, "--socket", a.socket)
	a.url, _ = a.waitLog("serving", nil)["url"].(string)
	return a
}

func (a *asking) configure(t *testing.T, more string) {
	t.Helper()
	text := "port: 0\nstate_dir: state\naudit_log: audit.log\n" + more
	if err := os.WriteFile(filepath.Join(a.dir, "orla.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func asUser(uid int) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
}

// begins makes a call, whose outcome comes later: its text, and its code.
func (a *asking) begins(args string) <-chan [2]string { return a.beginsCall("wipe", args) }

// beginsCall does the same with another tool.
func (a *asking) beginsCall(tool, args string) <-chan [2]string {
	over := make(chan [2]string, 1)
	go func() {
		answer, err := a.call(tool, args)
		if err != nil || answer.Result == nil || len(answer.Result.Content) == 0 {
			over <- [2]string{fmt.Sprint(err), "none"}
			return
		}
		code, _ := answer.Result.Meta["tool_code"].(string)
		over <- [2]string{answer.Result.Content[0].Text, code}
	}()
	return over
}

// waiting returns the one record that waits.
func (a *asking) waiting() (found control.Approval) {
	a.t.Helper()
	testkit.Eventually(a.t, "one call waits", func() bool {
		list, err := control.NewClient(a.socket).Approvals(a.t.Context(), control.ApprovalQuery{Phase: "Pending"})
		if err != nil || len(list) != 1 {
			return false
		}
		one, err := control.NewClient(a.socket).Approval(a.t.Context(), list[0].ID)
		if err == nil {
			found = *one
		}
		return err == nil
	})
	return found
}

func (a *asking) wants(over <-chan [2]string, text, code string) {
	a.t.Helper()
	select {
	case got := <-over:
		if got[1] != code || !strings.Contains(got[0], text) {
			a.t.Errorf("the call ends with %q; want %s: %s", got, code, text)
		}
	case <-time.After(testkit.Patience):
		a.t.Errorf("the call does not end; want %s: %s", code, text)
	}
}

// runs returns the arguments of each run of the tool.
func (a *asking) runs() []string {
	text, _ := os.ReadFile(filepath.Join(a.dir, "runs")) // there is none before the first
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")[:bytes.Count(text, []byte("\n"))]
}

// as runs a command as a user.
func (a *asking) as(uid int, args ...string) said {
	a.t.Helper()
	cmd := exec.Command(a.program, append(args, "--socket", a.socket)...)
	cmd.Dir, cmd.Env = a.dir, a.cmd.Env
	asUser(uid)(cmd)
	if uid == os.Geteuid() {
		cmd.SysProcAttr = nil
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run() // the exit code says it
	return said{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// request makes a request to the control socket, as any process of this user can.
func (a *asking) request(method, path, body string) (status int, answer string) {
	a.t.Helper()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", a.socket)
		},
	}}
	req, err := http.NewRequestWithContext(a.t.Context(), method, "http://orla"+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	for _, header := range []string{"X-Forwarded-User", "X-Remote-User", "Decided-By", "Sudo-User"} {
		req.Header.Set(header, "root")
	}
	resp, err := client.Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

// SPEC-TOOLS 8.7: the user that runs Orla, and so an agent with a shell, cannot approve: by no command, and by
// no request to the socket, whoever it says that it is. It may deny.
func TestT87TheUserOfOrlaCannotApprove(t *testing.T) {
	t.Parallel()
	a := serveAsking(t, os.Geteuid(), "")
	over := a.begins(`{"path":"/etc"}`)
	r := a.waiting()
	for _, args := range [][]string{{"approve", r.ID}, {"approve", r.ID, "--ttl", "1h"}, {"extend", r.ID, "--ttl", "168h"}} {
		s := a.orla(append(append([]string{"approvals"}, args...), "--socket", a.socket)...)
		if s.code != 1 || !strings.Contains(s.err, "may not approve its calls") || !strings.Contains(s.err, "same_user") {
			t.Errorf("orla approvals %s ends with %d: %s%s", args, s.code, s.out, s.err)
		}
	}
	digest := `{"digest":"` + r.Digest + `"`
	at := "/v1/approvals/" + r.ID
	for _, c := range []struct {
		path, body string
		status     int
	}{
		{at + "/approve", digest + "}", http.StatusForbidden},
		{at + "/approve?decided_by=root", digest + "}", http.StatusForbidden},
		{at + "/approve", digest + `,"decided_by":"user:root(0)"}`, http.StatusBadRequest},
		{at + "/approve", digest + `,"decided_how":"passkey"}`, http.StatusBadRequest},
		{at + "/approve", digest + `,"proof":{"id":"x"}}`, http.StatusBadRequest},
		{at + "/approve", digest + `,"uid":0}`, http.StatusBadRequest},
		{at + "/approve", "", http.StatusBadRequest},
		{at + "/extend", `{"ttl":"1h"}`, http.StatusForbidden},
		{"/v1/approvals/../approvals/" + r.ID + "/approve", digest + "}", http.StatusTemporaryRedirect},
		{"/v1/approvals/ap-none/approve", digest + "}", http.StatusForbidden},
	} {
		if status, answer := a.request(http.MethodPost, c.path, c.body); status != c.status && (c.status != http.StatusTemporaryRedirect || status == http.StatusOK) {
			t.Errorf("POST %s %s: %d %s; want %d", c.path, c.body, status, answer, c.status)
		}
	}
	if now := a.waiting(); now.ID != r.ID || len(a.runs()) > 0 {
		t.Fatalf("the record is %+v, and the tool ran: %q", now, a.runs())
	}
	s := a.orla("approvals", "deny", r.ID[:8], "--reason", "not on a Friday", "--socket", a.socket)
	if s.code != 0 || !strings.Contains(s.out, "is denied by user:") || !strings.Contains(s.out, "not on a Friday") {
		t.Errorf("orla approvals deny ends with %d: %s%s", s.code, s.out, s.err)
	}
	a.wants(over, "not on a Friday", "approval_denied")
	if len(a.runs()) > 0 {
		t.Errorf("the tool ran: %q", a.runs())
	}
}

// SPEC-TOOLS 8.7: root approves the calls of an Orla of another user. The call runs once, with what was approved,
// and the record is of no use any more.
func TestT87RootApproves(t *testing.T) {
	t.Parallel()
	needs.Root(t, "be another user")
	const user = 65531
	a := serveAsking(t, user, "")
	over := a.begins(`{"path":"/a"}`)
	r := a.waiting()
	if s := a.as(user, "approvals", "approve", r.ID); s.code != 1 || !strings.Contains(s.err, "sudo orla approvals approve "+r.ID+" --socket "+a.socket) {
		t.Errorf("the user of Orla: %d: %s%s", s.code, s.out, s.err)
	}
	// Who is root in a user namespace of its own is not root.
	unshared := exec.Command("unshare", "-Ur", a.program, "approvals", "approve", r.ID, "--socket", a.socket)
	unshared.Dir, unshared.Env = a.dir, a.cmd.Env
	asUser(user)(unshared)
	if out, err := unshared.CombinedOutput(); err == nil || !strings.Contains(string(out), "may not approve its calls") {
		t.Logf("in a user namespace: %v\n%s", err, out) // which not every machine has
		if err == nil {
			t.Error("who is root in a user namespace has approved")
		}
	}
	if s := a.as(0, "approvals", "approve", r.ID); s.code != 0 || !strings.Contains(s.out, "by user:root(0) for 10m") {
		t.Errorf("root: %d: %s%s", s.code, s.out, s.err)
	}
	a.wants(over, "wiped", "")
	if s := a.as(0, "approvals", "approve", r.ID); s.code != 1 || !strings.Contains(s.err, "it was approved by user:root(0) already") {
		t.Errorf("root, again: %d: %s%s", s.code, s.out, s.err)
	}
	over = a.begins(`{"path":"/a"}`)
	if next := a.waiting(); next.ID == r.ID || next.Last.ID != r.ID || len(next.Last.Changes) > 0 {
		t.Errorf("the same call again: %+v after %s", next, r.ID)
	} else if s := a.as(0, "approvals", "deny", next.ID); s.code != 0 {
		t.Errorf("root denies: %d: %s%s", s.code, s.out, s.err)
	}
	a.wants(over, "", "approval_denied")
	if got := a.runs(); !slices.Equal(got, []string{"--path /a"}) {
		t.Errorf("the runs are %q", got)
	}
	var shown said
	testkit.Eventually(t, "both calls are in the audit log", func() bool {
		shown = a.as(0, "audit", "show", filepath.Join(a.dir, "audit.log"))
		return strings.Contains(shown.out, "approval_denied")
	})
	for _, part := range []string{"Approved  decided", "decider=user:root(0)  how=operator", "approval=" + r.ID, "Denied  decided"} {
		if !strings.Contains(shown.out, part) {
			t.Errorf("orla audit show has no %s: %s%s", part, shown.out, shown.err)
		}
	}
	if s := a.as(0, "audit", "verify", filepath.Join(a.dir, "audit.log")); s.code != 0 {
		t.Errorf("orla audit verify: %s%s", s.out, s.err)
	}
}

// SPEC-TOOLS 8.7: of two people who decide at once, one does; the tool runs if that one approved, and once.
func TestT87TwoApproversAtOnce(t *testing.T) {
	t.Parallel()
	a := serveAsking(t, os.Geteuid(), "approvals: {same_user: true}\n")
	client := control.NewClient(a.socket)
	approved := 0
	for round := range needs.Rounds(5, 15) {
		over := a.begins(fmt.Sprintf(`{"n":%d}`, round))
		r := a.waiting()
		var deciding sync.WaitGroup
		results := make([]error, 6)
		for i := range results {
			deciding.Go(func() {
				if i%2 == 0 {
					_, results[i] = client.Approve(t.Context(), r.ID, control.ApproveRequest{Digest: r.Digest})
				} else {
					_, results[i] = client.Deny(t.Context(), r.ID, control.DenyRequest{})
				}
			})
		}
		deciding.Wait()
		winner := -1
		for i, err := range results {
			if err == nil && winner >= 0 {
				t.Errorf("both %d and %d have decided", winner, i)
			}
			if err == nil {
				winner = i
			} else if e, ok := err.(*control.Error); !ok || e.Code != control.CodeDecided { //nolint:errorlint // the client's own
				t.Errorf("%d: %v", i, err)
			}
		}
		switch {
		case winner < 0:
			t.Fatal("nobody has decided")
		case winner%2 == 0:
			approved++
			a.wants(over, "wiped", "")
		default:
			a.wants(over, "", "approval_denied")
		}
		if got := len(a.runs()); got != approved {
			t.Fatalf("%d runs after %d approvals", got, approved)
		}
	}
}

// SPEC-TOOLS 8.7: a decision is about what was read, and by somebody whom the rule lets decide.
func TestT87DecisionsThatDoNotCount(t *testing.T) {
	t.Parallel()
	a := serveAsking(t, os.Geteuid(), "approvals: {same_user: true, ttl: 1h}\n")
	over := a.begins(`{"a":1}`)
	r := a.waiting()
	if r.TTL != "1h0m0s" {
		t.Errorf("the ttl is %s", r.TTL)
	}
	for body, want := range map[string]int{
		`{"digest":"` + strings.Repeat("0", 64) + `"}`: http.StatusConflict,
		`{"digest":"` + r.Digest + `","ttl":"200h"}`:   http.StatusBadRequest,
		`{"digest":"` + r.Digest + `","ttl":"-1h"}`:    http.StatusBadRequest,
		`{"digest":"` + r.Digest + `","ttl":"soon"}`:   http.StatusBadRequest,
	} {
		if status, answer := a.request(http.MethodPost, "/v1/approvals/"+r.ID+"/approve", body); status != want {
			t.Errorf("%s: %d %s; want %d", body, status, answer, want)
		}
	}
	if status, answer := a.request(http.MethodPost, "/v1/approvals/ap-none/approve", `{"digest":"x"}`); status != http.StatusNotFound {
		t.Errorf("an unknown id: %d %s", status, answer)
	}
	for rule, want := range map[string]string{", approvers: [passkey]": "the rule wants a passkey", ", approvers: [client]": "only the person at the client"} {
		testkit.WriteTool(t, filepath.Join(a.dir, "tools"), "rule.yaml", fmt.Sprintf(wipeRule, rule))
		a.mustOrla("reload", "--socket", a.socket)
		next := a.waiting() // the call goes on to wait, under the new rules
		if s := a.orla("approvals", "approve", next.ID, "--socket", a.socket); s.code != 1 || !strings.Contains(s.err, want) {
			t.Errorf("%s: orla approvals approve ends with %d: %s%s", rule, s.code, s.out, s.err)
		}
	}
	a.configure(t, "approvals: {same_user: false}\n")
	a.mustOrla("reload", "--socket", a.socket) // before the rule, which Orla may see at once
	testkit.WriteTool(t, filepath.Join(a.dir, "tools"), "rule.yaml", fmt.Sprintf(wipeRule, ""))
	a.mustOrla("reload", "--socket", a.socket)
	next := a.waiting()
	if s := a.orla("approvals", "approve", next.ID, "--socket", a.socket); next.TTL != "10m0s" || s.code != 1 || !strings.Contains(s.err, "may not approve its calls") {
		t.Errorf("after a reload: ttl %s; %d: %s%s", next.TTL, s.code, s.out, s.err)
	}
	if s := a.orla("approvals", "deny", next.ID, "--socket", a.socket); s.code != 0 {
		t.Errorf("deny: %s%s", s.out, s.err)
	}
	a.wants(over, "", "approval_denied")
}

// SPEC-TOOLS 8.7, 8.2: what the lists have, for people and programs, and as resources.
func TestT87ListsOfApprovals(t *testing.T) {
	t.Parallel()
	a := serveAsking(t, os.Geteuid(), "approvals: {same_user: true}\n")
	if s := a.orla("approvals", "list", "--socket", a.socket); s.out != "no call waits for an approval\n" {
		t.Errorf("without calls: %s%s", s.out, s.err)
	}
	watched := a.stream("approvals", "list", "--watch", "--socket", a.socket)
	lines := a.stream("approvals", "list", "--watch", "--json", "--socket", a.socket)
	evil := `{"path":"\u001b[2J\u202etxt","n":1.0}`
	first := a.begins(evil)
	r := a.waiting()
	approve := func(id string) {
		t.Helper()
		if s := a.orla("approvals", "approve", id, "--socket", a.socket); s.code != 0 {
			t.Fatalf("approve: %s%s", s.out, s.err)
		}
	}
	shown := a.orla("approvals", "show", r.ID, "--socket", a.socket)
	for _, part := range []string{"anonymous", "ToolPermission wipe", `\u001b`, `\u202e`, `"n": 1.0`, "no call of this tool by this caller was approved before"} {
		if !strings.Contains(shown.out, part) {
			t.Errorf("orla approvals show has no %q:\n%s%s", part, shown.out, shown.err)
		}
	}
	if strings.ContainsAny(shown.out, "\x1b\u202e") {
		t.Errorf("it has what a terminal obeys: %q", shown.out)
	}
	if s := a.mustOrla("status", "--socket", a.socket); !strings.Contains(s, "1 approval to decide about") {
		t.Errorf("orla status: %s", s)
	}
	approve(r.ID)
	a.wants(first, "wiped", "")
	second := a.begins(`{"path":"<b>","n":1.0}`)
	r2 := a.waiting()
	if s := a.orla("approvals", "show", r2.ID, "--socket", a.socket); !strings.Contains(s.out, `~ /path: "\u001b[2J\u202etxt" -> "<b>"`) || strings.Contains(s.out, "/n:") {
		t.Errorf("the second call: %s%s", s.out, s.err)
	}
	yaml := a.mustOrla("approvals", "list", "--all", "-o", "yaml", "--socket", a.socket)
	for _, part := range []string{"kind: ToolApproval", `name: "` + r2.ID + `"`, `tool: "wipe"`, `agent: "anonymous"`, `input: {"n":1.0,"path":"<b>"}`, `phase: "Pending"`, `decision: "approve"`, "\n---\n", "expires_at: "} {
		if !strings.Contains(yaml, part) {
			t.Errorf("-o yaml has no %q:\n%s", part, yaml)
		}
	}
	approve(r2.ID)
	a.wants(second, "wiped", "")
	var list []control.Approval
	if err := json.Unmarshal([]byte(a.mustOrla("approvals", "list", "--all", "--json", "--socket", a.socket)), &list); err != nil || len(list) != 2 || list[0].ID != r.ID || list[1].Used.IsZero() {
		t.Errorf("--json: %+v, %v", list, err)
	}
	for name, lines := range map[string]<-chan string{"for people": watched, "as JSON": lines} {
		has := map[string][]string{"for people": {r.ID + "  wipe by anonymous (read) waits", r2.ID + "  wipe by anonymous (read) went on"}, "as JSON": {`"phase":"Pending"`, `"used_at"`}}[name]
		for len(has) > 0 {
			select {
			case line := <-lines:
				if strings.Contains(line, has[0]) {
					has = has[1:]
				}
			case <-time.After(testkit.Patience):
				t.Fatalf("--watch %s has no %s", name, has)
			}
		}
	}
	if s := a.orla("approvals", "show", "ap", "--socket", a.socket); s.code != 2 || !strings.Contains(s.err, "2 ids") {
		t.Errorf("a beginning of two: %d: %s", s.code, s.err)
	}
}

// SPEC-TOOLS 8.7: the webhook is told of a call and of the decision, signed, again if it did not accept, and
// decides nothing by its answer.
func TestT87TheWebhook(t *testing.T) {
	t.Parallel()
	key := []byte(strings.Repeat("k", 32))
	type heard struct {
		path string
		body string
	}
	got := make(chan heard, 100)
	tries := 0
	var mu sync.Mutex // guards tries
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%s.%s", r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp"), body)
		if err != nil || r.Header.Get("webhook-signature") != "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)) {
			t.Errorf("%v: the signature of %s is %s", err, body, r.Header.Get("webhook-signature"))
		}
		mu.Lock()
		tries++
		first := tries == 1
		mu.Unlock()
		if first {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect) // which is not followed
			return
		}
		got <- heard{r.URL.Path, string(body)}
		_, _ = io.WriteString(w, `{"decision":"approve","approve":true}`)
	}))
	defer receiver.Close()
	a := serveAsking(t, os.Geteuid(), "approvals: {same_user: true}\n")
	secret := "whsec_" + base64.StdEncoding.EncodeToString(key)
	hook := "approvals: {same_user: true, webhook: {url: '" + receiver.URL + "/T1/private', secret_file: hook.key}}\n"
	a.configure(t, hook)
	if s := a.orla("reload", "--socket", a.socket); s.code == 0 || !strings.Contains(s.err, "approvals.webhook") {
		t.Errorf("a reload without the secret: %d: %s%s", s.code, s.out, s.err)
	}
	if err := os.WriteFile(filepath.Join(a.dir, "hook.key"), []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a.mustOrla("reload", "--socket", a.socket)
	over := a.begins(`{"path":"/private/place"}`)
	r := a.waiting()
	next := func(want ...string) {
		t.Helper()
		select {
		case h := <-got:
			for _, part := range append(want, `"id":"`+r.ID+`"`, `"arguments_sha256":`) {
				if !strings.Contains(h.body, part) {
					t.Errorf("the receiver got no %s: %s", part, h.body)
				}
			}
			if h.path != "/T1/private" || strings.Contains(h.body, "/private/place") {
				t.Errorf("%s got %s", h.path, h.body)
			}
		case <-time.After(testkit.Patience):
			t.Fatalf("the receiver gets no %s", want)
		}
	}
	next(`"type":"approval.requested"`, `"phase":"Pending"`)
	if now := a.waiting(); now.ID != r.ID || len(a.runs()) > 0 {
		t.Errorf("the answer of the webhook has decided: %+v, %q", now, a.runs())
	}
	if s := a.orla("approvals", "approve", r.ID, "--socket", a.socket); s.code != 0 {
		t.Fatalf("approve: %s%s", s.out, s.err)
	}
	next(`"type":"approval.decided"`, `"phase":"Approved"`, `"decided_by":"user:`)
	a.wants(over, "wiped", "")
	a.waitLog("the webhook of approvals does not accept; it is tried again", nil)
	a.waitLog("the webhook of approvals accepts again", nil)
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, line := range a.lines {
		if text := fmt.Sprint(line); strings.Contains(text, secret[6:]) || strings.Contains(text, "/T1") {
			t.Errorf("the log has a secret: %s", text)
		}
	}
}

// SPEC-TOOLS 8.7, 8.8: while the audit log cannot be written, no decision counts.
func TestT87ADecisionNeedsItsLine(t *testing.T) {
	t.Parallel()
	a := &asking{program: orlaBinary(t), socket: shortPath(t)}
	a.dir = filepath.Dir(a.socket)
	testkit.WriteTool(t, filepath.Join(a.dir, "tools"), "wipe", "#!/bin/sh\necho \"$*\" >> ../runs\necho wiped\n")
	testkit.WriteTool(t, filepath.Join(a.dir, "tools"), "hello", "#!/bin/sh\necho hello\n")
	testkit.WriteTool(t, filepath.Join(a.dir, "tools"), "rule.yaml", fmt.Sprintf(wipeRule, ""))
	a.configure(t, "approvals: {same_user: true}\nshutdown_grace: 1s\n")
	a.running = startCommand(t, a.dir, "sh", "-c", `ulimit -f 16; exec "$0" "$@"`, a.program, "--socket", a.socket) // files of a few KiB
	a.url, _ = a.waitLog("serving", nil)["url"].(string)
	over := a.begins(`{}`)
	r := a.waiting()
	for refused := false; !refused; {
		text, code := a.coded("hello", "{}")
		refused = code == "not_ready" && strings.Contains(text, "the audit log cannot be written")
	}
	for _, what := range []string{"approve", "deny"} {
		if s := a.orla("approvals", what, r.ID, "--socket", a.socket); s.code != 1 || !strings.Contains(s.err, "no decision counts without a line in it") {
			t.Errorf("orla approvals %s ends with %d: %s%s", what, s.code, s.out, s.err)
		}
	}
	if now := a.waiting(); now.ID != r.ID || len(a.runs()) > 0 {
		t.Errorf("the record is %+v; runs: %q", now, a.runs())
	}
	a.signal(syscall.SIGTERM)
	a.wait()
	<-over
}
