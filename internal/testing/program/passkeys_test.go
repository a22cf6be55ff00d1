package program

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/decisions"
	"github.com/orla-project/orla/internal/call/approvals/passkey"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// authenticator is a passkey in software, which signs whatever it is asked to.
type authenticator struct {
	t      *testing.T
	key    *ecdsa.PrivateKey
	id     []byte
	count  uint32
	flags  byte
	rp     string
	origin string
	shared bool // by several devices: it does not count
}

func newAuthenticator(t *testing.T, origin string) *authenticator {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, host, _ := strings.Cut(origin, "://")
	host, _, _ = strings.Cut(host, ":")
	return &authenticator{t: t, key: key, id: []byte(rand.Text()), flags: 0x05, rp: host, origin: origin}
}

func (a *authenticator) data(more ...byte) []byte {
	if !a.shared {
		a.count++
	}
	sum := sha256.Sum256([]byte(a.rp))
	out := append(sum[:], a.flags|byte(min(len(more), 1)<<6))
	return append(binary.BigEndian.AppendUint32(out, a.count), more...)
}

func (a *authenticator) client(kind string, challenge []byte) []byte {
	return fmt.Appendf(nil, `{"type":%q,"challenge":%q,"origin":%q,"crossOrigin":false}`, kind, base64.RawURLEncoding.EncodeToString(challenge), a.origin)
}

// signs returns an assertion over a challenge.
func (a *authenticator) signs(challenge []byte) passkey.Assertion {
	a.t.Helper()
	client, data := a.client("webauthn.get", challenge), a.data()
	sum := sha256.Sum256(client)
	hash := sha256.Sum256(append(append([]byte{}, data...), sum[:]...))
	signature, err := ecdsa.SignASN1(rand.Reader, a.key, hash[:])
	if err != nil {
		a.t.Fatal(err)
	}
	return passkey.Assertion{Credential: a.id, ClientData: client, Data: data, Signature: signature}
}

// new is a registration for a challenge.
func (a *authenticator) new(challenge []byte) passkey.Registration {
	a.t.Helper()
	public, err := x509.MarshalPKIXPublicKey(&a.key.PublicKey)
	if err != nil {
		a.t.Fatal(err)
	}
	attested := binary.BigEndian.AppendUint16(make([]byte, 16), uint16(len(a.id)))
	return passkey.Registration{Name: "a key", Credential: a.id, ClientData: a.client("webauthn.create", challenge), Data: a.data(append(attested, a.id...)...), Public: public}
}

// api makes a request of the page, and decodes the answer.
func (v *visitor) api(method, path string, body, into any) (status int, text string) {
	v.o.t.Helper()
	raw := ""
	if body != nil {
		out, err := json.Marshal(body)
		if err != nil {
			v.o.t.Fatal(err)
		}
		raw = string(out)
	}
	status, text = v.ask(method, "/api/v1"+path, raw)
	if into != nil && status == http.StatusOK {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			v.o.t.Fatalf("%s: %v", text, err)
		}
	}
	return status, text
}

// registers registers a passkey; more may change what is asked.
func (v *visitor) registers(a *authenticator, more func(*decisions.PasskeyRequest)) (status int, text string) {
	v.o.t.Helper()
	return a.registered(v.api, more)
}

// registered registers a passkey by the requests of a page.
func (a *authenticator) registered(api func(method, path string, body, into any) (int, string), more func(*decisions.PasskeyRequest)) (status int, text string) {
	a.t.Helper()
	var c decisions.Challenge
	if status, text := api("POST", "/passkeys/challenge", struct{}{}, &c); status != http.StatusOK {
		return status, text
	}
	challenge, err := base64.RawURLEncoding.DecodeString(c.Challenge)
	if err != nil {
		a.t.Fatal(err)
	}
	asked := decisions.PasskeyRequest{Registration: a.new(challenge)}
	if more != nil {
		more(&asked)
	}
	return api("POST", "/passkeys", asked, nil)
}

