package auth_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/service/auth"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/internal/testing/leaks"
	"github.com/orla-project/orla/manifest"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// store returns a Store with the given values of the secret "api".
func store(values map[string]string) *secret.Store {
	s := secret.New(secret.Options{})
	set(s, values)
	return s
}

func set(s *secret.Store, values map[string]string) {
	data := map[string]secret.Value{}
	for key, text := range values {
		data[key] = secret.NewValue(text)
	}
	s.Set([]secret.Secret{{Namespace: "default", Name: "api", Data: data}})
}

func profile(p manifest.AuthProfile) manifest.Auth {
	return manifest.Auth{
		Profile: p, Secret: secret.Ref{Namespace: "default", Name: "api", Key: "value"},
		HeaderName: "X-Api-Key",
	}
}

// SPEC-TOOLS 5.2: what each profile shows, as a header and in the contract.
func TestProfiles(t *testing.T) {
	for _, c := range []struct {
		profile            manifest.AuthProfile
		secret             string
		header, value      string
		typ, contractToken string
	}{
		{manifest.AuthBearer, "tok-123456", "Authorization", "Bearer tok-123456", "bearer", "tok-123456"},
		{manifest.AuthAPIKey, "key-123456", "X-Api-Key", "key-123456", "api_key_header", "key-123456"},
		{manifest.AuthBasic, "me:pass:word", "Authorization", "Basic bWU6cGFzczp3b3Jk", "basic", "bWU6cGFzczp3b3Jk"},
		{manifest.AuthBasic, ":only", "Authorization", "Basic Om9ubHk=", "basic", "Om9ubHk="},
		{manifest.AuthBearer, "grüße\tund mehr", "Authorization", "Bearer grüße\tund mehr", "bearer", "grüße\tund mehr"},
	} {
		s := auth.New(profile(c.profile), auth.Options{Secrets: store(map[string]string{"value": c.secret})})
		got, err := s.Credentials(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", c.profile, err)
		}
		h := http.Header{"Authorization": {"somebody else's"}}
		got.Apply(h)
		if h.Get(c.header) != c.value {
			t.Errorf("%s: got %v", c.profile, h)
		}
		if typ, token := got.Contract(); typ != c.typ || token != c.contractToken {
			t.Errorf("%s: the contract gets %q, %q", c.profile, typ, token)
		}
		echo := "you sent " + h.Get(c.header) + " and " + c.secret + " and " + base64.StdEncoding.EncodeToString([]byte(c.secret))
		if red := got.Redact(echo); strings.Contains(red, c.secret) || strings.Contains(red, c.contractToken) {
			t.Errorf("%s: Redact leaves %q", c.profile, red)
		}
		for _, shown := range []string{fmt.Sprintf("%v", got), fmt.Sprintf("%+v", got), fmt.Sprintf("%#v", got)} {
			if strings.Contains(shown, c.secret) || strings.Contains(shown, c.contractToken) {
				t.Errorf("%s: it prints as %s", c.profile, shown)
			}
		}
	}
}

func TestBasicRedactsThePasswordAlone(t *testing.T) {
	s := auth.New(profile(manifest.AuthBasic), auth.Options{Secrets: store(map[string]string{"value": "someone:the-password"})})
	got, err := s.Credentials(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if red := got.Redact("wrong password the-password for someone"); red != "wrong password [redacted] for someone" {
		t.Errorf("got %q", red)
	}
}

// Without auth there is nothing to show, and nothing to go wrong.
func TestNoAuth(t *testing.T) {
	s := auth.New(manifest.Auth{}, auth.Options{})
	if s != nil {
		t.Fatalf("got %v", s)
	}
	h := http.Header{}
	attempts := 0
	err := s.Do(t.Context(), func(c auth.Credentials) error {
		attempts++
		c.Apply(h)
		if typ, token := c.Contract(); typ != "" || token != "" || len(h) != 0 || c.Redact("text") != "text" {
			t.Errorf("got %q, %q, %v", typ, token, h)
		}
		return fault.New(fault.AuthInvalid, "401")
	})
	if fault.CodeOf(err) != fault.AuthInvalid || attempts != 1 {
		t.Errorf("got %v after %d attempts", err, attempts)
	}
}

// failing asserts secret_resolution_failed of a call that was not sent.
func failing(t *testing.T, err error, retryable bool, secrets ...string) fault.Error {
	t.Helper()
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || f.Code != fault.SecretResolutionFailed || f.Retryable() != retryable || !f.Unsent {
		t.Fatalf("got %v, want secret_resolution_failed, retryable %v, unsent", err, retryable)
	}
	for _, text := range secrets {
		if text != "" && strings.Contains(f.Error(), text) {
			t.Errorf("the error shows a secret: %v", f)
		}
	}
	return *f
}

// SPEC-TOOLS 5.2: what cannot be a header is refused, and not shown.
func TestUnfitSecrets(t *testing.T) {
	for _, c := range []struct {
		profile manifest.AuthProfile
		text    string
		want    string
	}{
		{manifest.AuthBearer, "", "empty"},
		{manifest.AuthBearer, "se\ncret", "line break"},
		{manifest.AuthBearer, "secret\r\nX-Evil: 1", "line break"},
		{manifest.AuthAPIKey, "se\x00cret", "control character"},
		{manifest.AuthAPIKey, "se\x7fcret", "control character"},
		{manifest.AuthAPIKey, "secret\n", "line break"},
		{manifest.AuthBasic, "no-colon-here", "colon"},
		{manifest.AuthBasic, "", "empty"},
	} {
		s := auth.New(profile(c.profile), auth.Options{Secrets: store(map[string]string{"value": c.text})})
		ran := false
		err := s.Do(t.Context(), func(auth.Credentials) error { ran = true; return nil })
		if f := failing(t, err, false, c.text); !strings.Contains(f.Reason, c.want) || ran {
			t.Errorf("%s %q: got %q, ran %v", c.profile, c.text, f.Reason, ran)
		}
	}
	s := auth.New(profile(manifest.AuthBearer), auth.Options{Secrets: secret.New(secret.Options{})})
	_, err := s.Credentials(t.Context())
	failing(t, err, false)
}

// SPEC-TOOLS 5.3: a rotated secret works at the next attempt.
func TestRotation(t *testing.T) {
	secrets := store(map[string]string{"value": "one-secret"})
	s := auth.New(profile(manifest.AuthBearer), auth.Options{Secrets: secrets})
	for _, want := range []string{"one-secret", "two-secret", "three-secret"} {
		set(secrets, map[string]string{"value": want})
		err := s.Do(context.Background(), func(c auth.Credentials) error {
			if _, token := c.Contract(); token != want {
				return fmt.Errorf("got %q, want %q", token, want)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}
