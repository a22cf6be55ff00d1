package secret_test

import (
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/service/secret"
)

// SPEC-TOOLS 5.1: a secretRef is [namespace/]name[:key], and its key is "value".
func TestT51ParseRef(t *testing.T) {
	for text, want := range map[string]secret.Ref{
		"api-key":         {Namespace: "team", Name: "api-key", Key: "value"},
		"api.key_1:token": {Namespace: "team", Name: "api.key_1", Key: "token"},
		"other/api-key":   {Namespace: "other", Name: "api-key", Key: "value"},
		"other/api-key:k": {Namespace: "other", Name: "api-key", Key: "k"},
		"a:.dockerconfig": {Namespace: "team", Name: "a", Key: ".dockerconfig"},
	} {
		got, err := secret.ParseRef(text, "team")
		if err != nil || got != want {
			t.Errorf("%q: got %+v, %v; want %+v", text, got, err, want)
		}
	}
	if got, err := secret.ParseRef("a", ""); err != nil || got.Namespace != secret.DefaultNamespace || got.String() != "a" {
		t.Errorf("without a namespace: got %+v, %v", got, err)
	}
}

// A secret that was pasted where its name belongs is not repeated, and no name
// leads out of a folder.
func TestT51BadRefs(t *testing.T) {
	for _, text := range []string{
		"", "/", ":", "a/", "/a", "a:", ":k", "a/b/c", "a:b:c", "a b", "sk-live+12345/67890==", "../etc", "..", ".", "a/../b", "a:../k", "a:..", "../a",
		strings.Repeat("x", 254), "é", "a\x00", "a\n",
	} {
		_, err := secret.ParseRef(text, "")
		if err == nil {
			t.Errorf("%q is taken", text)
		} else if len(text) > 3 && strings.Contains(err.Error(), text) {
			t.Errorf("%q is in %v", text, err)
		}
	}
	if err := secret.CheckWord("a/b"); err == nil || secret.CheckWord("a.b") != nil {
		t.Errorf("got %v", err)
	}
}

func TestVariable(t *testing.T) {
	for text, want := range map[string]string{"git-hub": "ORLOJ_SECRET_GIT_HUB", "db:Password": "ORLOJ_SECRET_DB_PASSWORD", "x:value": "ORLOJ_SECRET_X"} {
		ref, err := secret.ParseRef(text, "")
		if got := ref.Variable(); err != nil || got != want {
			t.Errorf("%s is looked for in %s, want %s (%v)", text, got, want, err)
		}
	}
}
