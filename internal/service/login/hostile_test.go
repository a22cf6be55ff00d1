package login_test

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/service/login"
)

// A server, or an issuer, that says what it must not: nobody is sent anywhere, and nothing is stored.
func TestMetadataThatLies(t *testing.T) {
	says := func(status int, body string, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	const ofResource, ofIssuer = "/.well-known/oauth-protected-resource/mcp", "/.well-known/openid-configuration"
	for name, c := range map[string]struct {
		change func(*fake)
		want   string
	}{
		"resource of another origin":    {func(f *fake) { f.resource["resource"] = "https://other.example/mcp" }, "is about the resource"},
		"resource of another port":      {func(f *fake) { f.resource["resource"] = "http://127.0.0.1:1/mcp" }, "is about the resource"},
		"resource next to it":           {func(f *fake) { f.resource["resource"] = f.url + "/mc" }, "is about the resource"},
		"resource below it":             {func(f *fake) { f.resource["resource"] = f.url + "/mcp/x" }, "is about the resource"},
		"resource with a user":          {func(f *fake) { f.resource["resource"] = strings.Replace(f.url, "//", "//a@", 1) + "/mcp" }, "is about the resource"},
		"no resource":                   {func(f *fake) { delete(f.resource, "resource") }, "is about the resource"},
		"no issuer":                     {func(f *fake) { delete(f.resource, "authorization_servers") }, "names no authorization server"},
		"issuer without TLS":            {func(f *fake) { f.resource["authorization_servers"] = []string{"http://issuer.example"} }, "must be an https:// URL"},
		"issuer that is a file":         {func(f *fake) { f.resource["authorization_servers"] = []string{"file:///etc/passwd"} }, "must be an https:// URL"},
		"issuer of another name":        {func(f *fake) { f.meta["issuer"] = "https://other.example" }, "says that the issuer is"},
		"token endpoint without TLS":    {func(f *fake) { f.meta["token_endpoint"] = "http://issuer.example/token" }, "token_endpoint"},
		"no token endpoint":             {func(f *fake) { delete(f.meta, "token_endpoint") }, "token_endpoint"},
		"authorization endpoint script": {func(f *fake) { f.meta["authorization_endpoint"] = "javascript:alert(1)" }, "authorization_endpoint"},
		"authorization endpoint option": {func(f *fake) { f.meta["authorization_endpoint"] = "--help" }, "authorization_endpoint"},
		"authorization endpoint shell":  {func(f *fake) { f.meta["authorization_endpoint"] = f.url + "/authorize?$(id)" }, "mean something to a shell"},
		"authorization endpoint quote":  {func(f *fake) { f.meta["authorization_endpoint"] = f.url + "/authorize?'" }, "mean something to a shell"},
		"authorization endpoint turned": {func(f *fake) { f.meta["authorization_endpoint"] = f.url + "/\u202eauthorize" }, "authorization_endpoint"},
		"registration without TLS":      {func(f *fake) { f.meta["registration_endpoint"] = "http://issuer.example/" }, "registration_endpoint"},
		"no PKCE":                       {func(f *fake) { f.meta["code_challenge_methods_supported"] = []string{"plain"} }, "PKCE"},
		"no codes":                      {func(f *fake) { f.meta["response_types_supported"] = []string{"token"} }, "does not give authorization codes"},
		"no registration":               {func(f *fake) { delete(f.meta, "registration_endpoint") }, "--client-id"},
		"redirect of the metadata":      {func(f *fake) { f.serves[ofResource] = says(302, "", "Location", f.url+"/elsewhere") }, "redirects are not followed"},
		"redirect of the issuer":        {func(f *fake) { f.serves[ofIssuer] = says(302, "", "Location", f.url+"/elsewhere") }, "the metadata of the issuer"},
		"huge metadata":                 {func(f *fake) { f.serves[ofResource] = says(200, strings.Repeat(" ", 2<<20)) }, "more than"},
		"huge metadata of the issuer":   {func(f *fake) { f.serves[ofIssuer] = says(200, strings.Repeat("[", 2<<20)) }, "more than"},
		"metadata not JSON":             {func(f *fake) { f.serves[ofResource] = says(200, "<html>") }, "is not the metadata"},
		"issuer not JSON":               {func(f *fake) { f.serves[ofIssuer] = says(200, "[1]") }, "is not the metadata"},
		"issuer broken":                 {func(f *fake) { f.serves[ofIssuer] = says(500, "") }, "500"},
		"challenge without TLS": {func(f *fake) {
			f.serves["/mcp"] = says(401, "", "WWW-Authenticate", `Bearer resource_metadata="http://other.example/x"`)
		}, "must be an https:// URL"},
		"challenge to a private address": {func(f *fake) {
			f.serves["/mcp"] = says(401, "", "WWW-Authenticate", `Bearer resource_metadata="https://169.254.169.254/x"`)
		}, "which no tool may reach"},
		"server without a login":  {func(f *fake) { f.serves["/mcp"] = says(200, "{}"); f.serves[ofResource] = says(404, "") }, "does not ask for a login"},
		"registration refused":    {func(f *fake) { f.serves["/register"] = says(403, `{"error":"access_denied"}`) }, "does not register Orla"},
		"registration not JSON":   {func(f *fake) { f.serves["/register"] = says(201, `secret`) }, "does not register Orla"},
		"registration without id": {func(f *fake) { f.serves["/register"] = says(201, `{}`) }, "cannot be used"},
		"registration with a key": {func(f *fake) {
			f.serves["/register"] = says(201, `{"client_id":"x","token_endpoint_auth_method":"private_key_jwt"}`)
		}, "which Orla cannot do"},
		"token of another kind": {func(f *fake) {
			f.serves["/token"] = says(200, `{"access_token":"a","token_type":"DPoP"}`, "Content-Type", "application/json")
		}, "not a bearer token"},
		"token with a line break": {func(f *fake) {
			f.serves["/token"] = says(200, `{"access_token":"a\r\nX: y","token_type":"Bearer"}`, "Content-Type", "application/json")
		}, "does not fit into a header"},
		"huge token": {func(f *fake) {
			f.serves["/token"] = says(200, `{"access_token":"`+strings.Repeat("a", 20<<10)+`"}`, "Content-Type", "application/json")
		}, "does not fit into a header"},
		"token endpoint redirects": {func(f *fake) { f.serves["/token"] = says(307, "", "Location", f.url+"/elsewhere") }, "gave no tokens"},
		"token endpoint repeats": {func(f *fake) {
			f.serves["/token"] = says(400, `{"error":"invalid_grant","error_description":"the code the-code is bad"}`, "Content-Type", "application/json")
		}, "[redacted] is bad"},
		"token endpoint not JSON": {func(f *fake) { f.serves["/token"] = says(200, "the-code", "Content-Type", "application/json") }, "has no token"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.with(func() { c.change(f) })
			opts := f.options(nil)
			show := opts.Show
			opts.Show = func(open, redirect string) {
				if !strings.HasPrefix(open, f.url+"/authorize?") {
					t.Errorf("a person is sent to %s", open)
				}
				show(open, redirect)
			}
			_, err := login.Login(t.Context(), opts)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "the-code") {
				t.Errorf("the login gives %v; want %q", err, c.want)
			}
			if f.count("/elsewhere") > 0 {
				t.Error("a redirect was followed")
			}
			if left, _ := filepath.Glob(filepath.Join(f.dir, "*.json")); len(left) > 0 {
				t.Errorf("%v was stored", left)
			}
		})
	}
}

