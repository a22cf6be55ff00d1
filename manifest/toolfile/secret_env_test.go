package toolfile_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/toolfile"
)

// SPEC M3: a tool gets secrets by the names of variables, and only those of the Secret with its own name, whoever wrote it.
func TestM3SecretVariables(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "run"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	parse := func(runtime string) (manifest.Tool, error) {
		text := "name: a\nversion: 1.0.0\ndescription: x\nentrypoint: run\nruntime: " + runtime + "\n"
		if err := os.WriteFile(filepath.Join(dir, "tool.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		tool, _, _, err := toolfile.ReadPackage(dir, "tool.yaml", "tool.yaml", nil)
		return tool, err
	}
	tool, err := parse("{mode: capsule, secret_env: [TOKEN, B_2]}")
	want := []manifest.SecretEnv{
		{Name: "TOKEN", Secret: secret.Ref{Namespace: "packages", Name: "a", Key: "TOKEN"}},
		{Name: "B_2", Secret: secret.Ref{Namespace: "packages", Name: "a", Key: "B_2"}},
	}
	if err != nil || !reflect.DeepEqual(tool.Run.SecretEnv, want) {
		t.Errorf("%+v %v", tool.Run.SecretEnv, err)
	}
	for runtime, want := range map[string]string{
		"{secret_env: [A, A]}":             `"A" is there twice`,
		"{secret_env: [A], env: {A: x}}":   `"A" is there twice`,
		"{secret_env: ['other/secret:A']}": "must be 1 to 253",
		"{secret_env: [{name: A}]}":        "secret_env",
	} {
		if _, err := parse(runtime); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", runtime, err)
		}
	}
}
