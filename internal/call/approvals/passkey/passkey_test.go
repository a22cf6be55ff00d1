package passkey_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/call/approvals/passkey"
)

const origin = "https://orla.example.com"

// signing is an authenticator of one kind of key.
type signing struct {
	public any
	sign   func(message []byte) []byte
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func kinds() map[string]signing {
	es, rs := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)), must(rsa.GenerateKey(rand.Reader, 2048))
	ed, edPrivate, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	hashed := func(m []byte) []byte { sum := sha256.Sum256(m); return sum[:] }
	return map[string]signing{
		"ES256": {&es.PublicKey, func(m []byte) []byte { return must(ecdsa.SignASN1(rand.Reader, es, hashed(m))) }},
		"RS256": {&rs.PublicKey, func(m []byte) []byte { return must(rsa.SignPKCS1v15(rand.Reader, rs, crypto.SHA256, hashed(m))) }},
		"EdDSA": {ed, func(m []byte) []byte { return ed25519.Sign(edPrivate, m) }},
	}
}

func client(kind, from string, challenge []byte, more string) []byte {
	return fmt.Appendf(nil, `{"type":%q,"challenge":%q,"origin":%q%s}`, kind, base64.RawURLEncoding.EncodeToString(challenge), from, more)
}

func data(rp string, flags byte, count uint32, more ...byte) []byte {
	sum := sha256.Sum256([]byte(rp))
	return append(binary.BigEndian.AppendUint32(append(sum[:], flags), count), more...)
}

func (s signing) assertion(client, data []byte) passkey.Assertion {
	sum := sha256.Sum256(client)
	return passkey.Assertion{Credential: []byte("id"), ClientData: client, Data: data, Signature: s.sign(append(append([]byte{}, data...), sum[:]...))}
}

func (s signing) key() passkey.Key {
	return passkey.Key{ID: []byte("id"), Public: must(x509.MarshalPKIXPublicKey(s.public)), RP: "orla.example.com", Origin: origin, Owner: "ada", Count: 6}
}

// SPEC-TOOLS 8.7: a public key has one text. Another one that the parser takes for the same key neither registers nor checks a
// signature: by it, somebody could have the signatures of another person.
func TestT87AKeyHasOneText(t *testing.T) {
	said := passkey.Statement{Purpose: passkey.Approve, ID: "ap-1"}
	for name, s := range kinds() {
		der := must(x509.MarshalPKIXPublicKey(s.public))
		var outer asn1.RawValue
		if _, err := asn1.Unmarshal(der, &outer); err != nil {
			t.Fatal(err)
		}
		for _, more := range [][]byte{{0x05, 0x00}, {0x02, 0x01, 0x07}} {
			public := must(asn1.Marshal(asn1.RawValue{Tag: asn1.TagSequence, IsCompound: true, Bytes: append(bytes.Clone(outer.Bytes), more...)}))
			if _, err := x509.ParsePKIXPublicKey(public); err != nil {
				t.Fatalf("%s: the parser does not take it: %v", name, err)
			}
			k := s.key()
			k.Public = public
			a := s.assertion(client("webauthn.get", origin, said.Challenge(), ""), data(k.RP, 0x05, 7))
			if err := k.Verify(&a, said, origin); err == nil || !strings.Contains(err.Error(), "another way") {
				t.Errorf("%s: a signature: %v", name, err)
			}
			p := passkey.Proof{Public: public, RP: k.RP, Assertion: a}
			if err := p.Check(said); err == nil {
				t.Errorf("%s: a proof is good", name)
			}
			attested := append(append(make([]byte, 16), 0, 2), "id"...)
			r := passkey.Registration{Name: "k", Credential: []byte("id"), ClientData: client("webauthn.create", origin, []byte("c"), ""), Data: data(k.RP, 0x45, 0, attested...), Public: public}
			if _, err := r.Key([]byte("c"), origin); err == nil || !strings.Contains(err.Error(), "another way") {
				t.Errorf("%s: a registration: %v", name, err)
			}
		}
	}
}

