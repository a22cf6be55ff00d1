package config

import (
	"net/url"
	"time"

	"github.com/orla-project/orla/internal/call/approvals"
	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/internal/service/address"
	"github.com/orla-project/orla/internal/service/outbound"
)

// ApprovalsConfig says how people decide about calls (SPEC-TOOLS 8.7).
type ApprovalsConfig struct {
	TTL      yamldoc.Duration       `json:"ttl,omitempty" jsonschema:"How long a call waits for somebody to decide, and how long an approval is good: 1s to 168h. Default 10m."`
	SameUser bool                   `json:"same_user,omitempty" jsonschema:"Let the user that runs Orla approve calls, and not only root. Only where no agent has a shell as that user. Default false."`
	ByLogin  bool                   `json:"by_login,omitempty" jsonschema:"Let who logged in to the console at the issuer of access tokens approve calls without a passkey. A browser that is logged in there already may finish a login with no person at it, also for a program. Default false."`
	Webhook  ApprovalsWebhookConfig `json:"webhook,omitzero" jsonschema:"Where approvals are announced."`
}

// ApprovalsWebhookConfig says where approvals are announced.
type ApprovalsWebhookConfig struct {
	URL              string `json:"url,omitempty" jsonschema:"Address that is told of calls that need an approval, and of decisions, by signed POST requests. Default: none."`
	SecretFile       string `json:"secret_file,omitempty" jsonschema:"File that holds the secret of the signatures, whsec_ and base64 of 24 to 64 bytes; read again on SIGHUP. A webhook needs it or secret_credential. Default: none."`
	SecretCredential string `json:"secret_credential,omitempty" jsonschema:"Name of a systemd credential (LoadCredential=) that holds the secret. Default: none."`
	Arguments        bool   `json:"arguments,omitempty" jsonschema:"Send the arguments of calls as well, and not only their hash. Default false."`
}

func approvalsDefaults() ApprovalsConfig {
	return ApprovalsConfig{TTL: yamldoc.Duration(approvals.DefaultTTL)}
}

// approvals checks the section approvals, which can only be set in a file.
func (v *verdict) approvals() {
	a := v.Approvals
	if ttl := time.Duration(a.TTL); ttl < time.Second || ttl > approvals.MaxTTL {
		v.doc.Faultf("approvals.ttl", "must be from 1s to %dh, got %s", int(approvals.MaxTTL.Hours()), a.TTL)
	}
	w := a.Webhook
	if w.URL == "" {
		if w.SecretFile != "" || w.SecretCredential != "" || w.Arguments {
			v.doc.Faultf("approvals.webhook.url", "is required")
		}
		return
	}
	if err := address.CheckURL(w.URL); err != nil {
		v.doc.Faultf("approvals.webhook.url", "%v", err)
	}
	if (w.SecretFile == "") == (w.SecretCredential == "") {
		v.doc.Faultf("approvals.webhook", "wants either secret_file or secret_credential")
	}
}

// text is for people. A path or a query of the address may be a secret.
func (a ApprovalsConfig) text() string {
	text := "ttl " + a.TTL.String()
	if a.SameUser {
		text += ", same_user"
	}
	if a.ByLogin {
		text += ", by_login"
	}
	if u, err := url.Parse(a.Webhook.URL); a.Webhook.URL != "" && err == nil {
		text += ", webhook " + outbound.Origin(u)
	}
	return text
}
