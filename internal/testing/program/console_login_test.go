package program

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/console"
	"github.com/orla-project/orla/internal/testing/issuer"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// logsIn logs a person in at an issuer, as the page does.
func (g *outsider) logsIn() (status int, text string) {
	g.o.t.Helper()
	var ticket console.Ticket
	status, text, _ = g.ask("POST", "/console/ticket", `{}`)
	if status != http.StatusOK || json.Unmarshal([]byte(text), &ticket) != nil {
		return status, text
	}
	back, err := issuer.Browse(g.o.t.Context(), ticket.Open, "ann")
	if err != nil {
		g.o.t.Fatal(err)
	}
	if !strings.HasPrefix(back.String(), g.origin+"/console/login?") {
		g.o.t.Fatalf("the issuer sends the browser to %s", back)
	}
	return g.finishes(ticket, back.RawQuery)
}

func (g *outsider) finishes(ticket console.Ticket, answer string) (status int, text string) {
	g.o.t.Helper()
	body, err := json.Marshal(map[string]string{"answer": answer, "state": ticket.State, "verifier": ticket.Verifier})
	if err != nil {
		g.o.t.Fatal(err)
	}
	status, text, cookies := g.ask("POST", "/console/login", string(body))
	var said struct{ Key string }
	if status == http.StatusOK && json.Unmarshal([]byte(text), &said) == nil && len(cookies) == 1 {
		g.key, g.cookie = said.Key, cookies[0].Name+"="+cookies[0].Value
	}
	return status, text
}

// SPEC O3: a person logs in to the page at the issuer of access tokens, beyond loopback and on it, and may do what the roles of
// their entry say. The session ends with the token. A token that is pasted still lets in.
func TestO3LoginAtAnIssuer(t *testing.T) {
	t.Parallel()
	i := issuer.New(t)
	config := fmt.Sprintf("allowed_hosts: [orla.example.com]\nauth:\n  oauth: {issuer: %s, public_url: https://orla.example.com, console_client_id: page, groups_claim: groups}\n", i.URL) +
		"callers:\n  - {name: 'oauth:ann', console: [viewer]}\n  - {group: on-call, console: [operator]}\n"
	a := prepareAsking(t, nil, config)
	elsewhere := &outsider{o: a.running, host: "orla.example.com", origin: "https://orla.example.com"}
	local := strings.TrimSuffix(strings.TrimPrefix(a.url, "http://"), "/mcp")
	here := &outsider{o: a.running, host: local, origin: "http://" + local}
	for _, g := range []*outsider{elsewhere, here} {
		if status, text := g.logsIn(); status != http.StatusOK {
			t.Fatalf("%s: %d %s", g.origin, status, text)
		}
		if status, text, _ := g.ask("GET", "/api/v1/visitor", ""); status != http.StatusOK || !strings.Contains(text, `"name":"oauth:ann"`) || !strings.Contains(text, `"roles":["viewer"]`) {
			t.Errorf("%s: %d %s", g.origin, status, text)
		}
		if status, _, _ := g.ask("POST", "/api/v1/tools/wipe/call", `{}`); status != http.StatusForbidden {
			t.Errorf("%s: a viewer calls a tool: %d", g.origin, status)
		}
	}
	pasted := &outsider{o: a.running, host: "orla.example.com", origin: "https://orla.example.com"}
	if status, text := pasted.enter(i.Token(i.Claims("https://orla.example.com/mcp"))); status != http.StatusOK {
		t.Errorf("a token that is pasted: %d %s", status, text)
	}

	i.Grant("sub", "bob")
	if status, text := elsewhere.logsIn(); status != http.StatusForbidden || !strings.Contains(text, "oauth:bob has no role here") {
		t.Errorf("bob: %d %s", status, text)
	}
	i.Grant("groups", []string{"on-call"})
	if status, text := elsewhere.logsIn(); status != http.StatusOK {
		t.Errorf("bob with a group: %d %s", status, text)
	}
	i.Grant("aud", "https://other.example.com/mcp")
	if status, text := elsewhere.logsIn(); status != http.StatusForbidden || !strings.Contains(text, "does not let you in") {
		t.Errorf("a token for another audience: %d %s", status, text)
	}
	i.Grant("aud", "https://orla.example.com/mcp")
	if status, text := elsewhere.finishes(console.Ticket{State: "s", Verifier: "v"}, "code=c&state=s&iss="+i.URL); status != http.StatusForbidden || !strings.Contains(text, "invalid_grant") {
		t.Errorf("an answer of somebody else: %d %s", status, text)
	}
	if status, text := elsewhere.finishes(console.Ticket{State: "s"}, "error=access_denied&state=s&iss="+i.URL); status != http.StatusForbidden || !strings.Contains(text, "the issuer refuses the login: access_denied") {
		t.Errorf("a person who does not agree: %d %s", status, text)
	}

	for short := 3 * time.Second; ; short *= 2 { // the login itself may take longer
		expires := time.Now().Add(short)
		i.Grant("exp", expires.Unix())
		status, text := elsewhere.logsIn()
		if status == http.StatusOK {
			break
		}
		if time.Now().Before(expires.Truncate(time.Second)) || short > testkit.Patience {
			t.Fatalf("with a short token: %d %s", status, text)
		}
	}
	testkit.Eventually(t, "the session ends with its token", func() bool {
		status, _, _ := elsewhere.ask("GET", "/api/v1/status", "")
		return status == http.StatusUnauthorized
	})
	if status, _, _ := here.ask("GET", "/api/v1/status", ""); status != http.StatusOK {
		t.Errorf("another session: %d", status)
	}
}

