package oauth_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/service/oauth"
	"github.com/orla-project/orla/internal/service/outbound"
	"github.com/orla-project/orla/internal/testing/issuer"
	"github.com/orla-project/orla/internal/testing/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const public = "https://orla.example"

// started runs a Verifier for an issuer until the test ends.
func started(t *testing.T, i *issuer.Issuer, change func(*oauth.Settings)) (*oauth.Verifier, *lines) {
	t.Helper()
	settings := oauth.Settings{Issuer: i.URL, PublicURL: public}
	if change != nil {
		change(&settings)
	}
	log := &lines{}
	client := outbound.New(outbound.Options{})
	v := oauth.New(settings, client, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { v.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		client.Close()
	})
	return v, log
}

// lines are those of the log.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// SPEC N3: a good token by every accepted algorithm says who has it.
func TestN3AcceptedTokens(t *testing.T) {
	for _, algorithm := range []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"} {
		t.Run(algorithm, func(t *testing.T) {
			i := issuer.New(t)
			i.Publish(issuer.NewKey(t, algorithm, "key"))
			v, _ := started(t, i, func(s *oauth.Settings) { s.GroupsClaim = "groups" })
			claims := i.Claims(public + "/mcp")
			claims["groups"] = []string{"ops", "dev"}
			got, err := v.Verify(t.Context(), "", i.Token(claims))
			if err != nil {
				t.Fatal(err)
			}
			if got.Subject != "ann" || !slices.Equal(got.Groups, []string{"ops", "dev"}) || !slices.Equal(got.Scopes, []string{"tools"}) {
				t.Errorf("got %+v", got)
			}
			if left := time.Until(got.Expires); left < 9*time.Minute || left > 10*time.Minute {
				t.Errorf("it expires in %v", left)
			}
		})
	}
}

// SPEC N3: every forged token is refused, for good, and none is in the log.
func TestN3ForgedTokens(t *testing.T) {
	i := issuer.New(t)
	v, log := started(t, i, func(s *oauth.Settings) { s.GroupsClaim = "groups" })
	if _, err := v.Verify(t.Context(), "", i.Token(i.Claims(public+"/mcp"))); err != nil {
		t.Fatal(err)
	}
	forged := i.Forgeries(t, public+"/mcp")
	if len(forged) < 200 {
		t.Errorf("there are %d forged tokens", len(forged))
	}
	for _, f := range forged {
		got, err := v.Verify(t.Context(), "", f.Token)
		if !errors.Is(err, oauth.ErrInvalid) {
			t.Errorf("%s: got %+v, %v for %.200s", f.Wrong, got, err, f.Token)
		}
		for part := range strings.SplitSeq(f.Token, ".") {
			if len(part) > 20 && err != nil && (strings.Contains(err.Error(), part) || strings.Contains(log.String(), part)) {
				t.Errorf("%s: the error or the log has a part of the token: %v", f.Wrong, err)
			}
		}
	}
	if n := i.Fetched(); n > 2 {
		t.Errorf("the keys were fetched %d times", n)
	}
	if strings.Contains(log.String(), "/attacker") {
		t.Error("an address of a token was followed")
	}
	if _, err := v.Verify(t.Context(), "", i.Token(i.Claims(public+"/mcp"))); err != nil {
		t.Errorf("a good token after them: %v", err)
	}
}

