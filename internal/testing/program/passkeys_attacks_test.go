package program

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/orla-project/orla/internal/app/decisions"
	"github.com/orla-project/orla/internal/call/approvals/passkey"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// people are those who may approve, each with a browser and a passkey that is not registered yet.
type people struct {
	*asking
	page map[string]*outsider
	key  map[string]*authenticator
}

const approversConfig = `allowed_hosts: [orla.example.com]
auth:
  tokens:
    - {name: anna, file: anna.token}
    - {name: bert, file: bert.token}
    - {name: carl, file: carl.token}
callers:
  - {name: anna, console: [approver, operator]}
  - {name: bert, console: [approver]}
  - {name: carl, console: [approver]}
`

// servePeople serves anna, bert and carl. anna has the first passkey, of a kind that does not count, as those are which
// several devices share.
func servePeople(t *testing.T) *people {
	t.Helper()
	p := &people{asking: prepareAsking(t, []string{"anna", "bert", "carl"}, approversConfig), page: map[string]*outsider{}, key: map[string]*authenticator{}}
	for _, name := range []string{"anna", "bert", "carl"} {
		p.page[name] = p.enters(name, "orla.example.com")
		p.key[name] = newAuthenticator(t, p.page[name].origin)
		p.key[name].shared = true
	}
	link := strings.TrimSpace(p.mustOrla("console", "--no-browser", "--socket", p.socket))
	if status, text := p.page["anna"].registers(p.key["anna"], func(asked *decisions.PasskeyRequest) { asked.Link = link }); status != http.StatusOK {
		t.Fatalf("the first passkey: %d %s", status, text)
	}
	return p
}

func (p *people) enters(name, host string) *outsider {
	p.t.Helper()
	g := &outsider{o: p.running, host: host, origin: "https://" + host}
	if status, text := g.enter(tokenOf(name)); status != http.StatusOK {
		p.t.Fatalf("%s: %d %s", name, status, text)
	}
	return g
}

// asks has somebody ask for a passkey, on their page.
func (p *people) asks(on *outsider, key *authenticator, called string) (status int, text string) {
	p.t.Helper()
	return on.registers(key, func(asked *decisions.PasskeyRequest) { asked.Ask, asked.Name = true, called })
}

func (p *people) list() (all decisions.KnownPasskeys) {
	p.t.Helper()
	if status, text := p.page["anna"].api("GET", "/passkeys", nil, &all); status != http.StatusOK {
		p.t.Fatalf("the list: %d %s", status, text)
	}
	return all
}

// waits returns the passkey that waits last.
func (p *people) waits() decisions.KnownPasskey {
	p.t.Helper()
	all := p.list().Asked
	if len(all) == 0 {
		p.t.Fatal("no passkey waits")
	}
	return all[len(all)-1]
}

// of returns the passkey of somebody that is good.
func (p *people) of(name string) (found decisions.KnownPasskey) {
	p.t.Helper()
	for _, k := range p.list().Passkeys {
		if strings.Contains(k.Document, `"owner":"`+name+`"`) {
			found = k
		}
	}
	return found
}

// signs has the passkey of somebody sign what is shown of a passkey.
func (p *people) signs(name, purpose string, k decisions.KnownPasskey) decisions.PasskeyDecision {
	s := passkey.Statement{Purpose: purpose, ID: k.Key, Shown: passkey.Sum([]byte(k.Document))}
	return decisions.PasskeyDecision{Key: k.Key, Proof: p.key[name].signs(s.Challenge())}
}

// refused reports an attack that was not refused as it should be.
func (p *people) refused(attack, want string) func(status int, text string) {
	return func(status int, text string) {
		p.t.Helper()
		if status != http.StatusForbidden || !strings.Contains(text, want) {
			p.t.Errorf("%s: %d %s; want a refusal with %q", attack, status, text, want)
		}
	}
}

func (p *people) must(what string) func(status int, text string) {
	return func(status int, text string) {
		p.t.Helper()
		if status != http.StatusOK {
			p.t.Fatalf("%s: %d %s", what, status, text)
		}
	}
}

// answeredAtOnce makes requests at the same time, and counts those that are answered.
func answeredAtOnce(requests ...func() (int, string)) (good int) {
	answers := make(chan int, len(requests))
	for _, one := range requests {
		go func() {
			status, _ := one()
			answers <- status
		}()
	}
	for range requests {
		if <-answers == http.StatusOK {
			good++
		}
	}
	return good
}

