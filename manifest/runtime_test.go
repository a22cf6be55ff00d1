package manifest_test

import (
	"testing"
	"time"

	"github.com/orla-project/orla/manifest"
)

// SPEC D11: the longest stop fits into the supervisor's budget for one, which is 20 s.
func TestD11TheLongestStopFitsTheStopBudget(t *testing.T) {
	if manifest.MaxStop+time.Second > 20*time.Second {
		t.Errorf("%s is too long", manifest.MaxStop)
	}
}