// SPEC N3: which claims are accepted, and which are not.
func TestN3Claims(t *testing.T) {
	now := time.Now().Unix()
	type claims = map[string]any
	for name, test := range map[string]struct {
		settings func(*oauth.Settings)
		claims   claims
		want     string // the subject and the groups
		err      error
	}{
		"a list of audiences":       {claims: claims{"aud": []string{"x", public + "/mcp"}}, want: "ann"},
		"a slash after":             {claims: claims{"aud": public + "/mcp/"}, want: "ann"},
		"another audience":          {settings: func(s *oauth.Settings) { s.Audience = "api://orla" }, claims: claims{"aud": "api://orla"}, want: "ann"},
		"not the resource then":     {settings: func(s *oauth.Settings) { s.Audience = "api://orla" }, err: oauth.ErrInvalid},
		"a public path":             {settings: func(s *oauth.Settings) { s.PublicURL = public + "/a/" }, claims: claims{"aud": public + "/a/mcp"}, want: "ann"},
		"expired within the skew":   {claims: claims{"exp": now - 20}, want: "ann"},
		"fractions of seconds":      {claims: claims{"exp": float64(now) + 10.5}, want: "ann"},
		"late":                      {claims: claims{"exp": 1e300}, want: "ann"},
		"valid within the skew":     {claims: claims{"nbf": now + 20}, want: "ann"},
		"another subject":           {settings: func(s *oauth.Settings) { s.SubjectClaim = "email" }, claims: claims{"email": "ann@example.com"}, want: "ann@example.com"},
		"a subject within":          {settings: func(s *oauth.Settings) { s.SubjectClaim = "a.b" }, claims: claims{"a": claims{"b": "eve"}}, want: "eve"},
		"no such subject":           {settings: func(s *oauth.Settings) { s.SubjectClaim = "email" }, err: oauth.ErrInvalid},
		"one group":                 {claims: claims{"groups": "ops"}, want: "ann ops"},
		"a name beyond ASCII":       {claims: claims{"sub": "jos\u00e9", "groups": []string{"\u00e9quipe"}}, want: "jos\u00e9 \u00e9quipe"},
		"another's in another form": {claims: claims{"sub": "\u212aate"}, err: oauth.ErrInvalid},
		"a group in another form":   {claims: claims{"groups": []string{"e\u0301quipe"}}, err: oauth.ErrInvalid},
		"no groups":                 {claims: claims{"groups": []string{}}, want: "ann"},
		"groups within":             {settings: func(s *oauth.Settings) { s.GroupsClaim = "realm_access.roles" }, claims: claims{"realm_access": claims{"roles": []string{"r"}}}, want: "ann r"},
		"a name with dots":          {settings: func(s *oauth.Settings) { s.GroupsClaim = "https://x.example/groups" }, claims: claims{"https://x.example/groups": []string{"r"}}, want: "ann r"},
		"groups not texts":          {claims: claims{"groups": []any{"a", 1}}, err: oauth.ErrInvalid},
		"groups an object":          {claims: claims{"groups": claims{"a": true}}, err: oauth.ErrInvalid},
		"a group with a line break": {claims: claims{"groups": []string{"a\nb"}}, err: oauth.ErrInvalid},
		"an empty group":            {claims: claims{"groups": []string{""}}, err: oauth.ErrInvalid},
		"too many groups":           {claims: claims{"groups": slices.Repeat([]string{"g"}, 1025)}, err: oauth.ErrInvalid},
		"scopes":                    {settings: func(s *oauth.Settings) { s.Scopes = []string{"a", "b"} }, claims: claims{"scope": "b c a"}, want: "ann"},
		"scopes of Okta":            {settings: func(s *oauth.Settings) { s.Scopes = []string{"a", "b"} }, claims: claims{"scp": []string{"a", "b"}}, want: "ann"},
		"scopes of Entra":           {settings: func(s *oauth.Settings) { s.Scopes = []string{"a", "b"} }, claims: claims{"scp": "a b"}, want: "ann"},
		"a short scope of Entra":    {settings: func(s *oauth.Settings) { s.Scopes = []string{"api://x/a"} }, claims: claims{"scp": "b a"}, want: "ann"},
		"another one":               {settings: func(s *oauth.Settings) { s.Scopes = []string{"api://x/a"} }, claims: claims{"scp": "b api aa"}, err: oauth.ErrScope},
		"short elsewhere":           {settings: func(s *oauth.Settings) { s.Scopes = []string{"api://x/a"} }, claims: claims{"scope": "a"}, err: oauth.ErrScope},
		"no short scope":            {settings: func(s *oauth.Settings) { s.Scopes = []string{"x/a"} }, claims: claims{"scp": "a"}, err: oauth.ErrScope},
		"a scope is missing":        {settings: func(s *oauth.Settings) { s.Scopes = []string{"a", "b"} }, claims: claims{"scope": "ab a"}, err: oauth.ErrScope},
		"no scope":                  {settings: func(s *oauth.Settings) { s.Scopes = []string{"a"} }, err: oauth.ErrScope},
		"a type of Keycloak":        {claims: claims{"typ": "Bearer"}, want: "ann"},
		"a use of Cognito":          {claims: claims{"token_use": "access"}, want: "ann"},
		"a nonce of Keycloak":       {claims: claims{"nonce": "n"}, want: "ann"},
		"an ID token":               {claims: claims{"nonce": "n", "at_hash": "x"}, err: oauth.ErrInvalid},
		"an ID token with a code":   {claims: claims{"c_hash": "x"}, err: oauth.ErrInvalid},
		"an ID token with a state":  {claims: claims{"s_hash": "x"}, err: oauth.ErrInvalid},
		"a logout token":            {claims: claims{"sid": "s", "events": claims{"http://schemas.openid.net/event/backchannel-logout": claims{}}}, err: oauth.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			i := issuer.New(t)
			v, _ := started(t, i, func(s *oauth.Settings) {
				s.GroupsClaim = "groups"
				if test.settings != nil {
					test.settings(s)
				}
			})
			given := i.Claims(public + "/mcp")
			maps.Copy(given, test.claims)
			got, err := v.Verify(t.Context(), "", i.Token(given))
			if !errors.Is(err, test.err) {
				t.Fatalf("got %v, want %v", err, test.err)
			}
			if err == nil && strings.Join(append([]string{got.Subject}, got.Groups...), " ") != test.want {
				t.Errorf("got %+v, want %s", got, test.want)
			}
		})
	}
}