// SPEC-TOOLS 8.7: an agreement is for one passkey, as it was shown, once: not for another name or key, not for the same
// passkey that is asked for again, also by an authenticator that does not count. What a public key signs is its owner's alone.
func TestT87AnAgreementIsForOnePasskey(t *testing.T) {
	t.Parallel()
	p := servePeople(t)
	anna, bert, carl := p.page["anna"], p.page["bert"], p.page["carl"]
	agree := func(d decisions.PasskeyDecision) (int, string) { return anna.api("POST", "/passkeys/agree", d, nil) }

	p.must("bert asks")(p.asks(bert, p.key["bert"], "a laptop"))
	first := p.waits()
	signed := p.signs("anna", "agree", first)
	p.must("bert asks again, by another name")(p.asks(bert, p.key["bert"], "a phone"))
	p.refused("an agreement to another name", "other content")(agree(signed))
	p.must("bert asks again")(p.asks(bert, p.key["bert"], "a laptop"))
	p.refused("an agreement to the same passkey, which was asked for before", "other content")(agree(signed))
	if now := p.waits(); now.Code == first.Code {
		t.Errorf("the code is %s again: who asks often can look for one", now.Code)
	}

	// Somebody claims the key of another person, to use what that one signs.
	for _, victim := range []struct{ name, want string }{{"bert", "waits already"}, {"anna", "registered already"}} {
		stolen := *p.key[victim.name]
		stolen.id = []byte("an id of carl's own")
		p.refused("carl asks with the public key of "+victim.name, victim.want)(p.asks(carl, &stolen, "a key"))
	}
	p.refused("bert asks for the same in another browser, to keep it", "waits already")(p.asks(p.enters("bert", "orla.example.com"), p.key["bert"], "a laptop"))

	signed = p.signs("anna", "agree", p.waits())
	p.must("bert asks with another key")(p.asks(bert, newAuthenticator(t, bert.origin), "a laptop"))
	p.refused("an agreement to another key", "not there any more")(agree(signed))
	elsewhere := p.enters("anna", "orla.example.com:8443")
	abroad := *p.key["anna"]
	abroad.origin = elsewhere.origin
	wanted := p.waits()
	s := passkey.Statement{Purpose: "agree", ID: wanted.Key, Shown: passkey.Sum([]byte(wanted.Document))}
	p.refused("an agreement on the page of another port", "where it was registered")(elsewhere.api("POST", "/passkeys/agree", decisions.PasskeyDecision{Key: wanted.Key, Proof: abroad.signs(s.Challenge())}, nil))
	p.refused("one that was made on another page", "another page")(agree(decisions.PasskeyDecision{Key: wanted.Key, Proof: abroad.signs(s.Challenge())}))
	if now := p.list(); len(now.Passkeys) != 1 {
		t.Fatalf("after all that there are %+v", now.Passkeys)
	}

	p.must("bert asks")(p.asks(bert, p.key["bert"], "a laptop"))
	used := p.signs("anna", "agree", p.waits())
	p.must("anna agrees")(agree(used))
	p.must("anna removes it")(anna.api("POST", "/passkeys/remove", p.signs("anna", "remove", p.of("bert")), nil))
	p.refused("the agreement once more", "not there any more")(agree(used))
	p.must("bert asks for the same again")(p.asks(bert, p.key["bert"], "a laptop"))
	p.refused("the agreement that was used before the removal", "other content")(agree(used))

	// The signature of a passkey for another one of its owner is for that key alone.
	p.refused("a signature for another key", "other content")(anna.registers(newAuthenticator(t, anna.origin), func(asked *decisions.PasskeyRequest) {
		s := passkey.Statement{Purpose: "register", ID: passkey.Sum(asked.Public), Shown: passkey.Sum(asked.ClientData)}
		asked.Proof = p.key["anna"].signs(s.Challenge())
		asked.Public = newAuthenticator(t, anna.origin).new(nil).Public
	}))
	p.mustOrla("audit", "verify", "--config", filepath.Join(p.dir, "orla.yaml"))
}

