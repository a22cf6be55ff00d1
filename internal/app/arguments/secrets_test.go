package arguments_test

import (
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/orla-project/orla/internal/app/arguments"
	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/internal/testing/testkit"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/supervisor"
)

// O2: the secrets that are not shown are those of the configuration and of all tools, each from where Orla takes it.
func TestO2TheSecretsOfAConfiguration(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("CREDENTIALS_DIRECTORY", filepath.Join(dir, "credentials"))
	for name, text := range map[string]string{
		"ci.token": "token-of-ci\n", "credentials/bob": "token-of-bob\n", "hook": "whsec_hook\n", "client": "client-secret\n", "headers": "# none\nAuthorization: Bearer of-traces\n",
		"secrets/env": "of-a-variable\n", "secrets/pair": "somebody:password-of-pair\n", "secrets/oauth/client_id": "id-of-oauth\n", "secrets/oauth/client_secret": "secret-of-oauth\n",
		"secrets/pull": "robot:pull-password\n", "secrets/module": "of-a-module\n", "secrets/remote": "of-a-server\n", "secrets/unused": "of-nobody\n",
	} {
		testkit.WriteTool(t, dir, name, text)
	}
	cfg := &config.Loaded{File: filepath.Join(dir, "orla.yaml")}
	cfg.Auth.Tokens = []config.TokenConfig{{Name: "ci", File: "ci.token"}, {Name: "bob", Credential: "bob"}}
	cfg.Auth.OAuth.ClientSecret = "client"
	cfg.Approvals.Webhook.SecretFile, cfg.Tracing.HeadersFile = filepath.Join(dir, "hook"), "headers"
	store := secret.New(secret.Options{Dir: filepath.Join(dir, "secrets")})
	store.Set([]secret.Secret{{Namespace: "default", Name: "declared", Data: map[string]secret.Value{"a": secret.NewValue("declared-a"), "b": secret.NewValue("declared-b")}}})
	ref := func(name string) secret.Ref { return secret.Ref{Namespace: "default", Name: name, Key: "value"} }
	tools := []supervisor.Served{{}, {}, {}, {}, {}}
	tools[0].Tool.Run.SecretEnv = []manifest.SecretEnv{{Name: "A", Secret: ref("env")}, {Name: "B", Secret: ref("env")}, {Name: "C", Secret: ref("absent")}}
	tools[1].Tool.Resource = &manifest.Resource{Auth: manifest.Auth{Profile: manifest.AuthBasic, Secret: ref("pair")}}
	tools[2].Tool.Resource = &manifest.Resource{Auth: manifest.Auth{Profile: manifest.AuthOAuth2, Secret: ref("oauth")}}
	tools[3].Tool.Isolation.PullSecret = ref("pull")
	tools[3].Tool.Resource = &manifest.Resource{WASM: &manifest.WASM{PullSecret: ref("module")}}
	tools[4].Tool.Runtime.Remote = &manifest.Remote{Auth: manifest.Auth{Profile: manifest.AuthBearer, Secret: ref("remote")}}
	values, err := arguments.Secrets(cfg, tools, store)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range values {
		got = append(got, v.Reveal())
	}
	slices.Sort(got)
	want := []string{
		"# none\nAuthorization: Bearer of-traces", "Bearer of-traces", "client-secret", "declared-a", "declared-b", "id-of-oauth", "of-a-module", "of-a-server", "of-a-variable", "of-traces",
		"password-of-pair", "pull-password", "robot:pull-password", "secret-of-oauth", "somebody:password-of-pair", "token-of-bob", "token-of-ci", "whsec_hook",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant\n%q", got, want)
	}

	cfg.Tracing.HeadersFile = "gone"
	if _, err := arguments.Secrets(cfg, tools, store); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Errorf("with a file that cannot be read: %v", err)
	}
	cfg.Tracing.HeadersFile = ""

	many := map[string]secret.Value{}
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		many[key] = secret.NewValue(key + strings.Repeat("x", 60<<10))
	}
	store.Set([]secret.Secret{{Namespace: "default", Name: "many", Data: many}})
	if _, err := arguments.Secrets(cfg, tools, store); err == nil || !strings.Contains(err.Error(), "256 KiB") {
		t.Errorf("of 360 KiB: %v", err)
	}
}

// O2: calls, switches and readers at the same time see arguments of tools that are kept, and of no others.
func TestO2ManyAtOnce(t *testing.T) {
	d := newDesk(t, nil)
	k := arguments.New(arguments.Options{Listed: func(string) bool { return true }, Secrets: func() ([]secret.Value, error) { return nil, nil }, Log: slog.New(slog.DiscardHandler)})
	d.Keeper = k
	defer k.Close()
	observe := k.Observe(d.observe)
	var all sync.WaitGroup
	for _, tool := range []string{"tool1", "tool2", "off"} {
		all.Go(func() {
			for range 500 {
				_, ended := observe(t.Context(), mcpbridge.CallStart{Tool: tool, Args: []byte(`{"n":1}`)})
				ended(mcpbridge.CallEnd{})
			}
		})
		all.Go(func() {
			for range 50 {
				if tool == "off" {
					k.Renew()
				} else if _, err := k.Start(tool, "ada"); err != nil {
					t.Error(err)
				} else if _, err := k.Stop(tool, "ada"); err != nil {
					t.Error(err)
				}
			}
		})
		all.Go(func() {
			for range 50 {
				for _, one := range d.kept() {
					if strings.HasPrefix(one, "off") {
						t.Error(one)
					}
				}
			}
		})
	}
	all.Wait()
	if k.Tools() != nil {
		t.Errorf("%+v", k.Tools())
	}
}