// statement returns what is shown of a record, and what is to be signed.
func (v *visitor) statement(id string) (decisions.Statement, []byte) {
	v.o.t.Helper()
	var said decisions.Statement
	if status, text := v.api("GET", "/approvals/"+id+"/statement?purpose=approve", nil, &said); status != http.StatusOK {
		v.o.t.Fatalf("the statement: %d %s", status, text)
	}
	sum := sha256.Sum256([]byte(said.Document))
	signed := passkey.Statement{Purpose: said.Purpose, ID: said.ID, TTL: said.TTL, Args: said.Args, Shown: fmt.Sprintf("%x", sum)}
	return said, signed.Challenge()
}

func (a *asking) browser() *visitor {
	a.t.Helper()
	link := strings.TrimSpace(a.mustOrla("console", "--no-browser", "--socket", a.socket))
	base, code, _ := strings.Cut(link, "#")
	v := &visitor{o: a.running, origin: strings.TrimSuffix(base, "/console/login")}
	if !strings.HasPrefix(v.origin, "http://localhost:") {
		a.t.Fatalf("the link is %s: passkeys need the name localhost", link)
	}
	v.enter(`{"code":"` + code + `"}`)
	return v
}

func (v *visitor) enter(body string) {
	v.o.t.Helper()
	status, text := v.ask("POST", "/console/login", body)
	var said struct{ Key string }
	if json.Unmarshal([]byte(text), &said) != nil || status != http.StatusOK {
		v.o.t.Fatalf("the login: %d %s", status, text)
	}
	v.key = said.Key
}