// Answers that are not from the issuer, or not for this login.
func TestAnswersOfTheBrowser(t *testing.T) {
	for name, c := range map[string]struct {
		change func(url.Values)
		want   string // "" if the login goes on
	}{
		"another state":   {func(q url.Values) { q.Set("state", "x") }, ""},
		"no state":        {func(q url.Values) { q.Del("state") }, ""},
		"two states":      {func(q url.Values) { q.Add("state", q.Get("state")) }, ""},
		"another issuer":  {func(q url.Values) { q.Set("iss", "https://other.example") }, "nothing was sent to either"},
		"no issuer":       {func(q url.Values) { q.Del("iss") }, "nothing was sent to either"},
		"two issuers":     {func(q url.Values) { q.Add("iss", "x") }, "nothing was sent to either"},
		"refused":         {func(q url.Values) { q.Del("code"); q.Set("error", "access_denied") }, "refuses the login: access_denied"},
		"error and code":  {func(q url.Values) { q.Set("error", "\x1b[31mno") }, "refuses the login: [31mno"},
		"no code":         {func(q url.Values) { q.Del("code") }, "has no code"},
		"two codes":       {func(q url.Values) { q.Add("code", "y") }, "has no code"},
		"issuer, refused": {func(q url.Values) { q.Set("iss", "x"); q.Set("error", "x") }, "nothing was sent to either"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			opts := f.options(c.change)
			if c.want == "" { // the right answer comes after the wrong one
				opts.Show = func(open, _ string) {
					redirect, query := f.consent(open)
					right := query.Encode()
					c.change(query)
					redirect.RawQuery = query.Encode()
					go func() {
						if err := visit(redirect.String()); err == nil || !strings.Contains(err.Error(), "400") {
							t.Errorf("a wrong answer gets %v", err)
						}
						redirect.RawQuery = right
						for path, want := range map[string]string{"/": "404", redirect.Path + "/x": "404"} {
							other := *redirect
							other.Path = path
							if err := visit(other.String()); err == nil || !strings.Contains(err.Error(), want) {
								t.Errorf("%s gets %v", path, err)
							}
						}
						if resp, err := http.Post(redirect.String(), "", nil); err != nil || resp.StatusCode != http.StatusMethodNotAllowed {
							t.Errorf("POST gets %v", err)
						} else {
							_ = resp.Body.Close()
						}
						if err := visit(redirect.String()); err != nil {
							t.Errorf("the right answer gets %v", err)
						}
					}()
				}
			}
			_, err := login.Login(t.Context(), opts)
			switch {
			case c.want == "" && err != nil:
				t.Errorf("the login gives %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\x1b")):
				t.Errorf("the login gives %v; want %q", err, c.want)
			case c.want != "" && f.count("/token") > 0:
				t.Error("the code was sent on")
			}
		})
	}
}

