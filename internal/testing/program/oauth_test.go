package program

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/testing/issuer"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

const (
	publicURL  = "https://orla.example"
	mcpURL     = publicURL + "/mcp"
	ciToken    = "t0kent0kent0kent0ken"
	callOfEcho = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{}}}`
)

// protected is an Orla that accepts access tokens.
type protected struct {
	*running
	config string
}

// configureOAuth writes orla.yaml with more in auth.oauth than the issuer. Without an issuer there is no
// auth.oauth.
func configureOAuth(t *testing.T, path, issuer, static string, more ...string) {
	t.Helper()
	text := "port: 0\ntools_dir: tools\nlog_level: debug\nauth:\n" + static
	if issuer != "" {
		text += "  oauth:\n    issuer: " + issuer + "\n    public_url: " + publicURL + "\n"
		for _, line := range more {
			text += "    " + line + "\n"
		}
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const ciEntry = "  tokens:\n    - name: ci\n      file: token\n"

// serveProtected starts Orla with a tool echo, and a configuration as configureOAuth makes it.
func serveProtected(t *testing.T, issuer, static string, more ...string) *protected {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte(ciToken), 0o600); err != nil {
		t.Fatal(err)
	}
	testkit.WriteTool(t, filepath.Join(dir, "tools"), "echo.sh", "#!/bin/sh\ncat; env\n")
	testkit.WriteTool(t, filepath.Join(dir, "tools"), "slow.sh", "#!/bin/sh\nsleep 3\necho done\n")
	p := &protected{config: filepath.Join(dir, "orla.yaml")}
	configureOAuth(t, p.config, issuer, static, more...)
	p.running = startOrla(t, t.TempDir(), "--config", p.config)
	p.url, _ = p.waitLog("serving", nil)["url"].(string)
	return p
}

// reload applies another configuration, with the static token.
func (p *protected) reload(issuer string, more ...string) {
	p.t.Helper()
	configureOAuth(p.t, p.config, issuer, ciEntry, more...)
	f := p.follow()
	n := p.count("reload", nil)
	p.signal(syscall.SIGHUP)
	for range n + 1 {
		f.next("reload", nil)
	}
}

// maxHeaders is the size in bytes of a token from which the headers of a request may be too large for Orla.
const maxHeaders = 12 << 10

// answered is an answer whose body was read.

type answered struct {
	StatusCode int
	Header     http.Header
}

// ask sends a POST to /mcp with a token and headers, and returns the answer with its body read.
func (p *protected) ask(token, body string, headers ...string) (answered, string) {
	p.t.Helper()
	req, err := http.NewRequest(http.MethodPost, p.url, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return p.do(req)
}

func (p *protected) do(req *http.Request) (answered, string) {
	p.t.Helper()
	got, body, err := answerTo(req)
	ended := errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
	if ended && len(req.Header.Get("Authorization")) > maxHeaders { // Orla did not read them to their end, and this client no answer
		return answered{StatusCode: http.StatusRequestHeaderFieldsTooLarge}, ""
	}
	if err != nil {
		p.t.Fatalf("%s %s with %d bytes of a token: %v", req.Method, req.URL, len(req.Header.Get("Authorization")), err)
	}
	return got, body
}

// answerTo reads an answer to its end.
func answerTo(req *http.Request) (answered, string, error) {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answered{}, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return answered{resp.StatusCode, resp.Header}, string(body), err
}

// logged fails the test if a part of a token is in the log.
func (p *protected) logged(token string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lines {
		raw, _ := json.Marshal(l)
		for part := range strings.SplitSeq(token, ".") {
			if len(part) > 20 && strings.Contains(string(raw), part) {
				p.t.Fatalf("a part of a token is in the log: %s", raw)
			}
		}
	}
}

// SPEC N3: the built program with access tokens alone. None, and 200 forged ones, get 401 with where to
// get one, and nothing runs.
func TestN3OnlyAccessTokens(t *testing.T) {
	t.Parallel()
	needs.Time(t, "sends hundreds of tokens")
	i := issuer.New(t)
	p := serveProtected(t, i.URL, "", "groups_claim: groups")
	good := i.Token(i.Claims(mcpURL))
	if resp, body := p.ask(good, callOfEcho); resp.StatusCode != http.StatusOK || strings.Contains(body, good) {
		t.Fatalf("a good token: %d %s", resp.StatusCode, body)
	}
	if line := p.waitLog("call", nil); line["caller"] != "oauth:ann" {
		t.Errorf("caller = %v", line["caller"])
	}
	want := `resource_metadata="` + publicURL + `/.well-known/oauth-protected-resource/mcp"`
	resp, _ := p.ask("", callOfEcho)
	if got := resp.Header.Get("WWW-Authenticate"); resp.StatusCode != http.StatusUnauthorized || !strings.Contains(got, want) || strings.Contains(got, "error") {
		t.Errorf("without a token: %d %s", resp.StatusCode, got)
	}
	for _, f := range i.Forgeries(t, mcpURL) {
		resp, body := p.ask(f.Token, callOfEcho)
		refused := resp.StatusCode == http.StatusUnauthorized && strings.Contains(resp.Header.Get("WWW-Authenticate"), `error="invalid_token"`)
		if tooLarge := len(f.Token) > maxHeaders && resp.StatusCode == http.StatusRequestHeaderFieldsTooLarge; !refused && !tooLarge {
			t.Errorf("%s: %d %v %s", f.Wrong, resp.StatusCode, resp.Header, body)
		}
		p.logged(f.Token)
	}
	p.logged(good)
	if n := p.count("call", nil); n != 1 {
		t.Errorf("%d calls ran, want 1", n)
	}
	if resp, _ := p.ask(good, callOfEcho); resp.StatusCode != http.StatusOK {
		t.Errorf("a good token after them: %d", resp.StatusCode)
	}
}

// SPEC N3: anybody, and each web page, can read the metadata of the protected resource (RFC 9728), if
// there is one.
func TestN3Metadata(t *testing.T) {
	t.Parallel()
	i := issuer.New(t)
	p := serveProtected(t, i.URL, ciEntry, "scopes: [tools, more]")
	root := strings.TrimSuffix(p.url, "/mcp")
	fetch := func(method, path string) (answered, string) {
		req, err := http.NewRequest(method, root+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Origin", "https://client.example")
		req.Host = "orla.example"
		return p.do(req)
	}
	paths := []string{"/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"}
	for _, path := range paths {
		resp, body := fetch(http.MethodGet, path)
		want := fmt.Sprintf(`{"resource":%q,"authorization_servers":[%q],"scopes_supported":["tools","more"],"bearer_methods_supported":["header"],"resource_name":"Orla"}`, mcpURL, i.URL)
		if resp.StatusCode != http.StatusOK || strings.TrimSpace(body) != want || resp.Header.Get("Access-Control-Allow-Origin") != "*" || resp.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %v %s", path, resp.StatusCode, resp.Header, body)
		}
		if resp, _ := fetch(http.MethodOptions, path); resp.StatusCode != http.StatusNoContent {
			t.Errorf("OPTIONS %s: %d", path, resp.StatusCode)
		}
		if resp, _ := fetch(http.MethodPost, path); resp.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: %d", path, resp.StatusCode)
		}
	}
	p.reload("")
	if resp, _ := fetch(http.MethodGet, paths[0]); resp.StatusCode != http.StatusNotFound {
		t.Errorf("without auth.oauth: %d", resp.StatusCode)
	}
	if resp, _ := p.ask("", callOfEcho); resp.Header.Get("WWW-Authenticate") != `Bearer realm="orla"` {
		t.Errorf("without auth.oauth: %v", resp.Header)
	}
}

// SPEC N3: access tokens beside static ones, with scopes; a reload ends the sessions of subjects alone.
func TestN3BesideStaticTokens(t *testing.T) {
	t.Parallel()
	i := issuer.New(t)
	p := serveProtected(t, i.URL, ciEntry, "scopes: [tools]")
	claims := i.Claims(mcpURL)
	ann := i.Token(claims)
	claims["sub"] = "ci" // as the static token is called
	other := i.Token(claims)
	claims["scope"] = "toolsmore"
	narrow := i.Token(claims)
	if resp, _ := p.ask(narrow, callOfEcho); resp.StatusCode != http.StatusForbidden ||
		!strings.Contains(resp.Header.Get("WWW-Authenticate"), `error="insufficient_scope"`) || !strings.Contains(resp.Header.Get("WWW-Authenticate"), `scope="tools"`) {
		t.Errorf("without the scope: %d %v", resp.StatusCode, resp.Header)
	}
	sessions := map[string]string{}
	for _, token := range []string{ciToken, ann, other} {
		resp, body := p.ask(token, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
		if sessions[token] = resp.Header.Get("Mcp-Session-Id"); sessions[token] == "" {
			t.Fatalf("%d %s", resp.StatusCode, body)
		}
	}
	expect := func(when string, want map[string]int) {
		t.Helper()
		for owner, session := range sessions {
			for user, status := range want {
				if user != owner {
					status = http.StatusNotFound
				}
				if want[user] == http.StatusUnauthorized {
					status = http.StatusUnauthorized
				}
				if resp, _ := p.ask(user, callOfEcho, "Mcp-Session-Id", session); resp.StatusCode != status {
					t.Errorf("%s: the session of %.8s answers %.8s with %d, want %d", when, owner, user, resp.StatusCode, status)
				}
			}
		}
	}
	expect("at first", map[string]int{ciToken: 200, ann: 200, other: 200})
	p.reload(i.URL, "scopes: [tools]")
	expect("after a reload that changes nothing", map[string]int{ciToken: 200, ann: 200, other: 200})
	p.reload(i.URL, "audience: "+mcpURL)
	expect("with other settings", map[string]int{ciToken: 200, ann: 404, other: 404})
	p.reload(i.URL, "audience: https://other.example")
	expect("with another audience", map[string]int{ciToken: 200, ann: 401, other: 401})
	p.reload("")
	expect("without auth.oauth", map[string]int{ciToken: 200, ann: 401, other: 401})
}

// SPEC N3: with an issuer that is down Orla starts, static tokens are accepted, and the log says once what
// is wrong. When the issuer is there, its tokens are accepted.
func TestN3TheIssuerIsDown(t *testing.T) {
	t.Parallel()
	i := issuer.New(t)
	i.SetDown(true)
	p := serveProtected(t, i.URL, ciEntry)
	good := i.Token(i.Claims(mcpURL))
	for range 3 {
		if resp, _ := p.ask(good, callOfEcho); resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
			t.Errorf("an access token: %d %v", resp.StatusCode, resp.Header)
		}
		if resp, _ := p.ask("x.y.z", callOfEcho); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("another token: %d", resp.StatusCode)
		}
		if resp, _ := p.ask(ciToken, callOfEcho); resp.StatusCode != http.StatusOK {
			t.Errorf("a static token: %d", resp.StatusCode)
		}
	}
	const down = "the issuer of access tokens cannot be asked for its keys; its tokens get 503 until it can"
	p.waitLog(down, func(l map[string]any) bool {
		return l["issuer"] == i.URL && strings.Contains(fmt.Sprint(l["err"]), "503")
	})
	i.SetDown(false)
	p.waitLog("the keys of the issuer of access tokens are known", nil)
	if resp, _ := p.ask(good, callOfEcho); resp.StatusCode != http.StatusOK {
		t.Errorf("when the issuer is there: %d", resp.StatusCode)
	}
	if n := p.count(down, nil); n != 1 {
		t.Errorf("the log says %d times that the issuer is down", n)
	}
}

// SPEC N3: the end of a token ends no call, and the next request is refused.
func TestN3ATokenExpires(t *testing.T) {
	t.Parallel()
	needs.Time(t, "waits for a token to expire")
	i := issuer.New(t)
	p := serveProtected(t, i.URL, "")
	if resp, _ := p.ask(i.Token(i.Claims(mcpURL)), callOfEcho); resp.StatusCode != http.StatusOK { // the keys are there
		t.Fatal(resp.StatusCode)
	}
	claims := i.Claims(mcpURL)
	claims["exp"] = time.Now().Unix() - 28 // with the skew of 30 s it has less than 2 s
	token := i.Token(claims)
	if resp, body := p.ask(token, strings.Replace(callOfEcho, "echo", "slow", 1)); resp.StatusCode != http.StatusOK || !strings.Contains(body, "done") {
		t.Errorf("a call in which it expires: %d %s", resp.StatusCode, body)
	}
	if resp, _ := p.ask(token, callOfEcho); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("the next call: %d", resp.StatusCode)
	}
}

// SPEC N3: a token is forwarded neither to a process nor to a service.
func TestN3TokensAreNotForwarded(t *testing.T) {
	t.Parallel()
	seen := make(chan string, 100)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen <- fmt.Sprint(r.Method, r.URL, r.Header, string(body))
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"ok":true}`)
	}))
	defer service.Close()
	i := issuer.New(t)
	p := serveProtected(t, i.URL, "")
	testkit.WriteTool(t, filepath.Join(filepath.Dir(p.config), "tools"), "far.yaml", "apiVersion: orloj.dev/v1\nkind: Tool\nmetadata: {name: far}\nspec: {type: http, endpoint: "+service.URL+", description: Far., input_schema: {type: object}}\n")
	p.signal(syscall.SIGHUP)
	p.waitLog("reload", func(l map[string]any) bool { return strings.Contains(fmt.Sprint(l["names"]), "far") })
	good := i.Token(i.Claims(mcpURL))
	resp, body := p.ask(good, strings.Replace(callOfEcho, "echo", "far", 1))
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	select {
	case got := <-seen:
		for part := range strings.SplitSeq(good, ".") {
			if strings.Contains(got, part) {
				t.Errorf("the service sees %s", got)
			}
		}
	default:
		t.Errorf("the service was not called: %s", body)
	}
	if _, body := p.ask(good, callOfEcho); strings.Contains(body, strings.Split(good, ".")[2]) {
		t.Errorf("the process sees %s", body)
	}
}