// SPEC-TOOLS 8.7, O3: a person approves by a passkey on the page. Ten ways of a local program to do so without the person
// are refused, one by one; then the call still waits, and the person approves it. The audit log has what was signed, and
// orla audit verify checks it.
func TestT87NoProgramApprovesWithoutThePerson(t *testing.T) {
	t.Parallel()
	a := serveAsking(t, os.Geteuid(), "")
	v := a.browser()
	person := newAuthenticator(t, v.origin)
	if status, text := v.registers(person, nil); status != http.StatusOK {
		t.Fatalf("the first passkey: %d %s", status, text)
	}
	if l, err := net.Listen("tcp", strings.Replace(strings.TrimPrefix(v.origin, "http://"), "localhost", "[::1]", 1)); err == nil {
		_ = l.Close()
		t.Error("another program can listen where browsers look for localhost first")
	}
	done := a.begins(`{"n":1}`)
	first := a.waiting()
	_, challenge := v.statement(first.ID)
	approve := func(id, ttl string, proof passkey.Assertion) (int, string) {
		return v.api("POST", "/approvals/"+id+"/approve", decisions.VisitorDecision{TTL: ttl, Digest: "", Proof: proof}, nil)
	}
	used := person.signs(challenge)
	if status, text := approve(first.ID, "", used); status != http.StatusOK || !strings.Contains(text, `"decided_how":"passkey"`) {
		t.Fatalf("the person: %d %s", status, text)
	}
	if got := <-done; !strings.Contains(got[0], "wiped") {
		t.Fatalf("the call that the person approved: %q", got)
	}

	done = a.begins(`{"n":2}`)
	second := a.waiting()
	socket := control.NewClient(a.socket)
	_, challenge = v.statement(second.ID)
	copied := *person
	changed := func(how func(*authenticator)) func() (int, string) {
		return func() (int, string) {
			program := *person
			how(&program)
			return approve(second.ID, "", program.signs(challenge))
		}
	}
	asStatus := func(err error) (int, string) {
		if err == nil {
			return http.StatusOK, ""
		}
		return http.StatusForbidden, err.Error()
	}
	for _, c := range []struct {
		name, want string
		try        func() (int, string)
	}{
		{"the API with the owner's socket", "runs this Orla", func() (int, string) {
			_, err := socket.Approve(t.Context(), second.ID, control.ApproveRequest{Digest: second.Digest})
			return asStatus(err)
		}},
		{"the command line as the same user", "runs this Orla", func() (int, string) {
			s := a.orla("approvals", "approve", second.ID, "--socket", a.socket)
			return map[bool]int{true: http.StatusOK, false: http.StatusForbidden}[s.code == 0], s.err
		}},
		{"the page without a passkey", "needs a passkey", func() (int, string) {
			return v.api("POST", "/approvals/"+second.ID+"/approve", decisions.VisitorDecision{Digest: second.Digest}, nil)
		}},
		{"an assertion that was used", "other content", func() (int, string) { return approve(second.ID, "", used) }},
		{"an assertion that was used, for its own call", "approved by", func() (int, string) { return approve(first.ID, "", used) }},
		{"an assertion for another call", "other content", func() (int, string) {
			sum := passkey.Statement{Purpose: "approve", ID: first.ID, Args: passkey.Sum([]byte(`{"n":2}`)), Shown: passkey.Sum([]byte("x"))}
			return approve(second.ID, "", person.signs(sum.Challenge()))
		}},
		{"an assertion for other arguments than were shown", "other content", func() (int, string) {
			said, _ := v.statement(second.ID)
			shown := strings.Replace(said.Document, `"n":2`, `"n":3`, 1)
			if shown == said.Document {
				t.Errorf("the document has no arguments: %s", shown)
			}
			s := passkey.Statement{Purpose: "approve", ID: second.ID, Args: passkey.Sum([]byte(`{"n":3}`)), Shown: passkey.Sum([]byte(shown))}
			return approve(second.ID, "", person.signs(s.Challenge()))
		}},
		{"an assertion for a shorter time than is asked for", "other content", func() (int, string) { return approve(second.ID, "168h", person.signs(challenge)) }},
		{"an assertion of another origin", "another page", changed(func(p *authenticator) { p.origin = "http://localhost:1" })},
		{"an assertion on the page of another program, which has a session from there", "another port than Orla, which may be that of another program", func() (int, string) {
			program := *person
			program.origin = "http://localhost:9"
			its := &visitor{o: v.o, origin: v.origin, host: "localhost:9"}
			_, code, _ := strings.Cut(strings.TrimSpace(a.mustOrla("console", "--no-browser", "--socket", a.socket)), "#")
			its.enter(`{"code":"` + code + `"}`)
			return its.api("POST", "/approvals/"+second.ID+"/approve", decisions.VisitorDecision{Proof: program.signs(challenge)}, nil)
		}},
		{"an assertion of another host", "another host", changed(func(p *authenticator) { p.rp = "evil.example" })},
		{"an assertion by a copy of the passkey", "counter", func() (int, string) {
			copied.count = 0
			return approve(second.ID, "", copied.signs(challenge))
		}},
		{"an assertion without the person's PIN", "verified", changed(func(p *authenticator) { p.flags = 0x01 })},
		{"an assertion that nobody touched", "touched", changed(func(p *authenticator) { p.flags = 0x04 })},
		{"an assertion by another key", "not one of this passkey", changed(func(p *authenticator) { p.key = newAuthenticator(t, v.origin).key })},
		{"another passkey of the program, without a link", "has not agreed", func() (int, string) { return v.registers(newAuthenticator(t, v.origin), nil) }},
		{"another passkey of the program, with a new link of the same user", "has not agreed", func() (int, string) {
			return a.browser().registers(newAuthenticator(t, v.origin), nil)
		}},
		{"another passkey of the program, which agrees to itself", "not a passkey of", func() (int, string) {
			own := newAuthenticator(t, v.origin)
			return v.registers(own, func(asked *decisions.PasskeyRequest) {
				s := passkey.Statement{Purpose: "register", ID: passkey.Sum(asked.Public), Shown: passkey.Sum(asked.ClientData)}
				asked.Proof = own.signs(s.Challenge())
			})
		}},
		{"a registration without a challenge", "no challenge", func() (int, string) {
			return v.api("POST", "/passkeys", decisions.PasskeyRequest{Registration: newAuthenticator(t, v.origin).new([]byte("x"))}, nil)
		}},
		{"a body that says who decides", "unknown field", func() (int, string) {
			return v.ask("POST", "/api/v1/approvals/"+second.ID+"/approve", `{"digest":"`+second.Digest+`","decided_by":"user:root(0)"}`)
		}},
	} {
		if status, text := c.try(); status == http.StatusOK || !strings.Contains(text, c.want) {
			t.Errorf("%s: %d %s; want a refusal with %q", c.name, status, text, c.want)
		}
		if still := a.waiting(); still.ID != second.ID {
			t.Fatalf("after %s, %s waits", c.name, still.ID)
		}
	}
	if runs := a.runs(); len(runs) != 1 {
		t.Errorf("the tool ran for %q", runs)
	}

	// A second passkey, to which the first one agrees, approves with a reason to wait longer.
	another := newAuthenticator(t, v.origin)
	if status, text := v.registers(another, func(asked *decisions.PasskeyRequest) {
		s := passkey.Statement{Purpose: "register", ID: passkey.Sum(asked.Public), Shown: passkey.Sum(asked.ClientData)}
		asked.Proof = person.signs(s.Challenge())
	}); status != http.StatusOK {
		t.Errorf("the second passkey: %d %s", status, text)
	}
	var said decisions.Statement
	v.api("GET", "/approvals/"+second.ID+"/statement?purpose=extend&ttl=1h", nil, &said)
	s := passkey.Statement{Purpose: "extend", ID: second.ID, TTL: "1h", Args: said.Args, Shown: passkey.Sum([]byte(said.Document))}
	extension := decisions.VisitorDecision{TTL: "1h", Proof: another.signs(s.Challenge())}
	if status, text := v.api("POST", "/approvals/"+second.ID+"/extend", extension, nil); status != http.StatusOK || strings.Contains(text, `"ttl":"1h0m0s"`) {
		t.Errorf("extend: %d %s", status, text)
	}
	if status, text := v.api("POST", "/approvals/"+second.ID+"/extend", extension, nil); status != http.StatusForbidden {
		t.Errorf("the same extension again: %d %s", status, text)
	}
	if status, text := approve(second.ID, "", person.signs(challenge)); status != http.StatusForbidden || !strings.Contains(text, "other content") {
		t.Errorf("an assertion from before the extension: %d %s", status, text)
	}
	_, challenge = v.statement(second.ID)
	if status, text := approve(second.ID, "", person.signs(challenge)); status != http.StatusOK {
		t.Errorf("the person: %d %s", status, text)
	}
	if got := <-done; !strings.Contains(got[0], "wiped") {
		t.Errorf("the second call: %q", got)
	}
	testkit.Eventually(t, "4 proofs are in the audit log, which is written soon after", func() bool {
		return strings.Count(testkit.ReadFile(t, filepath.Join(a.dir, "audit.log")), `"proof":{`) == 4
	})
	a.mustOrla("audit", "verify", "--config", filepath.Join(a.dir, "orla.yaml"))
}

