package outbound_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/service/outbound"
)

// SPEC S2: what is parsed of a header with challenges takes no time out of proportion, in one value or in many.
func TestS2ChallengesThatTakeLongAreNotParsed(t *testing.T) {
	usual := `Bearer error="insufficient_scope", scope="` + strings.Repeat("https://example.com/scope ", 150) + `", resource_metadata="https://example.com/x"`
	many := make([]string, 200)
	for i := range many {
		many[i] = strings.Repeat(",", 300) + "="
	}
	for name, c := range map[string]struct {
		values []string
		parsed bool
	}{
		"none":        {nil, false},
		"usual":       {[]string{usual, "Basic"}, true},
		"one value":   {[]string{strings.Repeat(",", 60_000) + "="}, false},
		"parameters":  {[]string{"Bearer " + strings.Repeat("a=b, ", 10_000) + "a=b"}, false},
		"many values": {many, false},
	} {
		if got := outbound.Challenges(http.Header{"Www-Authenticate": c.values}); (len(got) > 0) != c.parsed || c.parsed && len(got) != len(c.values) {
			t.Errorf("%s: %d values", name, len(got))
		}
	}
}
