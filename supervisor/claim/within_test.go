package claim_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/orla-project/orla/supervisor/claim"
)

// SPEC N2: who has offered most is forgotten first, but for the names of manifests, and nobody else is.
func TestN2WhoHasMostIsForgottenFirst(t *testing.T) {
	claims := map[claim.Claim][]string{{Sort: claim.Provider, Key: "many"}: {"many"}}
	for i := range 1000 {
		claims[claim.Claim{Sort: claim.Resource, Key: fmt.Sprintf("a:%d%s", i, strings.Repeat("<", 1000))}] = []string{"many", "few"}
	}
	for i := range 20 {
		claims[claim.Claim{Sort: claim.Resource, Key: fmt.Sprintf("b:%d", i)}] = []string{"few", "many"}
	}
	count := func(kept map[claim.Claim][]string) map[string]int {
		of := map[string]int{}
		for k, line := range kept {
			of[line[0]]++
			if k.Sort == claim.Provider {
				of["manifests"]++
			}
		}
		return of
	}
	if got := count(claim.Within(claims, 10<<20)); got["many"] != 1001 || got["few"] != 20 {
		t.Errorf("with room for all: %v", got)
	}
	got := count(claim.Within(claims, 100<<10))
	if got["few"] != 20 || got["manifests"] != 1 || got["many"] < 50 || got["many"] > 100 {
		t.Errorf("with room for a tenth: %v", got)
	}
}