// SPEC N3: headers that other servers trust are ignored in a good token, and types are not case-sensitive.
func TestN3Headers(t *testing.T) {
	i := issuer.New(t)
	v, _ := started(t, i, nil)
	for _, header := range []map[string]any{
		{}, {"typ": "jwt"}, {"typ": "application/at+JWT"}, {"jku": "http://127.0.0.1:1/keys"}, {"x5u": "http://127.0.0.1:1/keys"}, {"cty": "JWT"},
	} {
		header["alg"], header["kid"] = "RS256", i.Key().ID
		if _, err := v.Verify(t.Context(), "", i.Key().Sign(header, jsonOf(t, i.Claims(public+"/mcp")))); err != nil {
			t.Errorf("%v: %v", header, err)
		}
	}
}

// SPEC N3: a new key of the issuer's is found when a token names it, and a key that is gone is not used
// any more.
func TestN3KeysRotate(t *testing.T) {
	i := issuer.New(t)
	old := i.Token(i.Claims(public + "/mcp"))
	first := i.Key()
	i.Publish(issuer.NewKey(t, "ES256", "second"))
	young := i.Token(i.Claims(public + "/mcp"))
	second := i.Key()
	i.Publish(first)
	v, _ := started(t, i, nil)
	if _, err := v.Verify(t.Context(), "", old); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Verify(t.Context(), "", young); !errors.Is(err, oauth.ErrInvalid) {
		t.Errorf("the token of an unknown key: %v", err)
	}
	i.Publish(second) // keys_test.go has the times
	w, _ := started(t, i, nil)
	if _, err := w.Verify(t.Context(), "", young); err != nil {
		t.Error(err)
	}
	if _, err := w.Verify(t.Context(), "", old); !errors.Is(err, oauth.ErrInvalid) {
		t.Errorf("the token of a key that is gone: %v", err)
	}
}

