package outbound

import (
	"net/http"
	"strings"
)

// maxLookedAt bounds what a parser of challenges looks at, in bytes.
const maxLookedAt = 256 << 10

// Challenges returns the values of WWW-Authenticate for a parser that looks from each comma at all that follows it, as that of the SDK
// does. There are none if that would take long: a service could fill its header with commas.
func Challenges(h http.Header) []string {
	values, looked := h.Values("WWW-Authenticate"), 0
	for _, value := range values {
		looked += len(value) * (1 + strings.Count(value, ","))
	}
	if looked > maxLookedAt {
		return nil
	}
	return values
}