// SPEC-TOOLS 8.7: of two decisions about one passkey at the same time one counts, and of two people who remove each other's
// passkey one has a passkey in the end. The audit log has them in an order in which they are right. After a restart nothing
// waits, and no agreement from before is good.
func TestT87TwoDecideAboutPasskeysAtOnce(t *testing.T) {
	t.Parallel()
	p := servePeople(t)
	anna, bert, carl := p.page["anna"], p.page["bert"], p.page["carl"]
	for range 4 {
		p.must("bert asks")(p.asks(bert, p.key["bert"], "a laptop"))
		p.must("anna agrees")(anna.api("POST", "/passkeys/agree", p.signs("anna", "agree", p.waits()), nil))
		p.must("carl asks")(p.asks(carl, p.key["carl"], "a laptop"))
		wanted := p.waits()
		hers, his := p.signs("anna", "agree", wanted), p.signs("bert", "agree", wanted)
		if good := answeredAtOnce(
			func() (int, string) { return anna.api("POST", "/passkeys/agree", hers, nil) },
			func() (int, string) { return bert.api("POST", "/passkeys/agree", his, nil) },
		); good != 1 || len(p.list().Passkeys) != 3 {
			t.Fatalf("of two agreements %d counted, and there are %+v", good, p.list().Passkeys)
		}
		p.must("anna removes carl's")(anna.api("POST", "/passkeys/remove", p.signs("anna", "remove", p.of("carl")), nil))
		hers, his = p.signs("anna", "remove", p.of("bert")), p.signs("bert", "remove", p.of("anna"))
		if good := answeredAtOnce(
			func() (int, string) { return anna.api("POST", "/passkeys/remove", hers, nil) },
			func() (int, string) { return bert.api("POST", "/passkeys/remove", his, nil) },
		); good != 1 || len(p.list().Passkeys) != 1 {
			t.Fatalf("of two removals %d counted, and there are %+v", good, p.list().Passkeys)
		}
		if p.of("anna").Key == "" { // bert was faster: he lets her in again
			p.must("anna asks")(p.asks(anna, p.key["anna"], "a laptop"))
			p.must("bert agrees")(bert.api("POST", "/passkeys/agree", p.signs("bert", "agree", p.waits()), nil))
			p.must("anna removes bert's")(anna.api("POST", "/passkeys/remove", p.signs("anna", "remove", p.of("bert")), nil))
		}
	}

	p.must("bert asks")(p.asks(bert, p.key["bert"], "a laptop"))
	wanted := p.waits()
	before := p.signs("anna", "agree", wanted)
	p.signal(syscall.SIGTERM)
	p.wait()
	p.running = p.again()
	for _, name := range []string{"anna", "bert", "carl"} {
		if status, _, _ := (&outsider{o: p.running, host: anna.host, origin: anna.origin, cookie: p.page[name].cookie, key: p.page[name].key}).ask("GET", "/api/v1/status", ""); status != http.StatusUnauthorized {
			t.Errorf("the session of %s from before the restart: %d", name, status)
		}
		p.page[name] = p.enters(name, "orla.example.com")
	}
	p.refused("an agreement from before the restart", "not there any more")(p.page["anna"].api("POST", "/passkeys/agree", before, nil))
	p.must("bert asks for the same after the restart")(p.asks(p.page["bert"], p.key["bert"], "a laptop"))
	p.refused("that agreement, to what is asked for after it", "other content")(p.page["anna"].api("POST", "/passkeys/agree", before, nil))
	if all := p.list(); len(all.Passkeys) != 1 || p.of("anna").Key == "" {
		t.Errorf("after the restart there are %+v", all.Passkeys)
	}
	p.mustOrla("audit", "verify", "--config", filepath.Join(p.dir, "orla.yaml"))
}

// SPEC-TOOLS 8.7, N2: who asks for passkeys in many browsers keeps nobody else from asking.
func TestT87ManyPasskeysOfOneWait(t *testing.T) {
	t.Parallel()
	p := servePeople(t)
	for range 16 {
		page := p.enters("bert", "orla.example.com")
		p.must("bert asks")(p.asks(page, newAuthenticator(t, page.origin), "a key"))
	}
	p.must("carl asks")(p.asks(p.page["carl"], p.key["carl"], "a key"))
	var info decisions.VisitorInfo
	status, text, _ := p.page["carl"].ask("GET", "/api/v1/visitor", "")
	if err := json.Unmarshal([]byte(text), &info); err != nil || status != http.StatusOK || info.Asked.Code != p.waits().Code || len(p.list().Asked) != 16 {
		t.Errorf("carl's page: %d %s, %v; and these wait: %+v", status, text, err, p.list().Asked)
	}
	testkit.Eventually(t, "the log says who asked", func() bool {
		return p.count("a passkey was asked for", func(line map[string]any) bool { return line["by"] == "carl" }) == 1
	})
}