// SPEC-TOOLS 8.7: a rule that wants a passkey is not content with root, and anybody with the role may deny.
func TestT87ARuleWantsAPasskey(t *testing.T) {
	t.Parallel()
	a := serveAsking(t, os.Geteuid(), "approvals: {same_user: true}\n")
	testkit.WriteTool(t, filepath.Join(a.dir, "tools"), "rule.yaml", fmt.Sprintf(wipeRule, ", approvers: [passkey]"))
	a.mustOrla("reload", "--socket", a.socket)
	v := a.browser()
	person := newAuthenticator(t, v.origin)
	if status, text := v.registers(person, nil); status != http.StatusOK {
		t.Fatalf("the first passkey: %d %s", status, text)
	}
	done := a.begins(`{}`)
	waits := a.waiting()
	if _, err := control.NewClient(a.socket).Approve(t.Context(), waits.ID, control.ApproveRequest{Digest: waits.Digest}); err == nil || !strings.Contains(err.Error(), "wants a passkey") {
		t.Errorf("the socket: %v", err)
	}
	for _, what := range []string{"approve", "extend"} {
		if status, text := v.api("POST", "/approvals/"+waits.ID+"/"+what, decisions.VisitorDecision{Digest: waits.Digest, TTL: "1h"}, nil); status != http.StatusForbidden || !strings.Contains(text, "wants a passkey") {
			t.Errorf("%s without a passkey: %d %s", what, status, text)
		}
	}
	if status, text := v.api("POST", "/approvals/"+waits.ID+"/deny", decisions.VisitorDecision{Reason: "not now"}, nil); status != http.StatusOK {
		t.Errorf("deny: %d %s", status, text)
	}
	if got := <-done; got[1] != "approval_denied" || !strings.Contains(got[0], "not now") {
		t.Errorf("the call: %q", got)
	}
}

