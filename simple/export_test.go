package simple

import (
	"context"
	"encoding/json"

	"github.com/orla-project/orla/manifest"
)

// BuildInput is buildInput, for fuzzing it without a process for each input.
func BuildInput(args json.RawMessage, mode manifest.ArgumentsMode) (stdin []byte, flags []string, err error) {
	in, err := buildInput(context.Background(), args, mode)
	return in.stdin, in.flags, err
}

// Render makes the arguments of a call of type cli, for fuzzing it without a
// process for each input.
func Render(ctx context.Context, templates []string, args json.RawMessage) (argv []string, err error) {
	arguments, err := argumentsOf(templates)
	if err != nil {
		return nil, err
	}
	c := cli{CLI: manifest.CLI{Command: "command"}, arguments: arguments}
	in, err := c.input(ctx, args)
	return in.flags, err
}

// Free returns how many places are free now.
func (s *Slots) Free() int { return s.places.Free() }

// NewSlots returns Slots with n places for whoever comes.
var NewSlots = newSlots
