package access

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

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
