package early

import (
	"strings"
	"testing"
)

// SPEC L1: only a program that may serve is executed again, and none that Orla starts for each call.
func TestL1Serves(t *testing.T) {
	for line, want := range map[string]bool{
		"": true, "serve": true, "serve --stdio": true, "--stdio": true, "--tools-dir tools": true,
		"version": false, "call hello": false, "__upgrade serve": false,
	} {
		if got := serves(strings.Fields(line)); got != want {
			t.Errorf("orla %s may serve: %t, want %t", line, got, want)
		}
	}
}
