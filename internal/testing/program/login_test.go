package program

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/issuer"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// loginServer is an MCP server that asks for OAuth, with its issuer, both as they come.
type loginServer struct {
	t   *testing.T
	url string
}

func startLoginServer(t *testing.T) loginServer {
	t.Helper()
	return loginServer{t, "http://" + needs.Start(t, "oidc", "LOGIN=1", "CLIENT_SECRET=s3cret").Addr}
}

// declare writes an McpServer for it into a folder of tools.
func (l loginServer) declare(dir, more string) {
	l.t.Helper()
	text := "apiVersion: orloj.dev/v1\nkind: McpServer\nmetadata: {name: far}\nspec:\n  transport: http\n  endpoint: " + l.url + "/mcp\n" + more
	testkit.WriteTool(l.t, dir, "far.yaml", text)
}

func (l loginServer) tell(path, body string) {
	l.t.Helper()
	resp, err := http.Post(l.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		l.t.Fatal(err)
	}
	_ = resp.Body.Close()
}

// refreshes returns how many refreshes the issuer has granted.
func (l loginServer) refreshes() int {
	l.t.Helper()
	resp, err := http.Get(l.url + "/logins")
	if err != nil {
		l.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var got struct{ Grants map[string]int }
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		l.t.Fatal(err)
	}
	return got.Grants["refresh_token"]
}

// login runs orla login, does what a person does in a browser, and returns what the command printed. With
// paste, the browser is on another machine.
func (o *running) login(paste bool) string {
	o.t.Helper()
	cmd := o.command("login", "far", "--no-browser")
	in, err := cmd.StdinPipe()
	if err != nil {
		o.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		o.t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		o.t.Fatal(err)
	}
	var said strings.Builder
	lines := bufio.NewReader(io.TeeReader(out, &said))
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			_ = cmd.Wait()
			o.t.Fatalf("orla login ends: %s", said.String())
		}
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "http") {
			to, err := issuer.Browse(o.t.Context(), line, "ann")
			if err != nil {
				o.t.Fatal(err)
			}
			if paste {
				_, err = fmt.Fprintf(in, "http://127.0.0.1/\n%s\n", to)
			} else {
				var resp *http.Response
				if resp, err = http.Get(to.String()); err == nil {
					err = resp.Body.Close()
				}
			}
			if err != nil {
				o.t.Fatal(err)
			}
			break
		}
	}
	_, _ = io.Copy(io.Discard, lines) // to its end
	if err := cmd.Wait(); err != nil {
		o.t.Fatalf("orla login: %v\n%s", err, said.String())
	}
	return said.String()
}

