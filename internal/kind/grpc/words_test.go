package grpc

import "testing"

// SPEC-TOOLS 3.3, O1: a service's text has no characters that could change what people see of a line.
func TestT33TheTextOfAStatusIsPlain(t *testing.T) {
	for said, want := range map[string]string{
		"no\nsuch\tcity":               "no such city",
		"\x1b[31mred\u202eder\x00\x9b": "[31mred der �",
	} {
		if got := words(said); got != want {
			t.Errorf("%q becomes %q, want %q", said, got, want)
		}
	}
}