// SPEC N3 with an authorization server as it comes: tokens by client credentials for this resource are
// accepted, those for another one and opaque ones are not.
func TestN3RealAuthorizationServer(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3ts3cr3t"
	server := "http://" + needs.Start(t, "oidc", "CLIENT_SECRET="+secret).Addr
	p := serveProtected(t, server, "", "scopes: [read]", "groups_claim: groups")
	token := func(resource, scope string) string {
		t.Helper()
		form := "grant_type=client_credentials&scope=" + scope
		if resource != "" {
			form += "&resource=" + resource
		}
		req, err := http.NewRequest(http.MethodPost, server+"/token", strings.NewReader(form))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.SetBasicAuth("orla", secret)
		resp, body := p.do(req)
		var got struct {
			Token string `json:"access_token"`
		}
		if err := json.Unmarshal([]byte(body), &got); err != nil || got.Token == "" {
			t.Fatalf("%d %s", resp.StatusCode, body)
		}
		return got.Token
	}
	for name, test := range map[string]struct {
		resource, scope string
		want            int
	}{
		"for this resource": {mcpURL, "read", 200}, "without the scope": {mcpURL, "write", 403},
		"for another resource": {"https://other.example/mcp", "read", 401}, "opaque": {"", "read", 401},
	} {
		if resp, body := p.ask(token(test.resource, test.scope), callOfEcho); resp.StatusCode != test.want {
			t.Errorf("%s: %d %v %s", name, resp.StatusCode, resp.Header, body)
		}
	}
	if line := p.waitLog("call", nil); line["caller"] != "oauth:orla" {
		t.Errorf("caller = %v", line["caller"])
	}
}

