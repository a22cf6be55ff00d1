package capsule

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/manifest"
)

// SPEC-TOOLS 3.5, 5.3: a secret becomes a variable at each start, wins over what
// else sets it, and a rotated one is in the next process.
func TestSecretsAreResolvedAtEachStart(t *testing.T) {
	ref := secret.Ref{Namespace: "default", Name: "github", Key: "token"}
	text := "one"
	c, err := New(manifest.Tool{
		Name: "github", Path: "/bin/true", Dir: "/",
		Run: manifest.Run{
			Env:       map[string]string{"GITHUB_TOKEN": "set", "OTHER": "stays"},
			SecretEnv: []manifest.SecretEnv{{Name: "GITHUB_TOKEN", Secret: ref}},
		},
	}, Options{
		Environ: []string{"GITHUB_TOKEN=inherited", "PATH=/bin"},
		Secrets: func(asked secret.Ref) (secret.Value, error) {
			if asked != ref {
				t.Errorf("asked for %s", asked)
			}
			if text == "" {
				return secret.Value{}, fault.New(fault.SecretResolutionFailed, "secret %q: it is not there", asked)
			}
			return secret.NewValue(text), nil
		},
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, text = range []string{"one", "two", "line 1\nline 2", "a=b"} {
		spec, err := c.spec()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, kv := range append(spec.Env, spec.Secrets...) {
			if strings.HasPrefix(kv, "GITHUB_TOKEN=") {
				got = append(got, kv)
			}
		}
		if !slices.Equal(got, []string{"GITHUB_TOKEN=" + text}) || len(spec.Secrets) != 1 || !slices.Contains(spec.Env, "OTHER=stays") || !slices.Contains(spec.Env, "PATH=/bin") {
			t.Errorf("with %q the environment is %q and %q", text, spec.Env, spec.Secrets)
		}
	}
	for _, text = range []string{"", "nul\x00inside"} {
		_, err := c.spec()
		if f := fault.From(err); f.Code != fault.StartFailed || !strings.Contains(f.Reason, `"github:token"`) || !strings.Contains(f.Reason, "GITHUB_TOKEN") || strings.Contains(f.Error(), "nul\x00") {
			t.Errorf("with %q: got %v", text, err)
		}
	}
}
