package program

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/app/decisions"
	"github.com/orla-project/orla/internal/call/approvals/passkey"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// api makes a request of the page, and decodes the answer.
func (g *outsider) api(method, path string, body, into any) (status int, text string) {
	g.o.t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		g.o.t.Fatal(err)
	}
	status, text, _ = g.ask(method, "/api/v1"+path, string(raw))
	if into != nil && status == http.StatusOK {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			g.o.t.Fatalf("%s: %v", text, err)
		}
	}
	return status, text
}

// registers asks for a passkey to be registered; more may change the request.
func (g *outsider) registers(a *authenticator, more func(*decisions.PasskeyRequest)) (status int, text string) {
	g.o.t.Helper()
	return a.registered(g.api, more)
}

// approves approves a call by a passkey.
func (g *outsider) approves(id string, a *authenticator) (status int, text string) {
	g.o.t.Helper()
	var said decisions.Statement
	if status, text := g.api("GET", "/approvals/"+id+"/statement?purpose=approve", nil, &said); status != http.StatusOK {
		return status, text
	}
	s := passkey.Statement{Purpose: said.Purpose, ID: said.ID, Args: said.Args, Shown: passkey.Sum([]byte(said.Document))}
	return g.api("POST", "/approvals/"+id+"/approve", decisions.VisitorDecision{Proof: a.signs(s.Challenge())}, nil)
}

