package secret_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/service/secret"
)

const planted = "s3cr3t-of-the-test"

// SPEC-TOOLS 5.3: a secret is [redacted] however it is shown.
func TestValueIsNeverShown(t *testing.T) {
	value := secret.NewValue(planted)
	type holder struct {
		Name   string
		Secret secret.Value
		Inner  *secret.Value
		Many   []secret.Value
		Keyed  map[string]secret.Value
	}
	type closed struct { // fmt does not ask what is in unexported fields
		value secret.Value
		inner struct{ many []secret.Value }
	}
	shut := closed{value: value, inner: struct{ many []secret.Value }{[]secret.Value{value}}}
	held := holder{"n", value, &value, []secret.Value{value}, map[string]secret.Value{"k": value}}
	resource := secret.Secret{Name: "api", Data: map[string]secret.Value{"value": value}}

	for _, what := range []any{value, &value, held, &held, shut, &shut, resource, &resource, []any{value}, map[secret.Value]int{value: 1}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%10s"} {
			hidden(t, fmt.Sprintf("Sprintf(%s, %T)", verb, what), fmt.Sprintf(verb, what))
		}
		hidden(t, "Sprint", fmt.Sprint(what))
		text, err := json.Marshal(what)
		if err != nil {
			t.Errorf("json.Marshal(%T): %v", what, err)
		}
		hidden(t, "json.Marshal", string(text))
		for name, handler := range map[string]func(*bytes.Buffer) slog.Handler{
			"text": func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
			"json": func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
		} {
			var b bytes.Buffer
			slog.New(handler(&b)).With("with", what).Info("m", "what", what, slog.Group("g", "what", what))
			hidden(t, "slog "+name, b.String())
		}
	}
	err := fmt.Errorf("using %v: %w", value, errors.New("x"))
	hidden(t, "an error", err.Error())
	func() {
		defer func() { hidden(t, "a panic", fmt.Sprint(recover())) }()
		panic(held)
	}()
	if value.Reveal() != planted {
		t.Errorf("Reveal() = %q", value.Reveal())
	}
	if value != secret.NewValue(planted) || value == secret.NewValue("other") {
		t.Error("== does not compare the texts")
	}
}

func hidden(t *testing.T, how, text string) {
	t.Helper()
	for _, form := range []string{planted, fmt.Sprintf("%x", planted), fmt.Sprintf("%X", planted)} {
		if strings.Contains(text, form) {
			t.Errorf("%s shows the secret: %s", how, text)
		}
	}
}

// SPEC-TOOLS 5.1: the short form of a reference.
func TestRefString(t *testing.T) {
	for want, ref := range map[string]secret.Ref{
		"api":            {Namespace: "default", Name: "api", Key: "value"},
		"api:token":      {Namespace: "default", Name: "api", Key: "token"},
		"prod/api":       {Namespace: "prod", Name: "api", Key: "value"},
		"prod/api:token": {Namespace: "prod", Name: "api", Key: "token"},
	} {
		if got := ref.String(); got != want {
			t.Errorf("%#v: got %q, want %q", ref, got, want)
		}
	}
}