// SPEC-TOOLS 8.7: an assertion of each kind of key is good for one statement, on one page, by a person who was verified, once.
// The same holds for the proof that is kept of it.
func TestT87AnAssertionIsGoodForOneThing(t *testing.T) {
	said := passkey.Statement{Purpose: passkey.Approve, ID: "ap-1", TTL: "1h", Args: passkey.Sum([]byte(`{}`)), Shown: passkey.Sum([]byte("shown"))}
	for name, s := range kinds() {
		k := s.key()
		good := client("webauthn.get", origin, said.Challenge(), `,"crossOrigin":false`)
		if a := s.assertion(good, data(k.RP, 0x05, 7)); k.Verify(&a, said, origin) != nil {
			t.Errorf("%s: %v", name, k.Verify(&a, said, origin))
		}
		for want, a := range map[string]passkey.Assertion{
			`"webauthn.create"`: s.assertion(client("webauthn.create", origin, said.Challenge(), ""), data(k.RP, 0x05, 7)),
			"other content":     s.assertion(client("webauthn.get", origin, []byte("x"), ""), data(k.RP, 0x05, 7)),
			"another page":      s.assertion(client("webauthn.get", "https://evil.example", said.Challenge(), ""), data(k.RP, 0x05, 7)),
			"frame":             s.assertion(client("webauthn.get", origin, said.Challenge(), `,"crossOrigin":true`), data(k.RP, 0x05, 7)),
			"another host":      s.assertion(good, data("example.com", 0x05, 7)),
			"touched":           s.assertion(good, data(k.RP, 0x04, 7)),
			"verified":          s.assertion(good, data(k.RP, 0x01, 7)),
			"counter":           s.assertion(good, data(k.RP, 0x05, 6)),
			"wrong size":        s.assertion(good, data(k.RP, 0x05, 7)[:36]),
			"not JSON":          s.assertion([]byte("{"), data(k.RP, 0x05, 7)),
			"too large":         s.assertion(client("webauthn.get", origin, said.Challenge(), `,"x":"`+strings.Repeat("x", 5000)+`"`), data(k.RP, 0x05, 7)),
			"signature":         {Credential: k.ID, ClientData: good, Data: data(k.RP, 0x05, 8), Signature: s.assertion(good, data(k.RP, 0x05, 7)).Signature},
		} {
			if err := k.Verify(&a, said, origin); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v; want %q", name, err, want)
			}
		}
		for _, other := range []passkey.Statement{
			{Purpose: passkey.Extend, ID: said.ID, TTL: said.TTL, Args: said.Args, Shown: said.Shown},
			{Purpose: said.Purpose, ID: "ap-2", TTL: said.TTL, Args: said.Args, Shown: said.Shown},
			{Purpose: said.Purpose, ID: said.ID, TTL: "2h", Args: said.Args, Shown: said.Shown},
			{Purpose: said.Purpose, ID: said.ID, TTL: said.TTL, Args: said.Shown, Shown: said.Shown},
			{Purpose: said.Purpose, ID: said.ID, TTL: said.TTL, Args: said.Args, Shown: said.Args},
			{Purpose: said.Purpose, ID: said.ID + "\"\n\"1h", Args: said.Args, Shown: said.Shown},
		} {
			p := passkey.Proof{Public: k.Public, RP: k.RP, TTL: said.TTL, Shown: said.Shown, Assertion: s.assertion(good, data(k.RP, 0x05, 7))}
			if p.Check(said) != nil || p.Check(other) == nil {
				t.Errorf("%s: the proof is %v, and for %+v %v", name, p.Check(said), other, p.Check(other))
			}
		}
	}
	moved := kinds()["ES256"]
	k := moved.key()
	k.Origin = "https://orla.example.com:8443"
	if a := moved.assertion(client("webauthn.get", origin, said.Challenge(), ""), data(k.RP, 0x05, 7)); k.Verify(&a, said, origin) == nil {
		t.Error("a passkey is good on another port than that on which it was registered")
	}
	foreign := moved.key()
	foreign.RP = "example.com" // as a proof can say in an audit log that somebody has changed
	if a := moved.assertion(client("webauthn.get", origin, said.Challenge(), ""), data(foreign.RP, 0x05, 7)); foreign.Verify(&a, said, origin) == nil {
		t.Error("a passkey of one host is good on the page of another")
	}
	weak := must(x509.MarshalPKIXPublicKey(&must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader)).PublicKey))
	k = passkey.Key{Public: weak, RP: "orla.example.com", Origin: origin}
	a := passkey.Assertion{ClientData: client("webauthn.get", origin, said.Challenge(), ""), Data: data(k.RP, 0x05, 7)}
	if err := k.Verify(&a, said, origin); err == nil || !strings.Contains(err.Error(), "kind") {
		t.Errorf("a key of another kind: %v", err)
	}
}