// outsider is a browser that comes by another name.
type outsider struct {
	o                   *running
	host                string
	cookie, key, origin string
}

func (g *outsider) ask(method, path, body string) (status int, text string, cookies []*http.Cookie) {
	g.o.t.Helper()
	ctx, cancel := context.WithTimeout(g.o.t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(g.o.url, "/mcp")+path, strings.NewReader(body))
	if err != nil {
		g.o.t.Fatal(err)
	}
	req.Host = g.host
	req.Header = http.Header{"Origin": {g.origin}, "Content-Type": {"application/json"}, "Cookie": {g.cookie}, "X-Orla-Console": {g.key}}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		g.o.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		g.o.t.Fatal(err)
	}
	return resp.StatusCode, string(out), resp.Cookies()
}

func (g *outsider) enter(token string) (status int, text string) {
	g.o.t.Helper()
	status, text, cookies := g.ask("POST", "/console/login", fmt.Sprintf(`{"token":%q}`, token))
	var said struct{ Key string }
	if status == http.StatusOK && json.Unmarshal([]byte(text), &said) == nil && len(cookies) == 1 {
		g.key, g.cookie = said.Key, cookies[0].Name+"="+cookies[0].Value
		if c := cookies[0]; !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteStrictMode {
			g.o.t.Errorf("the cookie is %v", c)
		}
	}
	return status, text
}