// The request for a code, and the one for tokens, have what the specifications ask for.
func TestRequests(t *testing.T) {
	f := newFake(t)
	f.with(func() { f.meta["scopes_supported"] = []string{"offline_access", "read"} })
	var asked url.Values
	opts := f.options(nil)
	show := opts.Show
	opts.Show = func(open, redirect string) {
		u, err := url.Parse(open)
		if err != nil {
			t.Error(err)
		}
		asked = u.Query()
		show(open, redirect)
	}
	if _, err := login.Login(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"response_type": "code", "client_id": "registered", "code_challenge_method": "S256", "resource": f.url + "/mcp", "scope": "read offline_access", "prompt": "consent",
	} {
		if asked.Get(name) != want {
			t.Errorf("%s is %q; want %q", name, asked.Get(name), want)
		}
	}
	redirect, err := url.Parse(asked.Get("redirect_uri"))
	if err != nil || redirect.Hostname() != "127.0.0.1" || redirect.Port() == "" || len(redirect.Path) < 20 {
		t.Errorf("the redirect URL is %s, %v", redirect, err)
	}
	form := f.forms[0]
	for name, want := range map[string]string{
		"grant_type": "authorization_code", "code": "the-code", "client_id": "registered", "resource": f.url + "/mcp", "redirect_uri": redirect.String(), "client_secret": "",
	} {
		if form.Get(name) != want {
			t.Errorf("%s is %q; want %q", name, form.Get(name), want)
		}
	}
	if len(form.Get("code_verifier")) < 43 || asked.Get("state") == "" || len(asked.Get("state")) < 32 {
		t.Errorf("the verifier is %q, the state %q", form.Get("code_verifier"), asked.Get("state"))
	}
}

// A login that nobody finishes ends, and nobody waits at its address any more.
func TestALoginThatNobodyFinishes(t *testing.T) {
	f := newFake(t)
	opts := f.options(nil)
	opts.Patience = 300 * time.Millisecond
	var at string
	opts.Show = func(_, redirect string) { at = redirect }
	_, err := login.Login(t.Context(), opts)
	if err == nil || !strings.Contains(err.Error(), "nobody has finished the login") {
		t.Errorf("it ends with %v", err)
	}
	if visit(at) == nil {
		t.Error("the redirect URL still answers")
	}
}

