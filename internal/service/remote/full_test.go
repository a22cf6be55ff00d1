package remote_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/service/auth"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/manifest"
)

// SPEC S2: an answer that a server has filled with its secret is not passed on, and the call
// does not wait for another one.
func TestS2AnAnswerFullOfTheSecretEndsItsCall(t *testing.T) {
	s := script(t, func(w http.ResponseWriter, _ *http.Request, m asked) bool {
		if m.Method != "tools/call" {
			return false
		}
		answer(w, m, result(strings.Repeat("planted-secret ", 20_000)))
		return true
	})
	secrets := secret.New(secret.Options{})
	secrets.Set([]secret.Secret{{Namespace: "default", Name: "key", Data: map[string]secret.Value{"value": secret.NewValue("planted-secret")}}})
	l := connect(t, s.URL, func(o *options) {
		o.auth = auth.New(manifest.Auth{Profile: manifest.AuthBearer, Secret: secret.Ref{Namespace: "default", Name: "key", Key: "value"}}, auth.Options{Secrets: secrets})
	})
	l.offers(1)
	if got, err := l.call("far--t", `{}`, nil); fault.CodeOf(err) != fault.ExecutionFailed || !strings.Contains(err.Error(), "not an answer to it") {
		t.Errorf("the call gives %.200s and %v", got, err)
	}
	if l.log.Has("planted") {
		t.Error("the log has the secret")
	}
}
