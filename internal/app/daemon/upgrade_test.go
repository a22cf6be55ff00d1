package daemon

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/app/upgrade"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// SPEC Q1: a program that would end at its start, since it cannot use a file that the configuration names, says so while the
// one before still serves.
func TestQ1AFileThatCannotBeUsedRefusesAnUpgrade(t *testing.T) {
	dir := t.TempDir()
	testkit.WriteTool(t, dir, "token", strings.Repeat("x", 43))
	testkit.WriteTool(t, dir, "key", "whsec_"+strings.Repeat("x", 44))
	testkit.WriteTool(t, dir, "headers", "Api-Key: x\n")
	for _, c := range []struct{ text, key, file string }{
		{"auth: {tokens: [{name: ann, file: FILE}]}", "auth.tokens[0].file", "token"},
		{"auth: {oauth: {issuer: 'https://a.example', public_url: 'https://b.example', console_client_id: c, console_client_secret_file: FILE}}", "auth.oauth.console_client_secret_file", "token"},
		{"approvals: {webhook: {url: 'https://a.example', secret_file: FILE}}", "approvals.webhook.secret_file", "key"},
		{"tracing: {endpoint: 'https://a.example', headers_file: FILE}", "tracing.headers_file", "headers"},
	} {
		for file, ok := range map[string]bool{c.file: true, "absent": false} {
			path := testkit.WriteTool(t, dir, "orla.yaml", strings.ReplaceAll(c.text, "FILE", file)+"\n")
			from := &config.Loader{Path: path, Home: dir}
			next, err := serve(upgrade.Checking(t.Context()), from, terminal.Streams{Out: io.Discard, Err: io.Discard}, upgrade.Program{}, nil)
			failed, invalid := errors.AsType[*exit.Error](err)
			if invalid = invalid && failed.Code == exit.Invalid && strings.Contains(err.Error(), ": "+c.key+": "); next != nil || ok && err != nil || !ok && !invalid {
				t.Errorf("%s with the file %s: %v", c.key, file, err)
			}
		}
	}
}