// O3: beyond loopback a caller enters with its token, behind a proxy with TLS, and may do what its roles say: nothing
// without one. Calls of Try it are its own, under its own rules. Who makes a call does not approve it. A token that is
// removed ends its sessions at the reload.
func TestO3RolesBeyondLoopback(t *testing.T) {
	t.Parallel()
	names := []string{"vera", "otto", "anna", "nemo"}
	config := "allowed_hosts: [orla.example.com]\nauth:\n  tokens:\n"
	for _, name := range names {
		config += fmt.Sprintf("    - {name: %s, file: %s.token}\n", name, name)
	}
	entries := "callers:\n  - {name: vera, console: [viewer]}\n  - {name: otto, console: [operator]}\n  - {name: anna, console: [approver, operator]}\n"
	a := prepareAsking(t, names, config+entries)
	enter := func(name string) *outsider {
		t.Helper()
		g := &outsider{o: a.running, host: "orla.example.com", origin: "https://orla.example.com"}
		if status, text := g.enter(tokenOf(name)); status != http.StatusOK {
			t.Fatalf("%s: %d %s", name, status, text)
		}
		return g
	}
	for _, c := range []struct{ host, origin, token, want string }{
		{"orla.example.com", "https://orla.example.com", tokenOf("nemo"), "nemo has no role"},
		{"orla.example.com", "https://orla.example.com", "wrong" + tokenOf("anna"), "does not let you in"},
		{"evil.example", "https://evil.example", tokenOf("anna"), "Host"},
		{"orla.example.com", "https://evil.example", tokenOf("anna"), "another page"},
		{"orla.example.com.evil.example", "https://orla.example.com.evil.example", tokenOf("anna"), "Host"},
	} {
		g := &outsider{o: a.running, host: c.host, origin: c.origin}
		if status, text := g.enter(c.token); status != http.StatusForbidden || !strings.Contains(text, c.want) {
			t.Errorf("%s at %s: %d %s, want %q", c.origin, c.host, status, text, c.want)
		}
	}
	vera, otto, anna := enter("vera"), enter("otto"), enter("anna")
	for _, c := range []struct {
		who          *outsider
		method, path string
		body         string
		want         int
	}{
		{vera, "GET", "/api/v1/status", "", 200},
		{vera, "POST", "/api/v1/tools/wipe/call", `{}`, 403},
		{vera, "POST", "/api/v1/capsules/wipe/stop", `{}`, 403},
		{vera, "POST", "/api/v1/passkeys/challenge", `{}`, 403},
		{vera, "POST", "/api/v1/approvals/ap-1/deny", `{}`, 403},
		{otto, "POST", "/api/v1/capsules/wipe/stop", `{}`, 409},
		{otto, "POST", "/api/v1/approvals/ap-1/deny", `{}`, 403},
		{anna, "POST", "/api/v1/approvals/ap-1/deny", `{}`, 404},
		{anna, "POST", "/api/v1/reload", `{}`, 404},
		{anna, "POST", "/api/v1/console", `{}`, 404},
	} {
		if status, text, _ := c.who.ask(c.method, c.path, c.body); status != c.want && (c.want != 409 || status == 403) {
			t.Errorf("%s %s: %d %s, want %d", c.method, c.path, status, text, c.want)
		}
	}
	plain := *anna
	plain.origin = "http://orla.example.com"
	if status, _, _ := plain.ask("POST", "/api/v1/approvals/ap-1/deny", `{}`); status != http.StatusUnauthorized {
		t.Errorf("the session of a page with TLS on one without: %d", status)
	}
	local := *anna
	local.host, local.origin = strings.TrimPrefix(strings.TrimSuffix(a.url, "/mcp"), "http://"), strings.TrimSuffix(a.url, "/mcp")
	if status, _, _ := local.ask("POST", "/api/v1/approvals/ap-1/deny", `{}`); status != http.StatusUnauthorized {
		t.Errorf("the session of a page with TLS on loopback: %d", status)
	}
	done := make(chan string, 1)
	go func() {
		_, text, _ := anna.ask("POST", "/api/v1/tools/wipe/call", `{"arguments":{"n":1}}`)
		done <- text
	}()
	waits := a.waiting()
	if waits.Caller != "anna" {
		t.Errorf("the call is one of %q", waits.Caller)
	}
	path := "/api/v1/approvals/" + waits.ID
	if status, text, _ := anna.ask("POST", path+"/deny", `{}`); status != http.StatusForbidden || !strings.Contains(text, "whoever makes a call") {
		t.Errorf("anna about her own call: %d %s", status, text)
	}
	if status, text, _ := anna.ask("POST", path+"/approve", fmt.Sprintf(`{"digest":%q}`, waits.Digest)); status != http.StatusForbidden || !strings.Contains(text, "needs a passkey") {
		t.Errorf("anna approves without a passkey: %d %s", status, text)
	}
	if _, err := control.NewClient(a.socket).Deny(t.Context(), waits.ID, control.DenyRequest{}); err != nil {
		t.Error(err)
	}
	if text := <-done; !strings.Contains(text, "approval_denied") {
		t.Errorf("anna's call: %s", text)
	}
	a.configure(t, strings.Replace(config, "    - {name: anna, file: anna.token}\n", "", 1)+strings.Replace(entries, "console: [operator]", "console: []", 1))
	a.mustOrla("reload", "--socket", a.socket)
	for g, want := range map[*outsider]int{vera: 200, otto: 401, anna: 401} {
		if status, _, _ := g.ask("GET", "/api/v1/status", ""); status != want {
			t.Errorf("after the reload %s gets %d, want %d", g.cookie, status, want)
		}
	}
}

func tokenOf(name string) string { return strings.Repeat(name, 6) }

// prepareAsking serves an Orla with tokens.
func prepareAsking(t *testing.T, names []string, config string) *asking {
	t.Helper()
	a := &asking{program: orlaBinary(t)}
	a.socket = shortPath(t)
	a.dir = filepath.Dir(a.socket)
	testkit.WriteTool(t, filepath.Join(a.dir, "tools"), "wipe", "#!/bin/sh\necho \"$*\" >> ../runs\necho wiped\n")
	testkit.WriteTool(t, filepath.Join(a.dir, "tools"), "rule.yaml", fmt.Sprintf(wipeRule, ""))
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(a.dir, name+".token"), []byte(tokenOf(name)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a.configure(t, config)
	a.running = startPrepared(t, a.dir, func(*exec.Cmd) {}, a.program, "--socket", a.socket)
	a.url, _ = a.waitLog("serving", nil)["url"].(string)
	return a
}