// SPEC N3, J1: the doctor says what is wrong with an issuer, and whether its clients have to be registered.
func TestN3DoctorExaminesTheIssuer(t *testing.T) {
	t.Parallel()
	needs.Time(t, "examines the machine")
	i := issuer.New(t)
	config := filepath.Join(t.TempDir(), "orla.yaml")
	examine := func(issuer string, more ...string) []string {
		t.Helper()
		configureOAuth(t, config, issuer, "", more...)
		cmd := exec.Command(orlaBinary(t), "doctor", "--json", "--config", config)
		cmd.Env = append(os.Environ(), "PATH="+t.TempDir()) // without a podman and others that it would ask
		out, _ := cmd.Output()                              // its status says whether anything fails
		var findings []struct{ Check, Level, Text, Fix string }
		if err := json.Unmarshal(out, &findings); err != nil {
			t.Fatalf("%v in %s", err, out)
		}
		var found []string
		for _, f := range findings {
			if strings.HasPrefix(f.Check, "oauth") {
				found = append(found, f.Check+" "+f.Level+" "+f.Text+" "+f.Fix)
			}
		}
		return found
	}
	says := func(found []string, prefix, text string) {
		t.Helper()
		if !slices.ContainsFunc(found, func(f string) bool { return strings.HasPrefix(f, prefix) && strings.Contains(f, text) }) {
			t.Errorf("no %q with %q in\n%s", prefix, text, strings.Join(found, "\n"))
		}
	}
	found := examine(i.URL)
	says(found, "oauth_issuer ok", i.URL)
	says(found, "oauth_keys ok", "1 key")
	says(found, "oauth_clock ok", "")
	says(found, "oauth_audience", mcpURL)
	says(found, "oauth_clients warn", "register")
	i.Describe("client_id_metadata_document_supported", true)
	says(examine(i.URL), "oauth_clients warn", "none")
	i.Describe("token_endpoint_auth_methods_supported", []string{"none"})
	says(examine(i.URL), "oauth_clients ok", "")
	i.Describe("code_challenge_methods_supported", nil)
	says(examine(i.URL), "oauth_clients warn", "S256")
	i.Describe("jwks_uri", i.URL+"/none")
	says(examine(i.URL), "oauth_keys fail", "404")
	says(examine(i.URL+"/"), "oauth_issuer fail", "must be equal")
	i.SetDown(true)
	says(examine(i.URL), "oauth_issuer fail", "503")
	down := examine("http://127.0.0.1:1")
	says(down, "oauth_issuer fail", "cannot connect")
	if strings.Contains(strings.Join(down, "\n"), "execution_failed") {
		t.Errorf("the code of a call's error is in %q", down)
	}
}
