package simple

import (
	"encoding/json"

	"github.com/orla-project/orla/manifest"
)

// BuildInput is buildInput, for fuzzing it without a process for each input.
func BuildInput(args json.RawMessage, mode manifest.ArgumentsMode) (stdin []byte, flags []string, err error) {
	in, err := buildInput(args, mode)
	return in.stdin, in.flags, err
}
