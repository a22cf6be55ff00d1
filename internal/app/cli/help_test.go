package cli

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/app/terminal"
)

// full is an output that takes nothing, as /dev/full.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// SPEC J3: a command whose output cannot be written fails and says why, also one that only prints its help.
func TestJ3HelpThatCannotBeWrittenIsAnError(t *testing.T) {
	for _, line := range []string{"--help", "help", "help call", "call --help", "completion", "pins --help", "--version", "version"} {
		var said bytes.Buffer
		code := Run(strings.Fields(line), terminal.Streams{In: strings.NewReader(""), Out: full{}, Err: &said})
		if code != exit.Failed || said.String() != "orla: no space left\n" {
			t.Errorf("orla %s ends with %d and says %q", line, code, said.String())
		}
	}
}

// SPEC J1: without a terminal, the help of every command has lines of 80 characters at most.
func TestJ1HelpFitsALine(t *testing.T) {
	all := [][]string{nil}
	for _, cmd := range newRoot(terminal.Streams{}).Commands() {
		all = append(all, []string{cmd.Name()})
		for _, below := range cmd.Commands() {
			all = append(all, []string{cmd.Name(), below.Name()})
		}
	}
	for _, words := range all {
		var out bytes.Buffer
		if code := Run(append(words, "--help"), terminal.Streams{In: strings.NewReader(""), Out: &out, Err: io.Discard}); code != exit.OK {
			t.Errorf("%q: %d", words, code)
		}
		for line := range strings.Lines(out.String()) {
			if n := len([]rune(line)) - 1; n > helpWidth && !strings.HasPrefix(line, "  orla ") {
				t.Errorf("orla %s --help: %d characters: %s", strings.Join(words, " "), n, line)
			}
		}
	}
}

// SPEC J1: help is folded where it is too wide, and stays as it is elsewhere.
func TestJ1HelpIsFolded(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"short\nlines\n", "short\nlines\n"},
		{
			"a paragraph that is\nas wide as it was made to be when it was written\n\nanother\n",
			"a paragraph that is as wide as it was\nmade to be when it was written\n\nanother\n",
		},
		{"Flags:\n  -f, --file   what is read from the whole file\n  -n   no\n", "Flags:\n  -f, --file   what is read from the\n               whole file\n  -n   no\n"},
		{"  -f, --file-of-a-long-name F   is read at once\n", "  -f, --file-of-a-long-name F\n          is read at once\n"},
		{"  orla call hello --arg name=Ada --arg name=Bob\n", "  orla call hello --arg name=Ada --arg name=Bob\n"},
	} {
		if got := folded(c.text, 40); got != c.want {
			t.Errorf("%q becomes\n%s", c.text, got)
		}
	}
}
