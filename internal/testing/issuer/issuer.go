// Package issuer is an authorization server for tests. It gives tokens to whom the test likes, and
// tokens that no server may accept. It signs with the standard library alone, so that what it makes
// wrong is wrong as the test says. Only tests import it.
package issuer

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Issuer is a running authorization server.
type Issuer struct {
	URL string // its name, too

	mu        sync.Mutex // guards the fields that follow
	published []Key
	extra     map[string]any // of the description
	down      bool
	documents int // that were fetched
	sets      int // of keys
	codes     map[string]grant
	claims    map[string]any // of people who log in
}

// first is the first key of every Issuer: to make one takes long.
var (
	first    Key
	firstKey sync.Once
)

// New starts an Issuer with one RSA key. It ends with the test.
func New(t testing.TB) *Issuer {
	t.Helper()
	firstKey.Do(func() { first = NewKey(t, "RS256", "first") })
	i := &Issuer{published: []Key{first}, extra: map[string]any{}}
	server := httptest.NewServer(i)
	t.Cleanup(server.Close)
	i.URL = server.URL
	return i
}

// Describe changes the description of the server; a nil value removes a member.
func (i *Issuer) Describe(name string, value any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.extra[name] = value
}

// Publish replaces the keys. The first one signs.
func (i *Issuer) Publish(keys ...Key) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.published = keys
}

// SetDown says whether the server answers 503.
func (i *Issuer) SetDown(down bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.down = down
}

// Fetched returns how often the keys were fetched.
func (i *Issuer) Fetched() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.sets
}

// Keys returns the keys.
func (i *Issuer) Keys() []Key {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.published)
}

// Key returns the key that signs.
func (i *Issuer) Key() Key {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.published[0]
}

// ServeHTTP serves the description and the keys.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.down {
		http.Error(w, "down", http.StatusServiceUnavailable)
		return
	}
	var answer any
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		i.documents++
		about := map[string]any{
			"issuer": i.URL, "jwks_uri": i.URL + "/keys",
			"authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token",
			"code_challenge_methods_supported": []string{"S256"},
		}
		for name, value := range i.extra {
			about[name] = value
			if value == nil {
				delete(about, name)
			}
		}
		answer = about
	case "/authorize":
		i.authorize(w, r)
		return
	case "/token":
		i.token(w, r)
		return
	case "/keys":
		i.sets++
		set := []any{}
		for _, key := range i.published {
			set = append(set, key.public())
		}
		answer = map[string]any{"keys": set}
	default:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // who has asked may be gone
}

// Claims returns the claims of a good token for a resource.
func (i *Issuer) Claims(resource string) map[string]any {
	now := time.Now().Unix()
	return map[string]any{"iss": i.URL, "aud": resource, "sub": "ann", "exp": now + 600, "iat": now, "scope": "tools"}
}

// Token returns a token with these claims, signed by the key that signs.
func (i *Issuer) Token(claims map[string]any) string {
	key := i.Key()
	return key.Sign(map[string]any{"alg": key.Algorithm, "kid": key.ID, "typ": "at+jwt"}, encode(claims))
}

// Key is a pair of keys.
type Key struct {
	ID, Algorithm string // without an id, its JSON Web Key has no algorithm either
	Use           string // "sig" unless it is set
	private       crypto.Signer
}

// NewKey makes a pair of keys for an algorithm.
func NewKey(t testing.TB, algorithm, id string) Key {
	t.Helper()
	k := Key{ID: id, Algorithm: algorithm, Use: "sig"}
	var err error
	switch {
	case algorithm == "EdDSA":
		_, k.private, err = ed25519.GenerateKey(rand.Reader)
	case strings.HasPrefix(algorithm, "ES"):
		curve := map[string]elliptic.Curve{"ES256": elliptic.P256(), "ES384": elliptic.P384(), "ES512": elliptic.P521()}[algorithm]
		k.private, err = ecdsa.GenerateKey(curve, rand.Reader)
	default:
		k.private, err = rsa.GenerateKey(rand.Reader, 2048)
	}
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// public returns the key as a JSON Web Key.
func (k Key) public() map[string]any {
	set := map[string]any{"kid": k.ID, "use": k.Use, "alg": k.Algorithm}
	if k.ID == "" {
		delete(set, "kid")
		delete(set, "alg")
	}
	switch key := k.private.Public().(type) {
	case *rsa.PublicKey:
		set["kty"], set["n"], set["e"] = "RSA", text(key.N.Bytes()), text(big.NewInt(int64(key.E)).Bytes())
	case *ecdsa.PublicKey:
		size := (key.Curve.Params().BitSize + 7) / 8
		point, err := key.Bytes()
		if err != nil { // it was generated
			panic(err)
		}
		set["kty"], set["crv"], set["x"], set["y"] = "EC", key.Curve.Params().Name, text(point[1:1+size]), text(point[1+size:])
	case ed25519.PublicKey:
		set["kty"], set["crv"], set["x"] = "OKP", "Ed25519", text(key)
	}
	return set
}

// Sign returns a compact JWS, by the algorithm of the key whatever the header says.
func (k Key) Sign(header map[string]any, payload string) string {
	return k.SignText(encode(header), payload)
}

// SignText is Sign with a header that is text.
func (k Key) SignText(header, payload string) string {
	signed := text([]byte(header)) + "." + text([]byte(payload))
	hash := map[string]crypto.Hash{"256": crypto.SHA256, "384": crypto.SHA384, "512": crypto.SHA512, "DSA": 0}[k.Algorithm[2:]]
	digest := []byte(signed)
	if hash != 0 {
		h := hash.New()
		h.Write(digest)
		digest = h.Sum(nil)
	}
	var opts crypto.SignerOpts = hash
	if strings.HasPrefix(k.Algorithm, "PS") {
		opts = &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: hash}
	}
	signature, err := k.private.Sign(rand.Reader, digest, opts)
	if err != nil { // of a key that fits its algorithm
		panic(err)
	}
	if key, ok := k.private.(*ecdsa.PrivateKey); ok {
		signature = fixed(signature, (key.Curve.Params().BitSize+7)/8)
	}
	return signed + "." + text(signature)
}

// fixed returns a signature of ECDSA as JWS has it: two numbers of one size. DER has them as two integers.
func fixed(der []byte, size int) []byte {
	at := 2
	if der[1] >= 0x80 {
		at++
	}
	out := make([]byte, 0, 2*size)
	for range 2 {
		n := int(der[at+1])
		out = append(out, new(big.Int).SetBytes(der[at+2:at+2+n]).FillBytes(make([]byte, size))...)
		at += 2 + n
	}
	return out
}

// hmacToken returns a token that is "signed" with a public key as the secret.
func hmacToken(header map[string]any, payload string, secret []byte) string {
	signed := text([]byte(encode(header))) + "." + text([]byte(payload))
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(signed))
	return signed + "." + text(h.Sum(nil))
}

func text(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil { // texts and numbers
		panic(err)
	}
	return string(b)
}