// SPEC-TOOLS 8.7, O3: a second person registers a passkey in the own browser, and somebody who has one agrees to what is
// shown. Either may then approve. One of two is removed, and the last one stays. No program does any of that alone.
func TestT87ASecondPersonHasAPasskey(t *testing.T) {
	t.Parallel()
	names := []string{"anna", "bert", "otto"}
	config := "allowed_hosts: [orla.example.com]\nauth:\n  tokens:\n"
	for _, name := range names {
		config += fmt.Sprintf("    - {name: %s, file: %s.token}\n", name, name)
	}
	a := prepareAsking(t, names, config+"callers:\n  - {name: anna, console: [approver]}\n  - {name: bert, console: [approver]}\n  - {name: otto, console: [operator]}\n")
	enter := func(name string) *outsider {
		t.Helper()
		g := &outsider{o: a.running, host: "orla.example.com", origin: "https://orla.example.com"}
		if status, text := g.enter(tokenOf(name)); status != http.StatusOK {
			t.Fatalf("%s: %d %s", name, status, text)
		}
		return g
	}
	anna, bert, otto := enter("anna"), enter("bert"), enter("otto")
	hers, his := newAuthenticator(t, anna.origin), newAuthenticator(t, bert.origin)
	ask := func(asked *decisions.PasskeyRequest) { asked.Ask = true }
	link := strings.TrimSpace(a.mustOrla("console", "--no-browser", "--socket", a.socket))
	if status, text := anna.registers(hers, func(asked *decisions.PasskeyRequest) { asked.Link = link }); status != http.StatusOK {
		t.Fatalf("the first passkey: %d %s", status, text)
	}
	if status, text := bert.registers(his, func(*decisions.PasskeyRequest) {}); status != http.StatusForbidden {
		t.Errorf("a second person alone: %d %s", status, text)
	}
	if status, text := bert.registers(his, ask); status != http.StatusOK || !strings.Contains(text, `"asked":{"name":"a key"`) {
		t.Fatalf("a second person asks: %d %s", status, text)
	}
	list := func() (all decisions.KnownPasskeys) {
		t.Helper()
		if status, text := anna.api("GET", "/passkeys", nil, &all); status != http.StatusOK {
			t.Fatalf("the list: %d %s", status, text)
		}
		return all
	}
	all := list()
	if len(all.Passkeys) != 1 || len(all.Asked) != 1 || !strings.Contains(all.Asked[0].Document, `"owner":"bert"`) {
		t.Fatalf("the list: %+v", all)
	}
	done := make(chan string, 3)
	calls := func() string {
		t.Helper()
		go func() {
			_, text, _ := otto.ask("POST", "/api/v1/tools/wipe/call", `{"arguments":{}}`)
			done <- text
		}()
		return a.waiting().ID
	}
	signed := func(by *authenticator, purpose string, k decisions.KnownPasskey) decisions.PasskeyDecision {
		s := passkey.Statement{Purpose: purpose, ID: k.Key, Shown: passkey.Sum([]byte(k.Document))}
		return decisions.PasskeyDecision{Key: k.Key, Proof: by.signs(s.Challenge())}
	}
	call, wanted, first := calls(), all.Asked[0], all.Passkeys[0]
	other := wanted
	other.Document = strings.Replace(wanted.Document, "bert", "carl", 1)
	for _, c := range []struct {
		name, want string
		try        func() (int, string)
	}{
		{"a passkey that waits approves", "not a passkey of bert", func() (int, string) { return bert.approves(call, his) }},
		{"it agrees to itself", "not a passkey of bert", func() (int, string) { return bert.api("POST", "/passkeys/agree", signed(his, "agree", wanted), nil) }},
		{"nobody signs", "not a passkey of anna", func() (int, string) {
			return anna.api("POST", "/passkeys/agree", decisions.PasskeyDecision{Key: wanted.Key}, nil)
		}},
		{"the first person's signature, from the second one's page", "not a passkey of bert", func() (int, string) {
			return bert.api("POST", "/passkeys/agree", signed(hers, "agree", wanted), nil)
		}},
		{"a signature for something else", "other content", func() (int, string) {
			return anna.api("POST", "/passkeys/agree", signed(hers, "remove", wanted), nil)
		}},
		{"a signature for another owner", "other content", func() (int, string) {
			return anna.api("POST", "/passkeys/agree", signed(hers, "agree", other), nil)
		}},
		{"who may not approve", "does not have the role approver", func() (int, string) {
			return otto.api("POST", "/passkeys/agree", signed(hers, "agree", wanted), nil)
		}},
		{"who may not approve asks", "does not have the role approver", func() (int, string) { return otto.registers(his, ask) }},
		{"a passkey that is not there", "not there any more", func() (int, string) {
			return anna.api("POST", "/passkeys/agree", signed(hers, "agree", first), nil)
		}},
		{"the last passkey is removed", "the last one", func() (int, string) { return anna.api("POST", "/passkeys/remove", signed(hers, "remove", first), nil) }},
	} {
		if status, text := c.try(); status != http.StatusForbidden || !strings.Contains(text, c.want) {
			t.Errorf("%s: %d %s; want a refusal with %q", c.name, status, text, c.want)
		}
	}
	if now := list(); len(now.Passkeys) != 1 || len(now.Asked) != 1 {
		t.Fatalf("after the refusals: %+v", now)
	}
	agreement := signed(hers, "agree", wanted)
	if status, text := anna.api("POST", "/passkeys/agree", agreement, nil); status != http.StatusOK {
		t.Fatalf("the first person agrees: %d %s", status, text)
	}
	if status, text := anna.api("POST", "/passkeys/agree", agreement, nil); status != http.StatusForbidden {
		t.Errorf("the same agreement again: %d %s", status, text)
	}
	if status, text := bert.approves(call, his); status != http.StatusOK || !strings.Contains(<-done, "wiped") {
		t.Errorf("the second person approves: %d %s", status, text)
	}
	call = calls()
	if status, text := anna.approves(call, hers); status != http.StatusOK || !strings.Contains(<-done, "wiped") {
		t.Errorf("the first person approves: %d %s", status, text)
	}

	call, all = calls(), list()
	if status, text := anna.api("POST", "/passkeys/remove", decisions.PasskeyDecision{Key: wanted.Key}, nil); status != http.StatusForbidden || len(list().Passkeys) != 2 {
		t.Errorf("a passkey is removed and nobody signs: %d %s", status, text)
	}
	if status, text := anna.api("POST", "/passkeys/remove", signed(hers, "remove", all.Passkeys[1]), nil); status != http.StatusOK || len(list().Passkeys) != 1 {
		t.Errorf("the second person's passkey is removed: %d %s", status, text)
	}
	if status, text := bert.approves(call, his); status != http.StatusForbidden || !strings.Contains(text, "not a passkey of bert") {
		t.Errorf("a passkey that was removed approves: %d %s", status, text)
	}
	if status, text := bert.registers(newAuthenticator(t, bert.origin), ask); status != http.StatusOK {
		t.Errorf("another one is asked for: %d %s", status, text)
	}
	if status, text := anna.api("POST", "/passkeys/refuse", decisions.PasskeyDecision{Key: list().Asked[0].Key}, nil); status != http.StatusOK || len(list().Asked) != 0 {
		t.Errorf("it is refused: %d %s", status, text)
	}
	if status, text := anna.approves(call, hers); status != http.StatusOK || !strings.Contains(<-done, "wiped") {
		t.Errorf("the first person approves what the other one could not: %d %s", status, text)
	}
	log := filepath.Join(a.dir, "audit.log")
	testkit.Eventually(t, "the audit log, which is written soon after, has 5 proofs", func() bool {
		return strings.Count(testkit.ReadFile(t, log), `"proof":{`) == 5
	})
	a.mustOrla("audit", "verify", "--config", filepath.Join(a.dir, "orla.yaml"))
}