// O3: a page at another port of this machine may be that of another program, and gets no login, unless allowed_hosts has it.
func TestO3NoLoginForThePageOfAnotherProgram(t *testing.T) {
	t.Parallel()
	i := issuer.New(t)
	config := fmt.Sprintf("allowed_hosts: [orla.example.com, 'localhost:4']\nauth:\n  oauth: {issuer: %s, public_url: https://orla.example.com, console_client_id: page}\n", i.URL) +
		"callers:\n  - {name: 'oauth:ann', console: [viewer]}\n"
	a := prepareAsking(t, nil, config)
	_, port, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(a.url, "http://"), "/mcp"), ":")
	for host, want := range map[string]int{"localhost:" + port: http.StatusOK, "127.0.0.1:" + port: http.StatusOK, "localhost:4": http.StatusOK, "localhost:3": http.StatusForbidden, "127.0.0.1:3": http.StatusForbidden} {
		g := &outsider{o: a.running, host: host, origin: "http://" + host}
		status, text, _ := g.ask("POST", "/console/ticket", `{}`)
		if status != want || want == http.StatusForbidden && !strings.Contains(text, "another port than Orla") {
			t.Errorf("a ticket for %s: %d %s", host, status, text)
		}
		if want == http.StatusForbidden { // without a ticket of Orla's
			if status, text := g.finishes(console.Ticket{State: "s", Verifier: "v"}, "code=c&state=s&iss="+i.URL); status != http.StatusForbidden || !strings.Contains(text, "another port than Orla") {
				t.Errorf("an answer for %s: %d %s", host, status, text)
			}
		}
	}
}

// SPEC-TOOLS 8.7, O3: without a passkey nobody approves whom a program could be: with the access token that it has for its
// calls, or with a login, which a browser finishes by itself that is logged in at the issuer. Both let in, see and deny. A login
// approves where the configuration says so.
func TestT87AnAccessTokenApprovesNothing(t *testing.T) {
	t.Parallel()
	i := issuer.New(t)
	config := fmt.Sprintf("allowed_hosts: [orla.example.com]\nauth:\n  oauth: {issuer: %s, public_url: https://orla.example.com, console_client_id: page}\n", i.URL) +
		"callers:\n  - {name: 'oauth:ann', console: [approver]}\n"
	a := prepareAsking(t, nil, config)
	enters := func(how func(*outsider) (int, string)) *outsider {
		t.Helper()
		g := &outsider{o: a.running, host: "orla.example.com", origin: "https://orla.example.com"}
		if status, text := how(g); status != http.StatusOK {
			t.Fatalf("%d %s", status, text)
		}
		return g
	}
	pasted := enters(func(g *outsider) (int, string) { return g.enter(i.Token(i.Claims("https://orla.example.com/mcp"))) })
	loggedIn := enters((*outsider).logsIn)

	begins := func(n string) <-chan said {
		over := make(chan said, 1)
		go func() { over <- a.as(os.Geteuid(), "call", "wipe", "--arg", "n="+n) }()
		return over
	}
	over := begins("1")
	waits := a.waiting()
	path, asked := "/api/v1/approvals/"+waits.ID, fmt.Sprintf(`{"digest":%q,"ttl":"1h"}`, waits.Digest)
	refused := func(g *outsider) {
		t.Helper()
		for _, what := range []string{"/approve", "/extend"} {
			if status, text, _ := g.ask("POST", path+what, asked); status != http.StatusForbidden || !strings.Contains(text, "needs a passkey") {
				t.Errorf("%s: %d %s", what, status, text)
			}
		}
		if _, text, _ := g.ask("GET", "/api/v1/visitor", ""); !strings.Contains(text, `"alone":false`) {
			t.Errorf("it may approve: %s", text)
		}
	}
	refused(pasted)
	refused(loggedIn)
	a.configure(t, config+"approvals: {by_login: true}\n")
	a.mustOrla("reload", "--socket", a.socket)
	refused(pasted)
	if _, text, _ := loggedIn.ask("GET", "/api/v1/visitor", ""); !strings.Contains(text, `"alone":true`) {
		t.Errorf("with by_login: %s", text)
	}
	if status, text, _ := loggedIn.ask("POST", path+"/approve", asked); status != http.StatusOK {
		t.Errorf("who logged in, with by_login: %d %s", status, text)
	}
	if got := <-over; !strings.Contains(got.out, "wiped") {
		t.Errorf("the approved call: %+v", got)
	}
	over = begins("2")
	if status, text, _ := pasted.ask("POST", "/api/v1/approvals/"+a.waiting().ID+"/deny", `{}`); status != http.StatusOK {
		t.Errorf("a token that was pasted denies: %d %s", status, text)
	}
	if got := <-over; !strings.Contains(got.err, "denied by its approver") {
		t.Errorf("the denied call: %+v", got)
	}
}
