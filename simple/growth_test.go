package simple_test

import (
	"fmt"
	"testing"

	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/simple"
)

// SPEC L2, S1: of many tools most are never called, and each is made when Orla starts.
func TestL2ACommandThatIsNotCalledHasNoEnvironment(t *testing.T) {
	var environ []string
	for i := range 1000 {
		environ = append(environ, fmt.Sprintf("V%d=x", i))
	}
	tool := manifest.Tool{Name: "cat", Kind: manifest.Simple, Path: "/bin/cat", Dir: "/", InputSchema: []byte(`{"type":"object"}`)}
	made := testing.AllocsPerRun(100, func() {
		if _, err := simple.New(tool, simple.Options{Environ: environ}); err != nil {
			t.Error(err)
		}
	})
	if made > 6 {
		t.Errorf("%.0f allocations for a command", made)
	}
}
