package claim_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/supervisor/claim"
)

// written keeps claims, and returns the file.
func written(t *testing.T, claims map[claim.Claim][]string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "claims.json")
	synctest.Test(t, func(t *testing.T) {
		f := claim.NewFile(path, func() map[claim.Claim][]string { return claims }, slog.New(slog.DiscardHandler))
		f.Note()
		over, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_ = f.Serve(over) // until then
	})
	return path
}

// SPEC N2: whatever names a capsule chooses for what it offers, those of others are not forgotten.
func TestN2ACapsuleMakesOrlaForgetNothingOfOthers(t *testing.T) {
	const some = 2000
	for name, uri := range map[string]string{"large": strings.Repeat("x", 10_000), "escaped": strings.Repeat("<", 3_000)} {
		t.Run(name, func(t *testing.T) {
			its := claim.Claim{Sort: claim.Tool, Key: "look"}
			claims := map[claim.Claim][]string{its: {"zz", "aa"}, {Sort: claim.Provider, Key: "zz"}: {"zz"}}
			for i := range some {
				claims[claim.Claim{Sort: claim.Resource, Key: fmt.Sprintf("x:%d%s", i, uri)}] = []string{"aa"}
			}
			got, err := claim.Read(written(t, claims))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got[its], []string{"zz", "aa"}) || got[claim.Claim{Sort: claim.Provider, Key: "zz"}] == nil {
				t.Errorf("of %d claims %d are kept, and look is that of %q", len(claims), len(got), got[its])
			}
		})
	}
}

// SPEC N2: what cannot be read is not the same as nothing.
func TestN2ClaimsThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "claims.json")
	if got, err := claim.Read(path); err != nil || len(got) > 0 {
		t.Errorf("without a file: %v, %v", got, err)
	}
	if err := os.WriteFile(path, make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := claim.Read(path); err == nil {
		t.Error("zeros are read")
	}
	if _, err := claim.Read(dir); err == nil {
		t.Error("a folder is read")
	}
}
