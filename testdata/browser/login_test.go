package browser

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// issuer is an authorization server at which everybody agrees. It has one client, which is public.
type issuer struct {
	t   *testing.T
	url string
	key *rsa.PrivateKey

	mu    sync.Mutex // guards codes
	codes map[string]url.Values
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{t: t, key: key, codes: map[string]url.Values{}}
	server := httptest.NewServer(i)
	t.Cleanup(server.Close)
	i.url = server.URL
	return i
}

// ServeHTTP implements http.Handler.
func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw := base64.RawURLEncoding.EncodeToString
	i.mu.Lock()
	defer i.mu.Unlock()
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		_ = json.NewEncoder(w).Encode(map[string]any{
			"issuer": i.url, "jwks_uri": i.url + "/keys", "authorization_endpoint": i.url + "/authorize", "token_endpoint": i.url + "/token",
			"code_challenge_methods_supported": []string{"S256"}, "authorization_response_iss_parameter_supported": true,
		})
	case "/keys":
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": []any{map[string]any{"kty": "RSA", "kid": "k", "alg": "RS256", "n": raw(i.key.N.Bytes()), "e": raw(big.NewInt(int64(i.key.E)).Bytes())}}})
	case "/authorize":
		q := r.URL.Query()
		code := rand.Text()
		i.codes[code] = q
		w.Header().Set("Content-Type", "text/html")
		to := q.Get("redirect_uri") + "?" + url.Values{"code": {code}, "state": {q.Get("state")}, "iss": {i.url}}.Encode()
		_, _ = fmt.Fprintf(w, `<!doctype html><html lang="en"><title>Log in</title><a id="agree" href="%s">Agree</a>`, to)
	case "/token":
		q := i.codes[r.PostFormValue("code")]
		delete(i.codes, r.PostFormValue("code"))
		sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
		if q == nil || q.Get("code_challenge") != raw(sum[:]) || q.Get("redirect_uri") != r.PostFormValue("redirect_uri") {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"error":"invalid_grant"}`))
			return
		}
		now := time.Now().Unix()
		payload, _ := json.Marshal(map[string]any{"iss": i.url, "aud": q.Get("resource"), "sub": "ann", "exp": now + 600, "iat": now})
		signed := raw([]byte(`{"alg":"RS256","kid":"k","typ":"at+jwt"}`)) + "." + raw(payload)
		digest := sha256.Sum256([]byte(signed))
		signature, err := rsa.SignPKCS1v15(nil, i.key, crypto.SHA256, digest[:])
		if err != nil {
			i.t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": signed + "." + raw(signature), "token_type": "Bearer", "expires_in": 600})
	default:
		http.NotFound(w, r)
	}
}

// O3: a person logs in at an authorization server, whose page leads back to the console. An answer that another page sends the
// browser to lets nobody in, though its code is good, and uses it up. A token can be pasted still.
func TestO3LoginOnThePage(t *testing.T) {
	b := newTab(t)
	i := newIssuer(t)
	tools := folder(t, map[string]string{"hello": "#!/bin/sh\necho hi\n"})
	o := newOrla(t, tools, "version: 1\n", fmt.Sprintf("auth:\n  oauth: {issuer: %s, public_url: 'http://localhost', console_client_id: page}\ncallers:\n  - {name: 'oauth:ann', console: [viewer]}\n", i.url))
	home := "http://localhost:" + o.port + "/"
	b.do(chromedp.Navigate(home))
	b.wait(`!document.getElementById('login').hidden && !document.getElementById('token').hidden`)
	if got := b.js(`document.getElementById('begin').textContent`); got != "Log in at 127.0.0.1" {
		t.Errorf("the button is %q", got)
	}
	b.do(chromedp.Click("#begin"))
	b.wait(`document.querySelector('#agree')`)
	b.do(chromedp.Click("#agree"))
	b.wait(`document.querySelector('nav a')`)
	if got := b.js(`location.href`); got != home && got != home+"#/tools" {
		t.Errorf("after the login the address is %s", got)
	}
	b.wait(`document.body.innerText.includes('hello')`)

	// Another page sends the browser back with a code of its own, or a program began the login. The code is used up.
	i.mu.Lock()
	i.codes["c"] = url.Values{}
	i.mu.Unlock()
	b.do(chromedp.Navigate(home + "console/login?code=c&state=s&iss=" + url.QueryEscape(i.url)))
	b.wait(`document.getElementById('title').textContent === 'This login did not begin here'`)
	for began := time.Now(); ; {
		i.mu.Lock()
		_, good := i.codes["c"]
		i.mu.Unlock()
		if !good {
			break
		}
		if time.Since(began) > patience {
			t.Fatal("the code is good for longer")
		}
		time.Sleep(20 * time.Millisecond)
	}
	if got := b.js(`location.search`); got != "" {
		t.Errorf("the code stays in the address: %s", got)
	}
	b.do(chromedp.Click("#again a"))
	b.wait(`document.querySelector('nav a')`)
}
