package auth_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/orla-project/orla/internal/service/auth"
	"github.com/orla-project/orla/internal/service/outbound"
	"github.com/orla-project/orla/internal/testing/needs"
)

// realSecret has what the way into a header or a form could change.
const realSecret = "s3cr3t/+=&% of:the\"client'"

// authorizationServer starts testdata/servers/oidc, with more in its environment,
// and returns its address.
func authorizationServer(t *testing.T, env ...string) string {
	t.Helper()
	return "http://" + needs.Start(t, "oidc", append(env, "CLIENT_SECRET="+realSecret)...).Addr
}

// ask makes a request of the server and reads JSON into v.
func ask(t *testing.T, client *outbound.Client, method, url string, c auth.Credentials, v any) error {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	c.Apply(req.Header)
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := outbound.Body(resp.Body, 1<<20)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return outbound.StatusFault("api", resp, body)
	}
	if v == nil {
		return nil
	}
	return json.Unmarshal(body, v)
}

// SPEC-TOOLS 5.2 with an authorization server as it comes: tokens by secret, in
// the header and in the form; one exchange for many calls; a new token when the
// service takes the old one no more; a rotated secret at the next call.
func TestRealAuthorizationServer(t *testing.T) {
	for _, method := range []string{"client_secret_basic", "client_secret_post"} {
		t.Run(method, func(t *testing.T) {
			server := authorizationServer(t, "AUTH_METHOD="+method)
			client := outbound.New(outbound.Options{})
			defer client.Close()
			secrets := store(pair("orla", realSecret))
			s := source(auth.NewTokens(client), server+"/token", secrets, "read", "write")
			call := func() error {
				return s.Do(t.Context(), func(c auth.Credentials) error {
					var got struct{ Scope, Client string }
					err := ask(t, client, http.MethodPost, server+"/api", c, &got)
					if err == nil && (got.Scope != "read write" || got.Client != "orla") {
						t.Errorf("the service sees %+v", got)
					}
					return err
				})
			}
			served := func() (got struct{ Exchanges, Calls int }) {
				if err := ask(t, client, http.MethodGet, server+"/served", auth.Credentials{}, &got); err != nil {
					t.Fatal(err)
				}
				return got
			}

			var wg sync.WaitGroup
			for range 40 {
				wg.Go(func() {
					if err := call(); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if got := served(); got.Exchanges != 1 || got.Calls != 40 {
				t.Errorf("40 calls at once: the server saw %+v", got)
			}

			if err := ask(t, client, http.MethodPost, server+"/revoke-all", auth.Credentials{}, nil); err != nil {
				t.Fatal(err)
			}
			if err := call(); err != nil {
				t.Errorf("after the tokens were revoked: %v", err)
			}
			if got := served(); got.Exchanges != 2 || got.Calls != 42 {
				t.Errorf("after the tokens were revoked: the server saw %+v", got)
			}

			set(secrets, pair("orla", "wrong-secret"))
			f := failing(t, call(), false, "wrong-secret")
			if !strings.Contains(f.Reason, "invalid_client") {
				t.Errorf("a wrong secret: %v", f.Error())
			}
			set(secrets, pair("orla", realSecret))
			if err := call(); err != nil {
				t.Errorf("with the right secret again: %v", err)
			}
		})
	}
}

// Tokens that end before 30 s are used once.
func TestRealShortTokens(t *testing.T) {
	server := authorizationServer(t, "TOKEN_SECONDS=20")
	client := outbound.New(outbound.Options{})
	defer client.Close()
	s := source(auth.NewTokens(client), server+"/token", store(pair("orla", realSecret)))
	for range 3 {
		if err := s.Do(t.Context(), func(c auth.Credentials) error {
			return ask(t, client, http.MethodPost, server+"/api", c, nil)
		}); err != nil {
			t.Error(err)
		}
	}
	var got struct{ Exchanges int }
	if err := ask(t, client, http.MethodGet, server+"/served", auth.Credentials{}, &got); err != nil || got.Exchanges != 3 {
		t.Errorf("3 calls made %d exchanges, %v", got.Exchanges, err)
	}
}
