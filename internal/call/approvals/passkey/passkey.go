// Package passkey checks what passkeys sign (SPEC-TOOLS 8.7, WebAuthn level 3), and keeps the public keys. It has only
// what a decision about a call needs: no attestation, and so no CBOR, since the browser gives the public key as DER.
//
// Its invariant: an assertion is good for one Statement, on one page, by a person whom the authenticator has verified.
package passkey

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"
)

// What an authenticator may send, in bytes.
const (
	maxClientData = 4 << 10
	maxData       = 2 << 10
	maxSignature  = 1 << 10
	maxPublic     = 1 << 10
	maxID         = 1023 // of a credential, as WebAuthn has it
)

// The flags of authenticator data, and the size of what each has.
const (
	userPresent   = 1 << 0
	userVerified  = 1 << 2
	hasCredential = 1 << 6
	fixedSize     = 37 // hash of the RP id, flags, counter
)

// Bytes are base64url without padding in JSON.
type Bytes []byte

// MarshalText implements encoding.TextMarshaler.
func (b Bytes) MarshalText() ([]byte, error) {
	return base64.RawURLEncoding.AppendEncode(nil, b), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *Bytes) UnmarshalText(text []byte) (err error) {
	*b, err = base64.RawURLEncoding.Strict().DecodeString(string(text))
	return err
}

// What a Statement is for.
const (
	Approve  = "approve"
	Extend   = "extend"
	Register = "register" // another passkey of its owner
	Agree    = "agree"    // to a passkey of somebody
	Remove   = "remove"   // a passkey
)

// Statement is what an assertion says. The challenge is its hash.
type Statement struct {
	Purpose string // Approve, Extend, Register, Agree or Remove
	ID      string // of the record; of a passkey, the SHA-256 of its public key
	TTL     string // how long it is to be good
	Args    string // SHA-256 of the arguments, as the audit log has it
	Shown   string // SHA-256 of the document that was shown
}

// Challenge returns what is signed. The page computes the same.
func (s Statement) Challenge() []byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "orla passkey 1\n%q\n%q\n%q\n%q\n%q\n", s.Purpose, s.ID, s.TTL, s.Args, s.Shown))
	return sum[:]
}

// Sum is the SHA-256 of a document, as a Statement has it.
func Sum(document []byte) string {
	sum := sha256.Sum256(document)
	return hex.EncodeToString(sum[:])
}

// Key is a passkey of a person.
type Key struct {
	ID         Bytes     `json:"id"`
	Public     Bytes     `json:"public_key"` // SubjectPublicKeyInfo, DER
	RP         string    `json:"rp"`         // the name of the host of its page
	Origin     string    `json:"origin"`     // of the page on which it was registered: it is good there alone
	Owner      string    `json:"owner"`      // who decides with it
	Name       string    `json:"name"`       // that its owner has given it
	Registered time.Time `json:"registered_at"`
	Count      uint32    `json:"count"` // of its signatures; 0 if it does not count
	Used       time.Time `json:"used_at,omitzero"`
	Salt       Bytes     `json:"code_salt,omitempty"` // of the code that two people have compared; nil for none
}

// Assertion is what a passkey has signed.
type Assertion struct {
	Credential Bytes `json:"credential" jsonschema:"The id of the passkey, in base64url like the others."`
	ClientData Bytes `json:"client_data" jsonschema:"The clientDataJSON of the browser."`
	Data       Bytes `json:"authenticator_data" jsonschema:"What the authenticator says."`
	Signature  Bytes `json:"signature" jsonschema:"Its signature."`
}

// IsZero reports whether there is no assertion.
func (a Assertion) IsZero() bool {
	return a.Credential == nil && a.ClientData == nil && a.Data == nil && a.Signature == nil
}

// Proof is an assertion with what is needed to check it later. Records and the audit log keep it.
type Proof struct {
	Public Bytes  `json:"public_key"`
	RP     string `json:"rp"`
	TTL    string `json:"ttl,omitempty"`
	Shown  string `json:"shown_sha256"`
	Assertion
}

// clientData is what a browser says of a page that uses a passkey.
type clientData struct {
	Type      string `json:"type"`
	Challenge string `json:"challenge"`
	Origin    string `json:"origin"`
	Cross     bool   `json:"crossOrigin"`
	Top       string `json:"topOrigin"`
}

// check reports by its error that a browser did not sign a challenge on a page with an origin.
func (c *clientData) check(raw []byte, kind, origin string, challenge []byte) error {
	if len(raw) > maxClientData {
		return errors.New("the browser's data is too large")
	}
	if err := json.Unmarshal(raw, c); err != nil {
		return errors.New("the browser's data is not JSON")
	}
	switch {
	case c.Type != kind:
		return fmt.Errorf("it is %q, and not %s", c.Type, kind)
	case c.Challenge != base64.RawURLEncoding.EncodeToString(challenge):
		return errors.New("it is for other content than what is shown now")
	case c.Origin != origin:
		return fmt.Errorf("it was made on another page, of %q", c.Origin)
	case c.Cross || c.Top != "":
		return errors.New("it was made in a frame of another page")
	}
	return nil
}

