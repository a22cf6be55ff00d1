package login_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/service/login"
	"github.com/orla-project/orla/internal/service/outbound"
	"github.com/orla-project/orla/internal/testing/issuer"
)

const redirect = "https://orla.example.com/console/login"

// followed returns the query that an authorization server sends the browser back with.
func followed(t *testing.T, open string) url.Values {
	t.Helper()
	at, err := issuer.Browse(t.Context(), open, "ann")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(at.String(), redirect+"?") {
		t.Fatalf("the browser is sent to %s", at)
	}
	return at.Query()
}

// SPEC O3: an answer is good with its own ticket, at its own redirect URL, once; and what the issuer says reaches the person.
func TestO3ALoginOnAPage(t *testing.T) {
	i := issuer.New(t)
	client := outbound.New(outbound.Options{Private: outbound.PrivateAll})
	t.Cleanup(client.Close)
	web := &login.Web{Client: client, Issuer: i.URL, ClientID: "page", Resource: "https://orla.example.com/mcp", Audience: "api", Scopes: []string{"tools"}}
	begin := func() login.Ticket {
		t.Helper()
		ticket, err := web.Begin(t.Context(), redirect)
		if err != nil {
			t.Fatal(err)
		}
		return ticket
	}
	ticket := begin()
	open, _ := url.Parse(ticket.Open)
	for name, want := range map[string]string{"client_id": "page", "redirect_uri": redirect, "resource": web.Resource, "audience": "api", "scope": "tools", "response_type": "code", "state": ticket.State} {
		if got := open.Query().Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	said := followed(t, ticket.Open)
	token, err := web.Finish(t.Context(), redirect, ticket, said)
	if err != nil || strings.Count(token, ".") != 2 {
		t.Fatalf("token %q, %v", token, err)
	}
	with := func(name, value string) url.Values {
		said := followed(t, ticket.Open)
		said.Set(name, value)
		return said
	}
	other := begin()
	for _, c := range []struct {
		name, want, redirect string
		ticket               login.Ticket
		said                 url.Values
	}{
		{"a code that was used", "invalid_grant", redirect, ticket, said},
		{"another state", "not the answer", redirect, ticket, with("state", "x")},
		{"another issuer", "is from the issuer", redirect, ticket, with("iss", "https://evil.example")},
		{"a refusal", "access_denied", redirect, ticket, with("error", "access_denied")},
		{"no code", "has no code", redirect, ticket, with("code", "")},
		{"another redirect URL", "invalid_grant", "https://evil.example/console/login", ticket, followed(t, ticket.Open)},
		{"another verifier", "invalid_grant", redirect, login.Ticket{State: ticket.State, Verifier: other.Verifier}, followed(t, ticket.Open)},
	} {
		if token, err := web.Finish(t.Context(), c.redirect, c.ticket, c.said); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %q, %v; want %q", c.name, token, err, c.want)
		}
	}
}

// SPEC O3: the client's secret is sent to the token endpoint, and is in no error.
func TestO3ALoginWithASecret(t *testing.T) {
	f := newFake(t)
	web := &login.Web{Client: f.client, Issuer: f.url, ClientID: "page", Resource: f.url + "/mcp", Secret: func() (string, error) { return "s3cret-s3cret", nil }}
	f.client = outbound.New(outbound.Options{Private: outbound.PrivateAll})
	t.Cleanup(f.client.Close)
	web.Client = f.client
	ticket, err := web.Begin(t.Context(), "https://orla.example.com/console/login")
	if err != nil {
		t.Fatal(err)
	}
	sent := ""
	f.with(func() {
		f.serves["/token"] = func(w http.ResponseWriter, r *http.Request) {
			_, sent, _ = r.BasicAuth()
			answer(w, http.StatusUnauthorized, map[string]string{"error": "invalid_client", "error_description": "s3cret-s3cret is wrong"})
		}
	})
	_, err = web.Finish(t.Context(), "https://orla.example.com/console/login", ticket, url.Values{"code": {"c"}, "state": {ticket.State}, "iss": {f.url}})
	if err == nil || !strings.Contains(err.Error(), "invalid_client") || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("%v", err)
	}
	if sent != "s3cret-s3cret" {
		t.Errorf("the issuer got the secret %q", sent)
	}
}
