package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// SPEC-TOOLS 8.7: the keys of approvals, and what is wrong with values of them.
func TestT87Configuration(t *testing.T) {
	const hook = "webhook: {url: https://example.com/hook, secret_file: key"
	for text, want := range map[string]string{
		"{}":                                "",
		"{ttl: 1s, same_user: true}":        "",
		"{by_login: true}":                  "",
		"{by_login: ann}":                   "approvals.by_login: ",
		"{ttl: 168h}":                       "",
		"{ttl: 0}":                          "approvals.ttl: must be from 1s to",
		"{ttl: 999ms}":                      "approvals.ttl: must be from 1s to",
		"{ttl: 169h}":                       "approvals.ttl: must be from 1s to",
		"{ttl: -1s}":                        "approvals.ttl: must not be negative",
		"{" + hook + "}}":                   "",
		"{" + hook + ", arguments: true}}":  "",
		"{" + hook + ", secret: x}}":        "approvals.webhook.secret: unknown",
		"{webhook: {secret_file: key}}":     "approvals.webhook.url: is required",
		"{webhook: {arguments: true}}":      "approvals.webhook.url: is required",
		"{webhook: {url: https://x.y/z}}":   "approvals.webhook: wants either secret_file or secret_credential",
		"{approvers: [client]}":             "approvals.approvers: unknown",
		"{webhook: {url: ftp://x.y}}":       "approvals.webhook.url: must be a URL that begins with",
		"{webhook: {url: https://u:p@x.y}}": "approvals.webhook.url: must not have a user or a password",
		"{webhook: {url: 'http://169.254.169.254/', secret_file: key}}":           "approvals.webhook.url: leads to an address that is link-local",
		"{webhook: {url: https://x.y, secret_file: key, secret_credential: key}}": "approvals.webhook: wants either",
	} {
		path := filepath.Join(t.TempDir(), "orla.yaml")
		if err := os.WriteFile(path, []byte("approvals: "+text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := (&Loader{Path: path}).Load()
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: got %v, want %s", text, err, want)
		case want == "" && !strings.Contains(text, "ttl") && time.Duration(cfg.Approvals.TTL) != 10*time.Minute:
			t.Errorf("%s: the ttl is %s", text, cfg.Approvals.TTL)
		}
	}
}

// SPEC-TOOLS 8.7: what orla config shows of a webhook has no path and no query, which may be secrets.
func TestT87TheAddressOfAWebhookIsNotShown(t *testing.T) {
	c := Defaults()
	c.Approvals.Webhook.URL = "https://hooks.example.com/T1/secret?key=x"
	if got := Text(Value(&c, "approvals")); got != "ttl 10m, webhook https://hooks.example.com" {
		t.Errorf("it is shown as %s", got)
	}
}