// Where the browser is on another machine, a person enters the redirect URL.
func TestAPastedAnswer(t *testing.T) {
	f := newFake(t)
	pasted, refused := make(chan string), 0
	opts := f.options(nil)
	opts.Pasted = pasted
	opts.Refused = func(error) { refused++ }
	opts.Show = func(open, _ string) {
		redirect, query := f.consent(open)
		go func() {
			pasted <- ""
			pasted <- "what?"
			pasted <- open // the wrong one of the two
			redirect.RawQuery = query.Encode()
			pasted <- "  " + redirect.String() + "\n"
		}()
	}
	if _, err := login.Login(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	if refused != 2 {
		t.Errorf("%d texts were refused", refused)
	}
}

// How Orla is known to the issuer: what the command line says, then a document, then a registration.
func TestClients(t *testing.T) {
	const document = "https://example.com/orla.json"
	f := newFake(t)
	try := func(what string, change func(*login.Options), id, from string) {
		t.Helper()
		opts := f.options(nil)
		change(&opts)
		r, err := login.Login(t.Context(), opts)
		if err != nil || r.Client.ID != id || r.Client.From != from {
			t.Errorf("%s: %+v, %v", what, r, err)
		}
	}
	try("a document that the issuer does not take", func(o *login.Options) { o.Document = document }, "registered", login.Registered)
	f.with(func() { f.meta["client_id_metadata_document_supported"] = true })
	try("a document", func(o *login.Options) { o.Document = document }, document, login.Document)
	if f.count("/register") != 1 {
		t.Errorf("%d registrations", f.count("/register"))
	}
	try("a client of the command line", func(o *login.Options) {
		o.Document, o.Issuer, o.ClientID, o.ClientSecret = document, f.url, "mine", "s3cret"
	}, "mine", login.Configured)
	try("the same again", func(o *login.Options) { o.Document = document }, "mine", login.Configured)
	f.with(func() { f.resource["authorization_servers"] = []string{f.url, "https://other.example"} })
	opts := f.options(nil)
	opts.Issuer = "https://third.example"
	if _, err := login.Login(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "https://other.example") {
		t.Errorf("an issuer that the server does not name: %v", err)
	}
	opts = f.options(nil)
	opts.Redirect = "http://localhost/x"
	at := ""
	show := opts.Show
	opts.Show = func(open, redirect string) { at = redirect; show(open, redirect) }
	if _, err := login.Login(t.Context(), opts); err != nil || !strings.HasPrefix(at, "http://localhost:") || !strings.HasSuffix(at, "/x") {
		t.Errorf("a redirect URL of the command line: %q, %v", at, err)
	}
	for _, text := range []string{"https://127.0.0.1/x", "http://example.com/x", "http://0.0.0.0/x", "http://10.0.0.1/", "x", "http://127.0.0.1/x?y", "file:///x"} {
		if _, err := login.CheckRedirect(text); err == nil {
			t.Errorf("the redirect URL %q is accepted", text)
		}
	}
}

// Servers that answer a page for every address, and those whose documents differ, can be logged in to.
func TestOddDocuments(t *testing.T) {
	page := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<!doctype html>") }
	for name, change := range map[string]func(*fake){
		"the document of OAuth comes first": func(f *fake) {
			good, bad := f.meta, map[string]any{"issuer": f.url, "authorization_endpoint": f.url + "/other", "token_endpoint": f.url + "/other"}
			f.serves["/.well-known/oauth-authorization-server"] = func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, good) }
			f.meta = bad
		},
		"a page in place of the document of OAuth": func(f *fake) { f.serves["/.well-known/oauth-authorization-server"] = page },
		"an issuer with a slash":                   func(f *fake) { f.resource["authorization_servers"] = []string{f.url + "/"} },
		"a resource without a path":                func(f *fake) { f.resource["resource"] = f.url },
		"a challenge without metadata": func(f *fake) {
			f.serves["/mcp"] = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }
		},
		"metadata at the root": func(f *fake) {
			resource := f.resource
			f.serves["/mcp"] = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }
			f.serves["/.well-known/oauth-protected-resource/mcp"] = page
			f.serves["/.well-known/oauth-protected-resource"] = func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, resource) }
		},
		"no metadata, as in 2025-03-26": func(f *fake) {
			f.serves["/mcp"] = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }
			f.serves["/.well-known/oauth-protected-resource/mcp"] = page
		},
		"a session without a login": func(f *fake) {
			f.serves["/mcp"] = func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					w.Header().Set("Mcp-Session-Id", "x")
					answer(w, 200, map[string]any{})
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.with(func() { change(f) })
			r := f.login()
			if !strings.HasPrefix(f.url+"/mcp", r.Resource) || r.Issuer != f.url {
				t.Errorf("the login is for %s, of %s", r.Resource, r.Issuer)
			}
		})
	}
}

// A server whose address is not this machine's needs TLS.
func TestEndpointWithoutTLS(t *testing.T) {
	f := newFake(t)
	opts := f.options(nil)
	opts.Endpoint = "http://mcp.example/mcp"
	if _, err := login.Login(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "https://") {
		t.Errorf("the login gives %v", err)
	}
	opts.Show = func(string, string) { t.Error("a person is asked") }
	opts.Endpoint, opts.Dir = f.url+"/mcp", "/dev/null/x"
	if _, err := login.Login(t.Context(), opts); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("without a folder the login gives %v", err)
	}
}