// SPEC-TOOLS 8.7: a passkey is registered with the id and the host that its authenticator says.
func TestT87ARegistration(t *testing.T) {
	s := kinds()["ES256"]
	challenge := []byte("challenge")
	attested := append(append(make([]byte, 16), 0, 2), "id"...)
	good := func() passkey.Registration {
		return passkey.Registration{
			Name: "a", Credential: []byte("id"), ClientData: client("webauthn.create", origin, challenge, ""), Data: data("orla.example.com", 0x45, 1, attested...), Public: s.key().Public,
		}
	}
	r := good()
	if k, err := r.Key(challenge, origin); err != nil || k.RP != "orla.example.com" || k.Count != 1 {
		t.Fatalf("%+v, %v", k, err)
	}
	for name, change := range map[string]func(*passkey.Registration){
		"another challenge":   func(r *passkey.Registration) { r.ClientData = client("webauthn.create", origin, []byte("x"), "") },
		"an assertion":        func(r *passkey.Registration) { r.ClientData = client("webauthn.get", origin, challenge, "") },
		"another id":          func(r *passkey.Registration) { r.Credential = []byte("ie") },
		"a longer id":         func(r *passkey.Registration) { r.Credential = []byte("id0") },
		"no id":               func(r *passkey.Registration) { r.Credential = nil },
		"no credential":       func(r *passkey.Registration) { r.Data = data("orla.example.com", 0x05, 1, attested...) },
		"nothing behind":      func(r *passkey.Registration) { r.Data = data("orla.example.com", 0x45, 1) },
		"nobody was verified": func(r *passkey.Registration) { r.Data = data("orla.example.com", 0x41, 1, attested...) },
		"another host":        func(r *passkey.Registration) { r.Data = data("evil.example", 0x45, 1, attested...) },
		"no public key":       func(r *passkey.Registration) { r.Public = nil },
	} {
		r := good()
		change(&r)
		if _, err := r.Key(challenge, origin); err == nil {
			t.Errorf("%s is registered", name)
		}
	}
}

// SPEC-TOOLS 8.7: the counter is on the disk before an assertion counts, and a file that is not ours counts for nothing.
func TestT87TheStoreFailsClosed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "passkeys", "a.json")
	store := passkey.NewStore(path)
	s := kinds()["ES256"]
	k := s.key()
	if err := store.Add(&k, func(there []passkey.Key) error { return nil }); err != nil {
		t.Fatal(err)
	}
	said := passkey.Statement{Purpose: passkey.Approve, ID: "ap-1"}
	a := s.assertion(client("webauthn.get", origin, said.Challenge(), ""), data(k.RP, 0x05, 7))
	if _, err := store.Use("eve", origin, &a, said); err == nil {
		t.Error("a passkey of somebody else is good")
	}
	if _, err := store.Use("ada", origin, &a, said); err != nil {
		t.Error(err)
	}
	if _, err := passkey.NewStore(path).Use("ada", origin, &a, said); err == nil || !strings.Contains(err.Error(), "counter") {
		t.Errorf("again, after a restart: %v", err)
	}
	if err := store.Add(&k, func([]passkey.Key) error { return nil }); err == nil {
		t.Error("the same passkey is registered twice")
	}
	for name, spoil := range map[string]func() error{
		"no JSON":             func() error { return os.WriteFile(path, []byte("{"), 0o600) },
		"everybody may write": func() error { return os.Chmod(path, 0o666) },
		"a link": func() error {
			text := must(json.Marshal([]passkey.Key{k}))
			other := filepath.Join(filepath.Dir(path), "other")
			if err := os.WriteFile(other, text, 0o600); err != nil {
				return err
			}
			return os.Symlink(other, path)
		},
	} {
		if name == "a link" {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		b := s.assertion(client("webauthn.get", origin, said.Challenge(), ""), data(k.RP, 0x05, 9))
		if _, err := store.Use("ada", origin, &b, said); err == nil {
			t.Errorf("%s: it is used", name)
		}
		if err := store.Add(&passkey.Key{ID: []byte("other")}, func([]passkey.Key) error { return nil }); err == nil {
			t.Errorf("%s: another passkey is registered over it", name)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, must(json.Marshal([]passkey.Key{k})), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := passkey.NewStore("").Keys(); err == nil {
		t.Error("without a state folder there are passkeys")
	}
}

// What a browser sends may be anything.
func FuzzVerify(f *testing.F) {
	s := kinds()["ES256"]
	k := s.key()
	said := passkey.Statement{Purpose: passkey.Approve, ID: "ap-1"}
	a := s.assertion(client("webauthn.get", origin, said.Challenge(), ""), data(k.RP, 0x05, 7))
	f.Add([]byte(a.ClientData), []byte(a.Data), []byte(a.Signature))
	f.Fuzz(func(t *testing.T, client, data, signature []byte) {
		b := passkey.Assertion{Credential: k.ID, ClientData: client, Data: data, Signature: signature}
		if k.Verify(&b, said, origin) == nil && (string(client) != string(a.ClientData) || string(data) != string(a.Data)) {
			t.Errorf("%q %x %x is good", client, data, signature)
		}
		r := passkey.Registration{Credential: data, ClientData: client, Data: signature, Public: k.Public}
		_, _ = r.Key([]byte("x"), origin)
	})
}
