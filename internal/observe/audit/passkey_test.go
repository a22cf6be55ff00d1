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

// SPEC-TOOLS 8.7, 8.8: a decision by a passkey has what it has signed, and whoever checks the log finds one that is not
// about this decision, or of somebody else, or missing.
func TestT88AProofIsChecked(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	args := []byte(`{"a":"x","b":1}`)
	proof := func(s passkey.Statement) []byte {
		client := fmt.Appendf(nil, `{"type":"webauthn.get","challenge":%q,"origin":"http://localhost:8080"}`, base64.RawURLEncoding.EncodeToString(s.Challenge()))
		rp, sum := sha256.Sum256([]byte("localhost")), sha256.Sum256(client)
		data := append(rp[:], 0x05, 0, 0, 0, 1)
		hash := sha256.Sum256(append(append([]byte{}, data...), sum[:]...))
		signature, err := ecdsa.SignASN1(rand.Reader, key, hash[:])
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(&passkey.Proof{Public: public, RP: "localhost", TTL: s.TTL, Shown: s.Shown, Assertion: passkey.Assertion{Credential: []byte("id"), ClientData: client, Data: data, Signature: signature}})
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