// checkData reports by its error that authenticator data is not of a host, or that no person was verified.
func checkData(data []byte, rp string) error {
	sum := sha256.Sum256([]byte(rp))
	switch {
	case len(data) < fixedSize || len(data) > maxData:
		return errors.New("the authenticator's data has a wrong size")
	case !bytes.Equal(data[:len(sum)], sum[:]):
		return fmt.Errorf("the passkey is for another host than %q", rp)
	case data[32]&userPresent == 0:
		return errors.New("nobody has touched the authenticator")
	case data[32]&userVerified == 0:
		return errors.New("the authenticator has not verified who it was, by a PIN or a finger for example")
	}
	return nil
}

// count is how many signatures an authenticator has made.
func count(data []byte) uint32 { return binary.BigEndian.Uint32(data[33:]) }

// Verify reports by its error that an assertion is not one of this key for a statement, on a page with an origin.
func (k *Key) Verify(a *Assertion, s Statement, origin string) error {
	var client clientData
	if err := client.check(a.ClientData, "webauthn.get", origin, s.Challenge()); err != nil {
		return err
	}
	if err := checkData(a.Data, k.RP); err != nil {
		return err
	}
	if origin != k.Origin || hostOf(origin) != k.RP {
		return fmt.Errorf("the passkey is for %q, where it was registered", k.Origin)
	}
	if now := count(a.Data); (now != 0 || k.Count != 0) && now <= k.Count {
		return errors.New("the authenticator's counter went back: it was copied, or this was used before")
	}
	return verify(k.Public, a)
}

// Check reports by its error that a proof is not one for a statement. What is signed has the origin, which has to be
// one of the proof's host.
func (p *Proof) Check(s Statement) error {
	k := Key{Public: p.Public, RP: p.RP, Origin: p.Origin()}
	return k.Verify(&p.Assertion, s, k.Origin)
}

// Origin is that of the page on which a proof was made; "" if it does not say so.
func (p *Proof) Origin() string {
	var client clientData
	_ = json.Unmarshal(p.ClientData, &client) // Check says what is wrong
	return client.Origin
}

func hostOf(origin string) string {
	u, err := url.Parse(origin)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// verify reports by its error that a signature is not one of a public key.
func verify(public []byte, a *Assertion) error {
	key, err := parsePublic(public)
	if err != nil {
		return err
	}
	if len(a.Signature) > maxSignature {
		return errors.New("the signature is too large")
	}
	client := sha256.Sum256(a.ClientData)
	signed := append(bytes.Clone(a.Data), client[:]...)
	sum := sha256.Sum256(signed)
	good := false
	switch key := key.(type) {
	case *ecdsa.PublicKey:
		good = ecdsa.VerifyASN1(key, sum[:], a.Signature)
	case ed25519.PublicKey:
		good = ed25519.Verify(key, signed, a.Signature)
	case *rsa.PublicKey:
		good = rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], a.Signature) == nil
	}
	if !good {
		return errors.New("the signature is not one of this passkey")
	}
	return nil
}

// parsePublic reads a public key of one of the three kinds that pages ask for: ES256, EdDSA and RS256. A key has one text:
// the parser takes others for the same key, by which it would look like another one.
func parsePublic(der []byte) (any, error) {
	if len(der) > maxPublic {
		return nil, errors.New("the public key is too large")
	}
	key, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return nil, errors.New("the public key cannot be read")
	}
	if text, err := x509.MarshalPKIXPublicKey(key); err != nil || !bytes.Equal(text, der) {
		return nil, errors.New("the public key is written in another way than DER has it")
	}
	switch key := key.(type) {
	case *ecdsa.PublicKey:
		if key.Curve == elliptic.P256() {
			return key, nil
		}
	case ed25519.PublicKey:
		return key, nil
	case *rsa.PublicKey:
		if key.N.BitLen() >= 2048 {
			return key, nil
		}
	}
	return nil, errors.New("the public key is of a kind that Orla does not know: it takes ES256, EdDSA and RS256")
}

// Registration is a new passkey, as the browser gives it.
type Registration struct {
	Name       string `json:"name" jsonschema:"The name that its owner gives it, up to 100 bytes."`
	Credential Bytes  `json:"credential" jsonschema:"The id of the passkey, in base64url like the others."`
	ClientData Bytes  `json:"client_data" jsonschema:"The clientDataJSON of the browser."`
	Data       Bytes  `json:"authenticator_data" jsonschema:"What the authenticator says."`
	Public     Bytes  `json:"public_key" jsonschema:"The public key as SubjectPublicKeyInfo: of ES256, EdDSA or RS256."`
}

// Key returns the passkey of a registration, which was made for a challenge on a page with an origin.
func (r *Registration) Key(challenge []byte, origin string) (Key, error) {
	var client clientData
	if err := client.check(r.ClientData, "webauthn.create", origin, challenge); err != nil {
		return Key{}, err
	}
	rp := hostOf(origin)
	if err := checkData(r.Data, rp); err != nil {
		return Key{}, err
	}
	if len(r.Credential) == 0 || len(r.Credential) > maxID || r.Data[32]&hasCredential == 0 || len(r.Data) < fixedSize+18 ||
		!bytes.HasPrefix(r.Data[fixedSize+16:], append(binary.BigEndian.AppendUint16(nil, uint16(len(r.Credential))), r.Credential...)) { //nolint:gosec // at most maxID
		return Key{}, errors.New("the authenticator's data is of another passkey")
	}
	if _, err := parsePublic(r.Public); err != nil {
		return Key{}, err
	}
	return Key{ID: r.Credential, Public: r.Public, RP: rp, Origin: origin, Name: r.Name, Count: count(r.Data)}, nil
}