// SPEC N3: keys that must not verify tokens are ignored, and keys without an id are tried.
func TestN3OtherKeys(t *testing.T) {
	i := issuer.New(t)
	encrypting := issuer.NewKey(t, "RS256", "enc")
	encrypting.Use = "enc"
	unnamed := issuer.NewKey(t, "PS256", "")
	other := issuer.NewKey(t, "RS256", "other")
	i.Publish(encrypting, other)
	for range 6 { // of another type, so that they are not tried
		i.Publish(append(i.Keys(), issuer.NewKey(t, "ES256", ""))...)
	}
	i.Publish(append(i.Keys(), unnamed)...)
	v, _ := started(t, i, nil)
	if _, err := v.Verify(t.Context(), "", i.Token(i.Claims(public+"/mcp"))); !errors.Is(err, oauth.ErrInvalid) {
		t.Errorf("a key for encryption: %v", err)
	}
	token := unnamed.Sign(map[string]any{"alg": "PS256"}, jsonOf(t, i.Claims(public+"/mcp")))
	if _, err := v.Verify(t.Context(), "", token); err != nil {
		t.Errorf("a key without an id: %v", err)
	}
	other.Algorithm = "PS256"
	token = other.Sign(map[string]any{"alg": "PS256", "kid": "other"}, jsonOf(t, i.Claims(public+"/mcp")))
	if _, err := v.Verify(t.Context(), "", token); !errors.Is(err, oauth.ErrInvalid) {
		t.Errorf("a key for another algorithm: %v", err)
	}
}

// SPEC N3: while no keys are known, a token of the issuer's cannot be checked. Any other is refused.
func TestN3NoKeysYet(t *testing.T) {
	i := issuer.New(t)
	i.SetDown(true)
	v, log := started(t, i, nil)
	if _, err := v.Verify(t.Context(), "", i.Token(i.Claims(public+"/mcp"))); !errors.Is(err, oauth.ErrUnavailable) {
		t.Errorf("a good token: %v", err)
	}
	claims := i.Claims(public + "/mcp")
	claims["iss"] = "https://evil.example"
	for _, token := range []string{i.Token(claims), "x", "a.b.c"} {
		if _, err := v.Verify(t.Context(), "", token); !errors.Is(err, oauth.ErrInvalid) {
			t.Errorf("%.20s: %v", token, err)
		}
	}
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
		t.Errorf("there are %d errors in\n%s", n, log)
	}
}

// SPEC N3: the log says what a token has that the setup does not expect, once a minute.
func TestN3WrongSetupIsLogged(t *testing.T) {
	i := issuer.New(t)
	v, log := started(t, i, nil)
	for range 3 {
		_, _ = v.Verify(t.Context(), "", i.Token(i.Claims("api://other"))) // it is refused
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 1 || !strings.Contains(log.String(), "api://other") {
		t.Errorf("there are %d warnings in\n%s", n, log)
	}
}

// SPEC N3: what an issuer can say that is wrong.
func TestN3Discover(t *testing.T) {
	client := outbound.New(outbound.Options{})
	defer client.Close()
	for name, test := range map[string]struct {
		says map[string]any
		want string
	}{
		"good":              {},
		"another name":      {map[string]any{"issuer": "https://other.example"}, "must be equal"},
		"no keys":           {map[string]any{"jwks_uri": nil}, "jwks_uri is not an address"},
		"keys without TLS":  {map[string]any{"jwks_uri": "http://keys.example/keys"}, "must begin with https://"},
		"keys of a file":    {map[string]any{"jwks_uri": "file:///etc/passwd"}, "is not an address"},
		"keys elsewhere":    {map[string]any{"jwks_uri": "http://127.0.0.1:1/"}, "cannot connect"},
		"issuer not a text": {map[string]any{"issuer": 1}, "is not a description"},
	} {
		t.Run(name, func(t *testing.T) {
			i := issuer.New(t)
			for member, value := range test.says {
				i.Describe(member, value)
			}
			server, keys, err := oauth.Discover(t.Context(), client, i.URL)
			if test.want == "" {
				if err != nil || len(keys) != 1 || server.Keys != i.URL+"/keys" || time.Since(server.Date).Abs() > time.Minute {
					t.Errorf("got %+v, %d keys, %v", server, len(keys), err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
