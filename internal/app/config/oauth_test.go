package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// SPEC N3: the keys of auth.oauth, and what is wrong with values of them.
func TestN3Configuration(t *testing.T) {
	const good = "issuer: https://login.example.com/realms/main, public_url: https://orla.example.com"
	for text, want := range map[string]string{
		"{" + good + "}": "",
		"{" + good + ", audience: 'api://x', scopes: [a, 'api://x/b'], subject_claim: oid, groups_claim: realm_access.roles}": "",
		"{issuer: 'http://127.0.0.1:8081', public_url: 'http://localhost:8080/'}":                                             "",
		"{}":                              "",
		"{public_url: https://x.example}": "auth.oauth.issuer: is required",
		"{console_client_id: a}":          "auth.oauth.issuer: is required",
		"{" + good + ", console_client_id: 'a b'}":      "auth.oauth.console_client_id: must not contain spaces",
		"{" + good + ", console_client_secret_file: x}": "auth.oauth.console_client_id: is required with a secret",
		"{scopes: [a]}":                                                          "auth.oauth.issuer: is required",
		"{issuer: https://x.example}":                                            "auth.oauth.public_url: is required with an issuer",
		"{issuer: login, public_url: https://x":                                  "", // not YAML
		"{issuer: login.example.com, public_url: https://x.example}":             "auth.oauth.issuer: is not an address such as",
		"{issuer: http://login.example.com, public_url: https://x.example}":      "auth.oauth.issuer: must begin with https://",
		"{issuer: https://u:p@login.example.com, public_url: https://x.example}": "auth.oauth.issuer: is not an address such as",
		"{issuer: https://login.example.com, public_url: https://x.example/mcp}": "auth.oauth.public_url: must not end with /mcp",
		"{issuer: https://login.example.com, public_url: 'https://x.example?a'}": "auth.oauth.public_url: is not an address such as",
		"{issuer: https://login.example.com, public_url: 'https://u@x.example'}": "auth.oauth.public_url: is not an address such as",
		"{" + good + ", scopes: [a b]}":                                          `auth.oauth.scopes: "a b" is not a scope`,
		"{" + good + ", scopes: ['a\"']}":                                        "auth.oauth.scopes: ",
		"{" + good + ", scopes: ['']}":                                           "auth.oauth.scopes: ",
		"{" + good + ", audience: 'a b'}":                                        "auth.oauth.audience: must not contain spaces",
		"{" + good + ", subject: sub}":                                           "auth.oauth.subject: unknown",
	} {
		path := filepath.Join(t.TempDir(), "orla.yaml")
		if err := os.WriteFile(path, []byte("auth:\n  oauth: "+text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := (&Loader{Path: path}).Load()
		switch {
		case !strings.HasSuffix(text, "}"):
			if err == nil {
				t.Errorf("%s is accepted", text)
			}
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: got %v, want %s", text, err, want)
		case want == "" && cfg.Auth.Required() != strings.Contains(text, "issuer"):
			t.Errorf("%s: a token is required: %t", text, cfg.Auth.Required())
		}
	}
}

// SPEC N3, G8: an Orla with an issuer may listen beyond loopback, and no static token can have the name
// of a subject.
func TestN3AuthenticationByAnIssuer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orla.yaml")
	load := func(text string) (string, error) {
		if err := os.WriteFile(path, []byte("listen: 0.0.0.0\nauth:\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := (&Loader{Path: path}).Load()
		return Text(Value(&cfg.Config, "auth")), err
	}
	const issuer = "  oauth: {issuer: https://login.example.com, public_url: https://x.example}\n"
	if shown, err := load(issuer); err != nil || shown != "oauth:https://login.example.com" {
		t.Errorf("with an issuer: %s, %v", shown, err)
	}
	if _, err := load("  oauth: {}\n"); err == nil || !strings.Contains(err.Error(), "neither auth.tokens nor auth.oauth is set") {
		t.Errorf("without one: %v", err)
	}
	if _, err := load(issuer + "  tokens: [{name: 'oauth:ann', file: x}]\n"); err == nil || !strings.Contains(err.Error(), "must not begin with oauth:") {
		t.Errorf("a token with the name of a subject: %v", err)
	}
}

// SPEC-TOOLS 8.7: no token has the name of callers that need none, also without callers. Rules treat stdio as who started Orla:
// such a caller may approve its own calls.
func TestT87NoTokenIsNamedAsStdio(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orla.yaml")
	for _, name := range append(OwnCallers, "STDIO", "local") {
		if err := os.WriteFile(path, []byte("auth:\n  tokens: [{name: "+name+", file: x}]\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := (&Loader{Path: path}).Load(); err == nil || !strings.Contains(err.Error(), "is the name of callers without a token") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// SPEC-TOOLS 8.7: no token has a name such as records of approvals have for somebody without one: it would be that of another in
// the audit log, and the passkeys of that person would be good for it.
func TestT87NoTokenIsNamedAsADecider(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orla.yaml")
	for name, taken := range map[string]bool{"user:root(0)": true, "User:1000": true, "client of ann": true, "user": false, "clients": false, "a user:b": false} {
		if err := os.WriteFile(path, []byte("auth:\n  tokens: [{name: '"+name+"', file: x}]\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := (&Loader{Path: path}).Load(); taken != (err != nil) || err != nil && !strings.Contains(err.Error(), "must not begin with user: or client of") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// SPEC N1: the name of a token is what people read in rules, in the log and beside an approval, so nothing in it is unseen.
func TestN1ANameOfATokenIsSeen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orla.yaml")
	for name, taken := range map[string]bool{`a\nb`: true, `a\u202eb`: true, `a\u200b`: true, `a\u2028b`: true, " a": true, "a ": true, "a b": false, "josé": false, "名": false} {
		if err := os.WriteFile(path, []byte("auth:\n  tokens: [{name: \""+name+"\", file: x}]\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := (&Loader{Path: path}).Load(); taken != (err != nil) || err != nil && !strings.Contains(err.Error(), "must not have characters that nobody sees") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// SPEC-TOOLS 8.4: names of callers are compared in one Unicode form. Roles and limits of an entry are for the same callers, and two
// entries for names that look alike are one too many.
func TestT84NamesOfCallersHaveOneForm(t *testing.T) {
	const composed, decomposed = "jos\u00e9", "jose\u0301"
	load := func(text string) (*Loaded, error) {
		path := filepath.Join(t.TempDir(), "orla.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return (&Loader{Path: path}).Load()
	}
	cfg, err := load("auth:\n  tokens: [{name: " + decomposed + ", file: x}]\ncallers:\n  - {name: " + decomposed + "}\n  - {group: " + decomposed + ", console: [viewer]}\n")
	if err != nil {
		t.Fatal(err)
	}
	if got := []string{cfg.Auth.Tokens[0].Name, cfg.Callers[0].Name, cfg.Callers[1].Group}; !slices.Equal(got, slices.Repeat([]string{composed}, 3)) {
		t.Errorf("read %+q", got)
	}
	if roles := cfg.ConsoleRoles("x", []string{composed}); len(roles) != 1 {
		t.Errorf("roles on the page: %v", roles)
	}
	for _, text := range []string{
		"callers:\n  - {name: " + composed + "}\n  - {name: " + decomposed + "}\n",
		"callers:\n  - {group: " + composed + "}\n  - {group: " + decomposed + "}\n",
		"auth:\n  tokens: [{name: " + composed + ", file: x}, {name: " + decomposed + ", file: y}]\n",
	} {
		if _, err := load(text); err == nil || !strings.Contains(err.Error(), "is there twice") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
