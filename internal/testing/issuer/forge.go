package issuer

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// Forgery is a token that no server may accept, and what is wrong with it.
type Forgery struct{ Wrong, Token string }

// Forgeries returns at least 200 tokens that a server for a resource must refuse. Each is a good token
// but for one thing.
func (i *Issuer) Forgeries(t testing.TB, resource string) []Forgery {
	t.Helper()
	f := &forger{t: t, i: i, key: i.Key(), resource: resource}
	f.header()
	f.algorithms()
	f.keys()
	f.claims()
	f.times()
	f.shapes()
	f.respelled()
	f.damaged(200 - min(len(f.made), 150))
	return f.made
}

type forger struct {
	t        testing.TB
	i        *Issuer
	key      Key
	resource string
	made     []Forgery
}

func (f *forger) add(wrong, token string) { f.made = append(f.made, Forgery{wrong, token}) }

// good returns the claims of a good token with some others.
func (f *forger) good(changes ...any) map[string]any {
	claims := f.i.Claims(f.resource)
	for n := 0; n < len(changes); n += 2 {
		name, _ := changes[n].(string)
		claims[name] = changes[n+1]
		if changes[n+1] == nil {
			delete(claims, name)
		}
	}
	return claims
}

// head returns the header of a good token with some other members.
func (f *forger) head(changes ...any) map[string]any {
	header := map[string]any{"alg": f.key.Algorithm, "kid": f.key.ID, "typ": "at+jwt"}
	for n := 0; n < len(changes); n += 2 {
		name, _ := changes[n].(string)
		header[name] = changes[n+1]
		if changes[n+1] == nil {
			delete(header, name)
		}
	}
	return header
}

func (f *forger) header() {
	for _, critical := range []any{[]string{"exp"}, []string{"b64"}, []string{"http://x"}, []string{}, "exp", []any{1}} {
		f.add("crit header", f.key.Sign(f.head("crit", critical, "exp", 1), encode(f.good())))
	}
	f.add("b64 header", f.key.Sign(f.head("b64", false), encode(f.good())))
	f.add("b64 and crit header", f.key.Sign(f.head("b64", false, "crit", []string{"b64"}), encode(f.good())))
	for _, kind := range []any{"dpop+jwt", "secevent+jwt", "logout+jwt", "id+jwt", "JWE", 1, []string{"JWT"}} {
		f.add("typ of another token", f.key.Sign(f.head("typ", kind), encode(f.good())))
	}
	same := fmt.Sprintf(`{"alg":"RS256","kid":%q,"alg":"RS256"}`, f.key.ID)
	f.add("a header twice", f.key.SignText(same, encode(f.good())))
	f.add("header not an object", f.key.SignText(`["RS256"]`, encode(f.good())))
	f.add("header not JSON", f.key.SignText(`{alg:RS256}`, encode(f.good())))
	f.add("empty header", f.key.SignText(``, encode(f.good())))
}

