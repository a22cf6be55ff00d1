package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/wiring"
	"github.com/orla-project/orla/internal/testing/issuer"
	"github.com/orla-project/orla/internal/testing/testkit"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

var quiet = slog.New(slog.DiscardHandler)

// services are those of an Orla without anything.
func services(t *testing.T) *wiring.Services {
	t.Helper()
	cfg, err := (&config.Loader{Path: testkit.WriteTool(t, t.TempDir(), "orla.yaml", "state_dir: "+t.TempDir()+"\n")}).Load()
	if err != nil {
		t.Fatal(err)
	}
	p, err := wiring.Join(cfg, nil, nil, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p.Services
}

// accepting is a configuration that accepts the tokens of an issuer.
func accepting(url string, change func(*config.OAuthConfig)) *config.Loaded {
	cfg := &config.Loaded{}
	cfg.Auth.OAuth = config.OAuthConfig{Issuer: url, PublicURL: "https://orla.example", GroupsClaim: "groups"}
	if change != nil {
		change(&cfg.Auth.OAuth)
	}
	return cfg
}

// served runs an Issuer until the test ends.
func served(t *testing.T, i *Issuer) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := i.Serve(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("it ends with %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// SPEC N3: a token of the issuer has its subject, scopes and groups, and an end; others are refused with the reason that
// decides the status. Static tokens are accepted as well.
func TestN3TokensOfTheIssuerJoinTheOthers(t *testing.T) {
	at := issuer.New(t)
	var i Issuer
	tokens := i.Of(accepting(at.URL, func(o *config.OAuthConfig) { o.Scopes = []string{"tools"} }), services(t), quiet)
	callers := map[string]string{"bob": "1"}
	settings := httpfront.Settings{Callers: callers, Verify: func(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
		if token == "static" {
			return &auth.TokenInfo{UserID: "bob"}, nil
		}
		return nil, errors.New("not one of these")
	}}
	tokens.Join(&settings)
	if settings.ResourceMetadata != "https://orla.example/.well-known/oauth-protected-resource/mcp" || !slices.Equal(settings.Scopes, []string{"tools"}) {
		t.Errorf("clients learn of %s with %s", settings.ResourceMetadata, settings.Scopes)
	}
	if len(callers) != 1 || settings.Callers["bob"] != "1" || settings.Callers[httpfront.IssuedPrefix] == "" || len(settings.Callers) != 2 {
		t.Errorf("callers are %v, and were %v", settings.Callers, callers)
	}
	verify := func(token string) (*auth.TokenInfo, error) {
		return settings.Verify(t.Context(), token, &http.Request{RemoteAddr: "127.0.0.1:1"})
	}
	claims := at.Claims("https://orla.example/mcp")
	claims["groups"] = []string{"ops", "dev"}
	good := at.Token(claims)
	if got, err := verify("static"); err != nil || got.UserID != "bob" {
		t.Errorf("a static one: %+v, %v", got, err)
	}
	ended, end := context.WithCancel(t.Context())
	end() // otherwise it waits for the keys
	if got, err := settings.Verify(ended, good, &http.Request{}); !errors.Is(err, httpfront.ErrUnavailable) {
		t.Errorf("before its keys are known: %+v, %v", got, err)
	}
	i.Use(tokens)
	served(t, &i)
	testkit.Eventually(t, "the keys are known", func() bool {
		_, err := verify(good)
		return err == nil
	})
	got, err := verify(good)
	if err != nil || got.UserID != "oauth:ann" || !slices.Equal(got.Scopes, []string{"tools"}) || fmt.Sprint(got.Extra[httpfront.GroupsKey]) != "[ops dev]" || got.Expiration.Unix() != claims["exp"] {
		t.Errorf("got %+v, %v", got, err)
	}
	for scope, want := range map[string]error{"tools": auth.ErrInvalidToken, "other": httpfront.ErrInsufficientScope} {
		claims := at.Claims("https://orla.example/mcp")
		if claims["scope"] = scope; scope == "tools" {
			claims["exp"] = time.Now().Add(-time.Hour).Unix()
		}
		if got, err := verify(at.Token(claims)); !errors.Is(err, want) || got != nil {
			t.Errorf("with the scope %s: %+v, %v; want %v", scope, got, err, want)
		}
	}
	if got, err := verify("forged"); !errors.Is(err, auth.ErrInvalidToken) {
		t.Errorf("a forged one: %+v, %v", got, err)
	}
	alone := httpfront.Settings{}
	if tokens.Join(&alone); len(alone.Callers) != 1 {
		t.Errorf("without static tokens the callers are %v", alone.Callers)
	}
	if got, err := alone.Verify(t.Context(), good, &http.Request{}); err != nil || got.UserID != "oauth:ann" {
		t.Errorf("without static tokens: %+v, %v", got, err)
	}
}

// SPEC N3, H2: tokens keep their keys at a reload that does not change which are accepted. Otherwise the callers of the issuer
// are others for the front, which ends what they have.
func TestN3AReloadKeepsTheKeys(t *testing.T) {
	var i Issuer
	s := services(t)
	key := func(tokens *Issued) string {
		settings := httpfront.Settings{}
		tokens.Join(&settings)
		return settings.Callers[httpfront.IssuedPrefix]
	}
	if none := i.Of(accepting("", nil), s, quiet); none != nil {
		t.Errorf("without an issuer: %+v", none)
	}
	first := i.Of(accepting("https://a.example", nil), s, quiet)
	if again := i.Of(accepting("https://a.example", nil), s, quiet); again == first || key(again) != key(first) {
		t.Error("tokens that are not in force are kept, or have another key")
	}
	i.Use(first)
	if again := i.Of(accepting("https://a.example", nil), s, quiet); again != first {
		t.Error("the same tokens are not kept")
	}
	for name, cfg := range map[string]*config.Loaded{
		"the issuer":   accepting("https://b.example", nil),
		"the audience": accepting("https://a.example", func(o *config.OAuthConfig) { o.Audience = "x" }),
		"the scopes":   accepting("https://a.example", func(o *config.OAuthConfig) { o.Scopes = []string{"x"} }),
		"the subject":  accepting("https://a.example", func(o *config.OAuthConfig) { o.SubjectClaim = "x" }),
		"the groups":   accepting("https://a.example", func(o *config.OAuthConfig) { o.GroupsClaim = "x" }),
	} {
		if other := i.Of(cfg, s, quiet); other == first || key(other) == key(first) {
			t.Errorf("with other settings for %s the tokens are kept, or have the same key", name)
		}
	}
	settings := httpfront.Settings{}
	if (*Issued)(nil).Join(&settings); settings.Verify != nil || settings.Callers != nil {
		t.Errorf("no tokens make %+v", settings)
	}
}

// SPEC N3: the keys of the issuer in force are fetched, and of no other one. The metadata are those of it, for everybody.
func TestN3TheIssuerInForce(t *testing.T) {
	one, two := issuer.New(t), issuer.New(t)
	var i Issuer
	s := services(t)
	metadata := func() (status int, servers []string) {
		w := httptest.NewRecorder()
		i.ServeHTTP(w, httptest.NewRequest(http.MethodGet, MetadataPaths[1], nil))
		var said struct {
			Servers []string `json:"authorization_servers"`
		}
		_ = json.Unmarshal(w.Body.Bytes(), &said) // nothing but for 200
		if w.Code == http.StatusOK && w.Header().Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("web pages may not read it: %v", w.Header())
		}
		return w.Code, said.Servers
	}
	served(t, &i)
	if status, servers := metadata(); status != http.StatusNotFound {
		t.Errorf("without an issuer: %d, %s", status, servers)
	}
	for _, at := range []*issuer.Issuer{one, two} {
		tokens := i.Of(accepting(at.URL, nil), s, quiet)
		i.Use(tokens)
		testkit.Eventually(t, "its keys are fetched", func() bool { return at.Fetched() > 0 })
		_, changed := i.now()
		i.Use(tokens)
		select {
		case <-changed:
			t.Error("the same tokens are others")
		default:
		}
		if status, servers := metadata(); status != http.StatusOK || !slices.Equal(servers, []string{at.URL}) {
			t.Errorf("metadata: %d, %s", status, servers)
		}
	}
	i.Use(nil) // and the service ends also without an issuer
	if status, _ := metadata(); status != http.StatusNotFound {
		t.Errorf("after it was removed: %d", status)
	}
	idle, end := context.WithCancel(t.Context())
	end()
	var none Issuer
	if err := none.Serve(idle); !errors.Is(err, context.Canceled) {
		t.Errorf("without an issuer it ends with %v", err)
	}
	if one.Fetched() != 1 || two.Fetched() != 1 {
		t.Errorf("keys were fetched %d and %d times", one.Fetched(), two.Fetched())
	}
	if i.String() != "keys of the issuer" || !strings.HasPrefix(MetadataPaths[1], MetadataPaths[0]) {
		t.Errorf("%s at %s", &i, MetadataPaths)
	}
}
