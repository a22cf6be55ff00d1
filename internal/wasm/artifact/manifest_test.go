package artifact

import (
	"runtime"
	"strings"
	"testing"
)

// SPEC S2: a manifest is looked over before it is decoded: each of its layers takes many times
// its bytes.
func TestS2AManifestTakesAFewTimesItsBytes(t *testing.T) {
	for _, key := range []string{"layers", "blobs", "manifests"} {
		data := []byte(`{"` + key + `":[` + strings.Repeat("{},", 300_000) + `{}]}`)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := parseDocument(data)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), "values") {
			t.Errorf("%s: %v", key, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > uint64(2*len(data)) {
			t.Errorf("%s: %d bytes took %d", key, len(data), took)
		}
	}
}
