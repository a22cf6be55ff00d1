package issuer

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
)

// grant is what somebody has agreed to: a code stands for it until it is used.
type grant struct{ client, redirect, challenge, resource string }

// Grant changes a claim of the tokens that people get who log in. They have those of Claims.
func (i *Issuer) Grant(name string, value any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.claims == nil {
		i.claims = map[string]any{}
	}
	i.claims[name] = value
}

// authorize sends the browser back with a code: everybody who comes agrees. The caller holds mu.
func (i *Issuer) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" || q.Get("redirect_uri") == "" {
		http.Error(w, "this is not a request for a code with PKCE", http.StatusBadRequest)
		return
	}
	code := rand.Text()
	if i.codes == nil {
		i.codes = map[string]grant{}
	}
	i.codes[code] = grant{q.Get("client_id"), q.Get("redirect_uri"), q.Get("code_challenge"), q.Get("resource")}
	to := q.Get("redirect_uri") + "?" + url.Values{"code": {code}, "state": {q.Get("state")}, "iss": {i.URL}}.Encode()
	http.Redirect(w, r, to, http.StatusFound)
}

// token gives an access token for a code, once. The caller holds mu.
func (i *Issuer) token(w http.ResponseWriter, r *http.Request) {
	g, ok := i.codes[r.PostFormValue("code")]
	delete(i.codes, r.PostFormValue("code"))
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	w.Header().Set("Content-Type", "application/json")
	if !ok || g.client != r.PostFormValue("client_id") || g.redirect != r.PostFormValue("redirect_uri") ||
		g.challenge != base64.RawURLEncoding.EncodeToString(sum[:]) || g.resource != r.PostFormValue("resource") {
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": "invalid_grant"}) // who has asked may be gone
		return
	}
	claims := i.Claims(g.resource)
	maps.Copy(claims, i.claims)
	key := i.published[0]
	token := key.Sign(map[string]any{"alg": key.Algorithm, "kid": key.ID, "typ": "at+jwt"}, encode(claims))
	_ = json.NewEncoder(w).Encode(map[string]any{"access_token": token, "token_type": "Bearer", "expires_in": 600}) // as above
}
