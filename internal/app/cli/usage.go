package cli

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/file/yamldoc"
)

// endWell gives the errors of every command below root their exit codes: a wrong command line is wrong
// usage; an error while the command runs is not, such as output that cannot be written.
func endWell(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return wrongFlag(cmd, err) })
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			helpOrRefuse(root, cmd)
		case "completion":
			cmd.Args, cmd.RunE = cobra.NoArgs, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		if args := cmd.Args; args != nil {
			cmd.Args = func(cmd *cobra.Command, words []string) error {
				if slices.Contains(words, "") { // as of a variable that is not set: it must not mean all
					return misused(cmd, errors.New("a name is empty"))
				}
				return misused(cmd, args(cmd, words))
			}
		}
		if run := cmd.RunE; run != nil {
			cmd.RunE = func(cmd *cobra.Command, words []string) error { return failed(run(cmd, words)) }
		}
		for _, below := range cmd.Commands() {
			visit(below)
		}
	}
	visit(root)
}

// misused is err as a matter of usage of cmd. What is a failure already stays.
func misused(cmd *cobra.Command, err error) error {
	if _, ok := errors.AsType[*exit.Error](err); ok || err == nil {
		return err
	}
	hint := cmd.CommandPath() + " --help shows how it is used"
	if !cmd.HasParent() {
		hint = exit.UsageHint
	}
	return &exit.Error{Code: exit.Usage, Err: err, Hint: hint}
}

// wrongFlag returns err as wrong usage of cmd, with the flag that was probably meant.
func wrongFlag(cmd *cobra.Command, err error) error {
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok && invalid.GetFlag().Value.Type() == "bool" {
		return misused(cmd, fmt.Errorf("--%s: wants true or false, got %q", invalid.GetFlag().Name, invalid.GetValue()))
	}
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return misused(cmd, err)
	}
	name := unknown.GetSpecifiedName()
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	near := yamldoc.Nearest(name, known)
	switch {
	case near != "" && len(name) > 1:
		return &exit.Error{Code: exit.Usage, Err: err, Hint: fmt.Sprintf("did you mean --%s?", near)}
	case cmd.Name() == "call":
		return &exit.Error{Code: exit.Usage, Err: err, Hint: argumentHint(name)}
	}
	return misused(cmd, err)
}

// failed returns err as a failure of a command that ran.
func failed(err error) error {
	if _, ok := errors.AsType[*exit.Error](err); ok || err == nil {
		return err
	}
	return &exit.Error{Code: exit.Failed, Err: err}
}

// helpOrRefuse makes `orla help NAME` refuse an unknown command, as orla NAME does.
func helpOrRefuse(root, help *cobra.Command) {
	help.Run = nil
	help.RunE = func(_ *cobra.Command, words []string) error {
		cmd, rest, err := root.Find(words)
		if err != nil || cmd == root && len(rest) > 0 {
			return noCommand(root, words)
		}
		if len(rest) > 0 {
			return misused(cmd, fmt.Errorf("there is no command \"%s %s\"", cmd.Name(), rest[0]))
		}
		cmd.InitDefaultHelpFlag()
		return cmd.Help()
	}
}
