package access

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/auth"

	"github.com/orla-project/orla/internal/app/config"
)

// SPEC N1: a token is that of one caller: what is set for the other would hold for no call. One caller may have two.
func TestN1ATokenIsOfOneCaller(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a": "0123456789abcdef", "b": "fedcba9876543210", "c": " 0123456789abcdef\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		tokens []config.TokenConfig
		want   string // "" for no error
	}{
		{[]config.TokenConfig{{Name: "ann", File: "a"}, {Name: "bob", File: "b"}}, ""},
		{[]config.TokenConfig{{Name: "ann", File: "a"}, {Name: "ann", File: "b"}}, ""},
		{[]config.TokenConfig{{Name: "ann", File: "a"}, {Name: "ann", File: "c"}}, ""},
		{[]config.TokenConfig{{Name: "ann", File: "a"}, {Name: "eve", File: "b"}, {Name: "bob", File: "c"}}, `auth.tokens[2].file: ` + filepath.Join(dir, "c") + ` holds the token of "ann" as well`},
	} {
		cfg := &config.Loaded{File: filepath.Join(dir, "orla.yaml")}
		cfg.Auth.Tokens = c.tokens
		_, _, err := Tokens(cfg)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.tokens, err, c.want)
		}
	}
}

// SPEC G8: a token is read from a file or a systemd credential, and each that cannot be one has an error that says what to do.
func TestG8TokensAreReadFromFiles(t *testing.T) {
	dir, credentials := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{
		filepath.Join(dir, "good"): "\n0123456789abcdef \n", filepath.Join(dir, "short"): "0123456789abcde\n", filepath.Join(dir, "two"): "0123456789abcdef fedcba9876543210",
		filepath.Join(credentials, "good"): "credential-0123456789", filepath.Join(dir, "lines"): "0123456789abcdef\nfedcba9876543210",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		token       config.TokenConfig
		credentials string
		accepts     string
		want        string // the error
	}{
		{config.TokenConfig{File: "good"}, "", "0123456789abcdef", ""},
		{config.TokenConfig{File: filepath.Join(dir, "good")}, "", "0123456789abcdef", ""},
		{config.TokenConfig{Credential: "good"}, credentials, "credential-0123456789", ""},
		{config.TokenConfig{Credential: "good"}, "", "", "set LoadCredential= in the unit"},
		{config.TokenConfig{Credential: "../" + filepath.Base(dir) + "/good"}, credentials, "", "set LoadCredential= in the unit"},
		{config.TokenConfig{Credential: "absent"}, credentials, "", "there is no systemd credential \"absent\"; set LoadCredential= in the unit"},
		{config.TokenConfig{File: "absent"}, "", "", "to make it: openssl rand"},
		{config.TokenConfig{File: "short"}, "", "", "at least 16 characters"},
		{config.TokenConfig{File: "two"}, "", "", "no spaces"},
		{config.TokenConfig{File: "lines"}, "", "", "no spaces"},
		{config.TokenConfig{File: os.DevNull}, "", "", "at least 16 characters"},
	} {
		t.Setenv("CREDENTIALS_DIRECTORY", c.credentials)
		cfg := &config.Loaded{File: filepath.Join(dir, "orla.yaml")}
		c.token.Name = "ann"
		cfg.Auth.Tokens = []config.TokenConfig{c.token}
		verify, callers, err := Tokens(cfg)
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), "auth.tokens[0].") || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "0123456789") {
				t.Errorf("%+v: %v; want %s", c.token, err, c.want)
			}
			continue
		}
		if err != nil || len(callers) != 1 || strings.Contains(callers["ann"], c.accepts) {
			t.Fatalf("%+v: %q, %v", c.token, callers, err)
		}
		if info, err := verify(t.Context(), c.accepts, nil); err != nil || info.UserID != "ann" {
			t.Errorf("%+v: %+v, %v", c.token, info, err)
		}
		for _, other := range []string{"", c.accepts + "\n", c.accepts[1:], strings.ToUpper(c.accepts)} {
			if info, err := verify(t.Context(), other, nil); !errors.Is(err, auth.ErrInvalidToken) || info != nil {
				t.Errorf("%q is a token of %+v, %v", other, info, err)
			}
		}
	}
	if verify, callers, err := Tokens(&config.Loaded{}); verify != nil || callers != nil || err != nil {
		t.Errorf("without tokens: %v, %v", callers, err)
	}
}

// SPEC N2, H2: what a caller has ends if one of its tokens is another. A token that is not accepted yet cannot be hidden in the log.
func TestN2AnotherTokenIsNoticed(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a", "0123456789abcdef")
	write("b", "fedcba9876543210")
	write("c", "another-0123456789")
	cfg := &config.Loaded{File: filepath.Join(dir, "orla.yaml")}
	cfg.Auth.Tokens = []config.TokenConfig{{Name: "ann", File: "a"}, {Name: "ann", File: "b"}, {Name: "bob", File: "c"}}
	verify, accepted, err := Tokens(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]string{"0123456789abcdef": "ann", "fedcba9876543210": "ann", "another-0123456789": "bob"} {
		if info, err := verify(t.Context(), token, nil); err != nil || info.UserID != want {
			t.Errorf("%s: %+v, %v", token, info, err)
		}
	}
	accepted["oauth:"] = "an issuer"
	if err := Unchanged(cfg, accepted); err != nil {
		t.Errorf("nothing has changed: %v", err)
	}
	write("a", " 0123456789abcdef\n")
	if err := Unchanged(cfg, accepted); err != nil {
		t.Errorf("the same token: %v", err)
	}
	for _, name := range []string{"a", "b", "c"} {
		before, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		write(name, "changed-0123456789")
		who := map[string]string{"a": `"ann"`, "b": `"ann"`, "c": `"bob"`}[name]
		if err := Unchanged(cfg, accepted); err == nil || !strings.Contains(err.Error(), who) || !strings.Contains(err.Error(), "orla reload") {
			t.Errorf("another token of %s: %v", who, err)
		}
		write(name, string(before))
	}
	write("a", "short")
	if err := Unchanged(cfg, accepted); err == nil || !strings.Contains(err.Error(), "at least 16") {
		t.Errorf("a token that is not one: %v", err)
	}
	cfg.Auth.Tokens = append(cfg.Auth.Tokens[1:], config.TokenConfig{Name: "eve", File: "b"})
	cfg.Auth.Tokens = cfg.Auth.Tokens[1:]
	if err := Unchanged(cfg, accepted); err == nil || !strings.Contains(err.Error(), `"eve"`) {
		t.Errorf("a new caller: %v", err)
	}
}
