package wiring

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/doctor"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/service/oauth"
)

// issuerPatience bounds the questions to an issuer and to public_url, each.
const issuerPatience = 10 * time.Second

// ExamineIssuer reports whether the issuer of access tokens can be used: its description, its keys, its
// clock, and what it demands of clients. It returns nil without auth.oauth.
func ExamineIssuer(ctx context.Context, cfg *config.Loaded) []doctor.Finding {
	settings := cfg.Auth.OAuth.Settings()
	if settings.Issuer == "" {
		return nil
	}
	client := newIssuers()
	defer client.Close()
	limited, cancel := context.WithTimeout(ctx, issuerPatience)
	defer cancel()
	asked := time.Now()
	server, keys, err := oauth.Discover(limited, client, settings.Issuer)
	if server == nil {
		return []doctor.Finding{{Check: "oauth_issuer", Level: doctor.Fail, Text: fault.ReasonOf(err), Fix: "curl -v " + doctor.Quote(oauth.Documents(settings.Issuer)[0])}}
	}
	findings := []doctor.Finding{{Check: "oauth_issuer", Level: doctor.OK, Text: settings.Issuer + " describes itself"}}
	switch {
	case err != nil:
		findings = append(findings, doctor.Finding{Check: "oauth_keys", Level: doctor.Fail, Text: fault.ReasonOf(err), Fix: "curl -v " + doctor.Quote(server.Keys)})
	default:
		findings = append(findings, doctor.Finding{Check: "oauth_keys", Level: doctor.OK, Text: terminal.Count(len(keys), "key") + " that can verify tokens"})
	}
	if !server.Date.IsZero() {
		findings = append(findings, issuerClock(server.Date.Sub(asked)))
	}
	return append(findings, examineAudience(ctx, settings), issuerClients(server))
}

// issuerClock compares the clocks. The issuer's is some milliseconds later, and has no fractions of seconds.
func issuerClock(ahead time.Duration) doctor.Finding {
	f := doctor.Finding{Check: "oauth_clock", Level: doctor.OK, Text: "this clock and the issuer's agree"}
	if ahead.Abs() < 5*time.Second {
		return f
	}
	f.Level, f.Text, f.Fix = doctor.Warn, fmt.Sprintf("the issuer's clock differs from this one by %s; up to %s is accepted", ahead.Round(time.Second).Abs(), oauth.Skew), "timedatectl"
	if ahead.Abs() > oauth.Skew {
		f.Level = doctor.Fail
	}
	return f
}

// examineAudience looks at public_url as a client does.
func examineAudience(ctx context.Context, settings oauth.Settings) doctor.Finding {
	audience := settings.Audience
	if audience == "" {
		audience = settings.Resource()
	}
	f := doctor.Finding{Check: "oauth_audience", Level: doctor.OK, Text: "tokens must be for " + audience + " (aud)"}
	warn := func(format string, args ...any) doctor.Finding {
		f.Level, f.Fix = doctor.Warn, "curl -v "+doctor.Quote(settings.MetadataURL())
		f.Text += "; " + fmt.Sprintf(format, args...)
		return f
	}
	if oauth.CheckIssuer(settings.PublicURL) != nil { // the rules are the same
		return warn("public_url is not https://, so that tokens can be read on the way")
	}
	limited, cancel := context.WithTimeout(ctx, issuerPatience)
	defer cancel()
	client := newIssuers()
	defer client.Close()
	body, err := oauth.Fetch(limited, client, settings.MetadataURL())
	var found struct {
		Resource string `json:"resource"`
	}
	switch {
	case err != nil:
		return warn("the metadata cannot be fetched at public_url from here: %s", fault.ReasonOf(err))
	case json.Unmarshal(body, &found) != nil || found.Resource != settings.Resource():
		return warn("%s is not the metadata of this Orla: its resource is %q, not %q", settings.MetadataURL(), found.Resource, settings.Resource())
	}
	return f
}

// issuerClients says whether MCP clients can sign in at an issuer that does not know them.
func issuerClients(server *oauth.Server) doctor.Finding {
	warn := func(format string, args ...any) doctor.Finding {
		return doctor.Finding{Check: "oauth_clients", Level: doctor.Warn, Text: fmt.Sprintf(format, args...)}
	}
	switch {
	case !slices.Contains(server.CodeChallenges, "S256"):
		return warn("the issuer does not announce PKCE (S256 in code_challenge_methods_supported), without which MCP clients refuse to sign in")
	case server.ClientDocuments && !slices.Contains(server.ClientAuth, "none"):
		return warn("the issuer accepts client id metadata documents, but does not announce none in token_endpoint_auth_methods_supported, without which Claude does not use them")
	case server.ClientDocuments:
		return doctor.Finding{Check: "oauth_clients", Level: doctor.OK, Text: "clients sign in by client id metadata documents"}
	case server.Registration != "":
		return doctor.Finding{Check: "oauth_clients", Level: doctor.OK, Text: "clients register themselves, if the issuer lets them; client id metadata documents are not announced"}
	}
	return warn("the issuer announces neither client id metadata documents nor dynamic registration: register each MCP client at the issuer, and give its users the client id")
}
