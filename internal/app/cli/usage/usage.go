// Package usage has what commands share about the words of their command lines: how many there must be, and how a
// shell completes them.
package usage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/exit"
)

// Words requires n words. text says which.
func Words(n int, text string) cobra.PositionalArgs {
	return func(_ *cobra.Command, words []string) error {
		if len(words) != n {
			return errors.New(text)
		}
		return nil
	}
}

// One requires one word, and says what it is.
func One(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, words []string) error {
		switch len(words) {
		case 0:
			return fmt.Errorf("wants %s", what)
		case 1:
			return nil
		}
		return fmt.Errorf("wants %s alone, and not %q too", what, words[1])
	}
}

// Group makes cmd a command that has others below it: alone it shows its help, and it names the one that was probably meant.
func Group(cmd *cobra.Command) {
	cmd.SuggestionsMinimumDistance = 2
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.Args = func(cmd *cobra.Command, words []string) error {
		if len(words) == 0 {
			return nil
		}
		f := &exit.Error{Code: exit.Usage, Err: fmt.Errorf("there is no command \"%s %s\"", cmd.Name(), words[0]), Hint: cmd.CommandPath() + " --help lists what there is"}
		if near := cmd.SuggestionsFor(words[0]); len(near) > 0 {
			f.Hint = "did you mean " + cmd.CommandPath() + " " + near[0] + "?"
		}
		return f
	}
}

// completeTimeout bounds a completion.
const completeTimeout = 400 * time.Millisecond

// Complete completes up to most words, 0 for any number, with those that list returns. list shows no errors, as the shell
// has no place for them.
func Complete(most int, list func(cmd *cobra.Command, words []string) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, words []string, _ string) ([]string, cobra.ShellCompDirective) {
		if most > 0 && len(words) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
		defer cancel()
		cmd.SetContext(ctx)
		return list(cmd, words), cobra.ShellCompDirectiveNoFileComp
	}
}
