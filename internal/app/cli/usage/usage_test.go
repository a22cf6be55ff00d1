package usage_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/cli/usage"
	"github.com/orla-project/orla/internal/app/exit"
)

// SPEC J3: a command says what it wants if it gets another number of words.
func TestJ3TheNumberOfWords(t *testing.T) {
	for _, c := range []struct {
		args  cobra.PositionalArgs
		words []string
		want  string // the error
	}{
		{usage.Words(2, "wants a caller and a tool"), []string{"a", "b"}, ""},
		{usage.Words(2, "wants a caller and a tool"), []string{"a"}, "wants a caller and a tool"},
		{usage.Words(2, "wants a caller and a tool"), []string{"a", "b", "c"}, "wants a caller and a tool"},
		{usage.Words(0, "wants nothing"), nil, ""},
		{usage.One("the path of a tool"), []string{"a"}, ""},
		{usage.One("the path of a tool"), nil, "wants the path of a tool"},
		{usage.One("the path of a tool"), []string{"a", "b", "c"}, `wants the path of a tool alone, and not "b" too`},
	} {
		got := ""
		if err := c.args(nil, c.words); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%q: %q, want %q", c.words, got, c.want)
		}
	}
}

// SPEC J3: a command of commands alone shows its help. It is wrong usage to give it a command that it does not have, and the
// error has the one that was probably meant.
func TestJ3AGroupNamesTheCommandThatWasMeant(t *testing.T) {
	run := func(words ...string) (shown string, err error) {
		var out bytes.Buffer
		root := &cobra.Command{Use: "orla", SilenceErrors: true, SilenceUsage: true}
		group := &cobra.Command{Use: "pins", Long: "About pins."}
		usage.Group(group)
		group.AddCommand(&cobra.Command{Use: "accept", RunE: func(*cobra.Command, []string) error { return errors.New("it runs") }})
		root.AddCommand(group)
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetArgs(append([]string{"pins"}, words...))
		err = root.Execute()
		return out.String(), err
	}
	if shown, err := run(); err != nil || !strings.Contains(shown, "About pins.") || !strings.Contains(shown, "accept") {
		t.Errorf("alone it shows %q, %v", shown, err)
	}
	if _, err := run("accept"); err == nil || err.Error() != "it runs" {
		t.Errorf("a command below it: %v", err)
	}
	for word, hint := range map[string]string{
		"acept": "did you mean orla pins accept?", "accepted": "did you mean orla pins accept?", "axxept": "did you mean orla pins accept?",
		"bxxept": "orla pins --help lists what there is", "zzz": "orla pins --help lists what there is",
	} {
		_, err := run(word, "more")
		f, ok := errors.AsType[*exit.Error](err)
		if !ok || f.Code != exit.Usage || f.Error() != `there is no command "pins `+word+`"` || f.Hint != hint {
			t.Errorf("%s: %+v", word, err)
		}
	}
}

// SPEC J1: a shell completes as many words as a command takes, and no names of files in their place. What takes long gives
// nothing: the shell waits for it.
func TestJ1Completion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var given []string
		list := func(cmd *cobra.Command, words []string) []string {
			given = words
			if len(words) == 1 {
				<-cmd.Context().Done()
				return nil
			}
			return []string{"one", "two"}
		}
		for _, c := range []struct {
			most  int
			words []string
			want  []string
			took  time.Duration
		}{
			{1, nil, []string{"one", "two"}, 0},
			{1, []string{"a"}, nil, 0},
			{2, []string{"a"}, nil, 400 * time.Millisecond},
			{2, []string{"a", "b"}, nil, 0},
			{3, []string{"a", "b"}, []string{"one", "two"}, 0},
			{0, []string{"a", "b", "c", "d"}, []string{"one", "two"}, 0},
		} {
			given = nil
			cmd := &cobra.Command{}
			cmd.SetContext(context.Background())
			began := time.Now()
			got, directive := usage.Complete(c.most, list)(cmd, c.words, "")
			if !slices.Equal(got, c.want) || directive != cobra.ShellCompDirectiveNoFileComp || time.Since(began) != c.took {
				t.Errorf("%d words of %d: %q, %d after %s", len(c.words), c.most, got, directive, time.Since(began))
			}
			if c.want != nil && !slices.Equal(given, c.words) {
				t.Errorf("%q is completed with %q", c.words, given)
			}
		}
	})
}