func (f *forger) algorithms() {
	for _, none := range []string{"none", "None", "NONE", "nOnE", "", " none"} {
		unsigned := text([]byte(encode(f.head("alg", none)))) + "." + text([]byte(encode(f.good()))) + "."
		f.add("alg none", unsigned)
		f.add("alg none with a signature", f.key.Sign(f.head("alg", none), encode(f.good())))
	}
	der, err := x509.MarshalPKIXPublicKey(f.key.private.Public())
	if err != nil {
		f.t.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	for _, secret := range [][]byte{public, []byte(strings.TrimSpace(string(public))), der, []byte(encode(f.key.public())), {}} {
		for _, algorithm := range []string{"HS256", "HS384", "HS512", f.key.Algorithm} {
			f.add("HMAC with the public key", hmacToken(f.head("alg", algorithm), encode(f.good()), secret))
		}
	}
	for _, algorithm := range []string{"RS384", "RS512", "PS256", "ES256", "EdDSA", "HS256", "RS1", "A128KW", "dir", "ES256K", "rs256"} {
		f.add("the algorithm is another than the key's", f.key.Sign(f.head("alg", algorithm), encode(f.good())))
	}
	for _, algorithm := range []any{nil, 1, true, []string{"RS256"}} {
		f.add("alg not a text", f.key.Sign(f.head("alg", algorithm), encode(f.good())))
	}
}

func (f *forger) keys() {
	for _, algorithm := range []string{"RS256", "PS256", "ES256", "EdDSA"} {
		own := NewKey(f.t, algorithm, f.key.ID)
		header := f.head("alg", algorithm)
		f.add("an attacker's key under the issuer's id", own.Sign(header, encode(f.good())))
		for _, id := range []any{"unknown", "", nil, "../first", "first\x00", strings.Repeat("k", 2000)} {
			h := maps.Clone(header)
			h["kid"] = id
			if id == nil {
				delete(h, "kid")
			}
			f.add("an attacker's key", own.Sign(h, encode(f.good())))
		}
		h := maps.Clone(header)
		h["jwk"] = own.public()
		f.add("a key in the header", own.Sign(h, encode(f.good())))
		for _, at := range []string{"jku", "x5u"} {
			h := maps.Clone(header)
			h[at] = f.i.URL + "/attacker/keys"
			f.add("an address of keys in the header ("+at+")", own.Sign(h, encode(f.good())))
		}
	}
	f.add("kid not a text", f.key.Sign(f.head("kid", 1), encode(f.good())))
}

func (f *forger) claims() {
	for _, issuer := range []any{nil, "", "https://evil.example", f.i.URL + "/", f.i.URL + ".evil.example", strings.ToUpper(f.i.URL), []string{f.i.URL}, 1, map[string]any{}} {
		f.add("iss", f.i.Token(f.good("iss", issuer)))
	}
	for _, audience := range []any{nil, "", "https://other.example/mcp", f.resource + "/x", f.resource + ".evil.example", strings.TrimSuffix(f.resource, "/mcp"), []string{}, []string{"a", "b"}, 1, map[string]any{"x": f.resource}, []any{1, f.resource}, "x " + f.resource} {
		f.add("aud", f.i.Token(f.good("aud", audience)))
	}
	for _, subject := range []any{nil, "", 1, true, []string{"ann"}, "ann\n", "ann\x00", "ann\u202e", "\u200bann", strings.Repeat("a", 257), map[string]any{"x": 1}} {
		f.add("sub", f.i.Token(f.good("sub", subject)))
	}
	f.add("bound to a key", f.i.Token(f.good("cnf", map[string]any{"jkt": "x"})))
	for _, kind := range []string{"ID", "Refresh", "Logout"} {
		f.add("another token of Keycloak's", f.i.Token(f.good("typ", kind)))
	}
	f.add("groups that are elsewhere", f.i.Token(f.good("_claim_names", map[string]any{"groups": "src1"})))
	f.add("groups that are elsewhere", f.i.Token(f.good("hasgroups", true)))
	f.add("another token of Cognito's", f.i.Token(f.good("token_use", "id")))
	for _, name := range []string{"iss", "aud", "sub", "exp", "scope", "other"} {
		whole := encode(f.good("other", 1))
		f.add("a claim twice", f.key.Sign(f.head(), fmt.Sprintf(`{%q:%q,%s`, name, "x", whole[1:])))
		f.add("a claim twice", f.key.Sign(f.head(), fmt.Sprintf(`%s,%q:%q}`, whole[:len(whole)-1], name, "x")))
	}
}

func (f *forger) times() {
	now := time.Now().Unix()
	for _, expires := range []any{nil, now - 31, now - 3600, 0, -1, "2099-01-01", fmt.Sprint(now + 600), true, []int64{now + 600}} {
		f.add("exp", f.i.Token(f.good("exp", expires)))
	}
	for _, from := range []any{now + 120, now + 86400, 1e18, "tomorrow", true} {
		f.add("nbf", f.i.Token(f.good("nbf", from)))
	}
	f.add("exp out of range", f.key.Sign(f.head(), strings.Replace(encode(f.good("exp", 77777)), "77777", "1e999", 1)))
}

func (f *forger) shapes() {
	good := f.i.Token(f.good())
	parts := strings.Split(good, ".")
	for _, payload := range []string{"", "null", "[]", "1", `"x"`, "{", "{}", "\xff", good, text([]byte(good))} {
		f.add("payload not claims", f.key.Sign(f.head(), payload))
	}
	f.add("nested token", f.key.Sign(f.head("cty", "JWT"), good))
	f.add("encrypted token", strings.Join([]string{text([]byte(`{"alg":"dir","enc":"A128GCM"}`)), "", text(make([]byte, 12)), parts[1], text(make([]byte, 16))}, "."))
	f.add("JSON serialization", fmt.Sprintf(`{"protected":%q,"payload":%q,"signature":%q}`, parts[0], parts[1], parts[2]))
	f.add("without signature", parts[0]+"."+parts[1]+".")
	f.add("two parts", parts[0]+"."+parts[1])
	f.add("four parts", good+"."+parts[2])
	f.add("another's signature", f.tokenOf("bob", parts[2]))
	f.add("empty parts", "..")
	f.add("not a token", "x")
	f.add("padding", good+"==")
	for _, size := range []int{16 << 10, 100 << 10, 300 << 10} {
		f.add("huge", f.i.Token(f.good("pad", strings.Repeat("x", size))))
	}
	f.add("deep", f.key.Sign(f.head(), strings.Repeat(`{"a":`, 2000)+"1"+strings.Repeat("}", 2000)))
}

// tokenOf returns a token of another subject with a signature of this one's.
func (f *forger) tokenOf(subject, signature string) string {
	return text([]byte(encode(f.head()))) + "." + text([]byte(encode(f.good("sub", subject)))) + "." + signature
}

const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// respelled adds good tokens in which the last letter of a part is another one that means the same.
func (f *forger) respelled() {
	for pad := range 3 {
		parts := strings.Split(f.i.Token(f.good("pad", strings.Repeat("x", pad))), ".")
		for i, part := range parts {
			if len(part)%4 == 0 {
				continue // all bits mean something
			}
			spelled := slices.Clone(parts)
			last := len(part) - 1
			spelled[i] = part[:last] + string(letters[strings.IndexByte(letters, part[last])^1])
			f.add(fmt.Sprintf("part %d spelled in another way, pad %d", i, pad), strings.Join(spelled, "."))
		}
	}
}

// damaged adds good tokens with one byte changed.
func (f *forger) damaged(n int) {
	for range n {
		token := []byte(f.i.Token(f.good()))
		at := rand.IntN(len(token))
		for {
			if c := letters[rand.IntN(len(letters))]; c != token[at] {
				token[at] = c
				break
			}
		}
		f.add(fmt.Sprintf("byte %d changed", at), string(token))
	}
}
