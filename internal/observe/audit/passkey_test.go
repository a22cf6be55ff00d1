package audit_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/call/approvals/passkey"
	"github.com/orla-project/orla/internal/observe/audit"
)

// newPasskey returns the public key of a passkey, and what makes its proofs.
func newPasskey(t *testing.T) ([]byte, func(passkey.Statement) *passkey.Proof) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return public, func(s passkey.Statement) *passkey.Proof {
		t.Helper()
		client := fmt.Appendf(nil, `{"type":"webauthn.get","challenge":%q,"origin":"http://localhost:8080"}`, base64.RawURLEncoding.EncodeToString(s.Challenge()))
		rp, sum := sha256.Sum256([]byte("localhost")), sha256.Sum256(client)
		data := append(rp[:], 0x05, 0, 0, 0, 1)
		hash := sha256.Sum256(append(append([]byte{}, data...), sum[:]...))
		signature, err := ecdsa.SignASN1(rand.Reader, key, hash[:])
		if err != nil {
			t.Fatal(err)
		}
		return &passkey.Proof{Public: public, RP: "localhost", TTL: s.TTL, Shown: s.Shown, Assertion: passkey.Assertion{Credential: []byte("id"), ClientData: client, Data: data, Signature: signature}}
	}
}

// SPEC-TOOLS 8.7, 8.8: a decision by a passkey has what it has signed, and whoever checks the log finds one that is not
// about this decision, or of somebody else, or missing.
func TestT88AProofIsChecked(t *testing.T) {
	args := []byte(`{"a":"x","b":1}`)
	public, sign := newPasskey(t)
	proof := func(s passkey.Statement) []byte {
		raw, err := json.Marshal(sign(s))
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	said := passkey.Statement{Purpose: passkey.Approve, ID: "ap-1", TTL: "1h", Args: passkey.Sum(args), Shown: passkey.Sum([]byte("shown"))}
	other, longer := said, said
	other.ID, longer.Purpose = "ap-2", passkey.Extend
	for name, c := range map[string]struct {
		proof          []byte
		args           string
		by, find, page string
	}{
		"as it was":          {proof(said), string(args), "ada", "", ""},
		"other arguments":    {proof(said), `{"a":"y"}`, "ada", "not one of this decision", ""},
		"of another call":    {proof(other), string(args), "ada", "not one of this decision", ""},
		"of an extension":    {proof(longer), string(args), "ada", "not one of this decision", ""},
		"no JSON of a proof": {[]byte(`[1]`), string(args), "ada", "not one of this decision", ""},
		"no proof":           {nil, string(args), "ada", "has no proof", ""},
		"somebody else":      {proof(said), string(args), "eve", "is one of ada", ""},
		"of another page":    {proof(said), string(args), "ada", "registered on", "http://localhost:9999"},
		"of no registration": {proof(said), string(args), "ada", "no line of its registration", "none"},
	} {
		p := newPlace(t)
		l := p.open(t)
		if c.page == "" {
			c.page = "http://localhost:8080"
		}
		if c.page != "none" {
			l.RecordPasskey(&audit.Passkey{Owner: "ada", Origin: c.page, Name: "a key", Public: public})
		}
		l.RecordApproval(&audit.Approval{
			ID: "ap-1", Caller: "ci", Tool: "wipe", Phase: "Approved", Change: "decided", Args: []byte(c.args),
			ApprovalDecision: audit.ApprovalDecision{Decider: c.by, How: "passkey", Proof: c.proof},
		})
		l.Close()
		r := p.verify(t, p.read(t))
		if found := fmt.Sprint(r.Findings); r.OK() != (c.find == "") || !strings.Contains(found, c.find) {
			t.Errorf("%s: %s; want %q", name, found, c.find)
		}
	}
}

// SPEC-TOOLS 8.7, 8.8: to agree to a passkey and to remove one is signed, and whoever checks the log finds a line that has
// another proof, or none, and a decision by a passkey that was removed.
func TestT88WhoAgreesToAPasskeySigns(t *testing.T) {
	t.Parallel()
	hers, sign := newPasskey(t)
	his, signs := newPasskey(t)
	const page = "http://localhost:8080"
	shown := func(owner, name, origin, key string) string {
		return fmt.Sprintf(`{"owner":%q,"name":%q,"origin":%q,"key":%q,"code":"AAAA-AAAA"}`, owner, name, origin, key)
	}
	document := shown("bob", "a key", page, passkey.Sum(his))
	about := func(purpose string) passkey.Statement {
		return passkey.Statement{Purpose: purpose, ID: passkey.Sum(his), Shown: passkey.Sum([]byte(document))}
	}
	change := func(what, by string, proof *passkey.Proof) *audit.Passkey {
		return &audit.Passkey{Owner: "bob", Origin: page, Name: "a key", Public: his, Change: what, By: by, Proof: proof, Document: document}
	}
	forged := func(how func(*audit.Passkey)) []*audit.Passkey {
		line := change("agreed", "ada", sign(about(passkey.Agree)))
		how(line)
		return []*audit.Passkey{line}
	}
	added := func(of passkey.Statement) []*audit.Passkey {
		return []*audit.Passkey{{Owner: "ada", Origin: page, Name: "a key", Public: his, Change: "added", By: "ada", Proof: sign(of)}}
	}
	other := shown("eve", "a key", page, passkey.Sum(his))
	ofEve := about(passkey.Agree)
	ofEve.Shown = passkey.Sum([]byte(other))
	agreed, removed := change("agreed", "ada", sign(about(passkey.Agree))), change("removed", "ada", sign(about(passkey.Remove)))
	for name, c := range map[string]struct {
		lines   []*audit.Passkey
		decides bool // bob, by his passkey, in the end
		find    string
	}{
		"agreed":                          {[]*audit.Passkey{agreed}, true, ""},
		"and removed":                     {[]*audit.Passkey{agreed, removed}, false, ""},
		"removed, and used":               {[]*audit.Passkey{agreed, removed}, true, "was removed before"},
		"removed, agreed again, and used": {[]*audit.Passkey{agreed, removed, agreed}, true, ""},
		"agreed without a proof":          {[]*audit.Passkey{change("agreed", "ada", nil)}, false, "has no proof"},
		"agreed by a removal":             {[]*audit.Passkey{change("agreed", "ada", sign(about(passkey.Remove)))}, false, "not one of this decision"},
		"removed by an agreement":         {[]*audit.Passkey{agreed, change("removed", "ada", sign(about(passkey.Agree)))}, false, "not one of this decision"},
		"agreed by another than it says":  {[]*audit.Passkey{change("agreed", "eve", sign(about(passkey.Agree)))}, false, "is one of ada"},
		"agreed by itself":                {[]*audit.Passkey{change("agreed", "bob", signs(about(passkey.Agree)))}, false, "no line of its registration"},
		"agreed to another name":          {forged(func(k *audit.Passkey) { k.Name = "a phone" }), false, "something else"},
		"agreed to another page":          {forged(func(k *audit.Passkey) { k.Origin = "http://localhost:9999" }), false, "something else"},
		"agreed to another owner":         {forged(func(k *audit.Passkey) { k.Owner = "eve" }), false, "something else"},
		"with another document":           {forged(func(k *audit.Passkey) { k.Owner, k.Document = "eve", other }), false, "something else"},
		"without the document":            {forged(func(k *audit.Passkey) { k.Document = "" }), false, "something else"},
		"agreed to what is not its owner": {forged(func(k *audit.Passkey) { k.Document, k.Proof = other, sign(ofEve) }), false, "something else"},
		"added by another passkey":        {added(about(passkey.Register)), false, ""},
		"added by an agreement":           {added(about(passkey.Agree)), false, "not one of this decision"},
	} {
		p := newPlace(t)
		l := p.open(t)
		l.RecordPasskey(&audit.Passkey{Owner: "ada", Origin: page, Name: "a key", Public: hers, Change: "added"})
		for _, line := range c.lines {
			l.RecordPasskey(line)
		}
		if c.decides {
			proof, err := json.Marshal(signs(passkey.Statement{Purpose: passkey.Approve, ID: "ap-1", Args: passkey.Sum([]byte("{}")), Shown: passkey.Sum([]byte("shown"))}))
			if err != nil {
				t.Fatal(err)
			}
			l.RecordApproval(&audit.Approval{
				ID: "ap-1", Caller: "ci", Tool: "wipe", Phase: "Approved", Change: "decided", Args: []byte("{}"),
				ApprovalDecision: audit.ApprovalDecision{Decider: "bob", How: "passkey", Proof: proof},
			})
		}
		l.Close()
		r := p.verify(t, p.read(t))
		if found := fmt.Sprint(r.Findings); r.OK() != (c.find == "") || !strings.Contains(found, c.find) {
			t.Errorf("%s: %s; want %q", name, found, c.find)
		}
	}
}