// tokens returns the tokens in the file of the login.
func (o *running) tokens() []string {
	o.t.Helper()
	files, err := filepath.Glob(filepath.Join(o.home(), ".local/state/orla/logins/far-*.json"))
	if err != nil || len(files) != 1 {
		o.t.Fatalf("the files are %v, %v", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		o.t.Fatal(err)
	}
	var r struct {
		Access  string `json:"access_token"`
		Refresh string `json:"refresh_token"`
	}
	if err := json.Unmarshal(text, &r); err != nil || r.Access == "" || r.Refresh == "" {
		o.t.Fatalf("the file has %s, %v", text, err)
	}
	return []string{r.Access, r.Refresh}
}

// Issue 10.5: a remote server that asks for OAuth says what to do. After orla login a running Orla serves
// it, refreshes its tokens, survives a kill, and shows no token.
func TestOrlaLogin(t *testing.T) {
	t.Parallel()
	far := startLoginServer(t)
	dir := t.TempDir()
	far.declare(filepath.Join(dir, "tools"), "")
	o := serveThere(t, dir)
	o.waitLog("state", is("far", "STOPPED"))
	if s := o.toolStatus("far"); !strings.Contains(s.Reason, "run: orla login far") || s.Login != "" {
		t.Errorf("without a login: %+v", s)
	}
	if got := o.mustOrla("login"); !strings.Contains(got, "far") || !strings.Contains(got, "not logged in") {
		t.Errorf("orla login lists\n%s", got)
	}
	works := func(when string) {
		t.Helper()
		if s := o.orla("call", "far--whoami"); s.code != 0 || s.out != "ann read" {
			t.Fatalf("%s: %d %s%s", when, s.code, s.out, s.err)
		}
	}

	said := o.login(false)
	if !strings.Contains(said, "far: logged in at "+far.url) || !strings.HasSuffix(said, "far: READY\n") {
		t.Errorf("orla login says\n%s", said)
	}
	works("after the login")
	tokens := o.tokens()
	far.tell("/end-access", "")
	works("after a refresh")
	if n := far.refreshes(); n != 1 {
		t.Errorf("%d refreshes", n)
	}
	tokens = append(tokens, o.tokens()...)
	said += o.mustOrla("status", "far") + o.mustOrla("status", "--json") + o.mustOrla("config") + o.mustOrla("login") + o.mustOrla("logs", "-n", "-1")
	if !strings.Contains(said, "login        logged in at "+far.url) {
		t.Errorf("the status has no login:\n%s", said)
	}
	for _, token := range tokens {
		if strings.Contains(said, token) {
			t.Errorf("a token is shown:\n%s", said)
		}
	}

	// Orla is killed while the issuer answers a refresh: its new refresh token is lost, and the problem
	// says what to do.
	far.tell("/token-delay", `{"ms": 60000}`)
	far.tell("/end-access", "")
	go func() { _, _ = o.call("far--whoami", "{}") }() // it ends with Orla
	testkit.Eventually(t, "a refresh is granted", func() bool { return far.refreshes() == 2 })
	if err := o.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	o.wait()
	far.tell("/token-delay", `{"ms": 0}`)
	o = o.again()
	o.waitLog("state", is("far", "STOPPED"))
	if s := o.orla("call", "far--whoami"); s.code != 1 || !strings.Contains(s.err+s.out, "run: orla login far") {
		t.Errorf("after a kill: %d %s%s", s.code, s.out, s.err)
	}
	if s := o.toolStatus("far"); !strings.Contains(s.Login, "over: ") {
		t.Errorf("after a kill: %+v", s)
	}
	if s := o.orla("doctor"); s.code != 1 || !strings.Contains(s.out, "fail  login") {
		t.Errorf("orla doctor says\n%s", s.out)
	}

	// The browser is on another machine.
	if said := o.login(true); !strings.Contains(said, "the address must begin with http://127.0.0.1:") || !strings.HasSuffix(said, "far: READY\n") {
		t.Errorf("orla login says\n%s", said)
	}
	works("after another login")

	// The issuer forgets the login of a server that is READY.
	far.tell("/end-grants", "")
	if s := o.orla("call", "far--whoami"); s.code != 1 || !strings.Contains(s.err+s.out, "run: orla login far") {
		t.Errorf("after the end of the grant: %d %s%s", s.code, s.out, s.err)
	}
	if got := o.mustOrla("status"); !strings.Contains(got, "its login: over: ") || !o.toolStatus("far").NeedLogin {
		t.Errorf("after the end of the grant the status is\n%s", got)
	}
	o.login(false)
	works("after a third login")
	if s := o.orla("doctor"); !strings.Contains(s.out, "ok    login") {
		t.Errorf("orla doctor says\n%s", s.out)
	}
	if got := o.mustOrla("logout", "far"); got != "far: logged out\n" {
		t.Errorf("orla logout says %q", got)
	}
	if s := o.orla("call", "far--whoami"); s.code != 1 || !strings.Contains(s.err+s.out, "run: orla login far") {
		t.Errorf("after a logout: %d %s%s", s.code, s.out, s.err)
	}
	if got := o.mustOrla("logout", "far"); got != "far: nobody was logged in\n" {
		t.Errorf("orla logout says %q", got)
	}
}

// What orla login is given by mistake.
func TestOrlaLoginMistakes(t *testing.T) {
	t.Parallel()
	far := startLoginServer(t)
	dir := t.TempDir()
	tools := filepath.Join(dir, "tools")
	far.declare(tools, "  auth: {profile: oauth2_authorization_code, scopes: [read]}\n")
	testkit.WriteTool(t, tools, "hello.sh", "#!/bin/sh\necho hello\n")
	testkit.WriteTool(t, tools, "keyed.yaml", "apiVersion: orloj.dev/v1\nkind: McpServer\nmetadata: {name: keyed}\nspec:\n  transport: http\n  endpoint: "+far.url+"/mcp\n  auth: {secretRef: key}\n")
	o := serveThere(t, dir)
	o.waitLog("state", is("far", "STOPPED"))
	if s := o.toolStatus("far"); !strings.Contains(s.Reason, "nobody has logged in; run: orla login far") {
		t.Errorf("a required login: %+v", s)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"login", "fra"}, 1, `did you mean "far"?`},
		{[]string{"login", "hello"}, 1, "is not a remote McpServer"},
		{[]string{"login", "keyed"}, 1, "has credentials in spec.auth (bearer)"},
		{[]string{"login", "far", "other"}, 2, ""},
		{[]string{"login", "far", "--redirect", "https://example.com/"}, 1, "must be like http://127.0.0.1:8765/callback"},
		{[]string{"login", "far", "--client-secret-file", "x"}, 1, "goes with --client-id"},
		{[]string{"login", "far", "--client-id", "x", "--client-secret-file", "x"}, 1, "no such file"},
		{[]string{"login", "far", "--issuer", "https://other.example"}, 1, "the server does not name the issuer https://other.example"},
		{[]string{"logout"}, 2, "wants the name of a remote McpServer"},
		{[]string{"logout", "fra"}, 1, `did you mean "far"?`},
	} {
		if s := o.orla(c.args...); s.code != c.code || !strings.Contains(s.err, c.want) {
			t.Errorf("orla %s ends with %d: %s%s", strings.Join(c.args, " "), s.code, s.out, s.err)
		}
	}
	o.login(false)
	if s := o.orla("call", "far--whoami"); s.code != 0 || s.out != "ann read" {
		t.Errorf("after the login: %d %s%s", s.code, s.out, s.err)
	}
}
