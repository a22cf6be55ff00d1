package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/orla-project/orla/internal/app/config"
)

// groups are the groups of commands in `orla --help`.
var groups = []struct{ id, title, commands string }{
	{"run", "Run tools:", "serve dev call"},
	{"look", "See what runs:", "tools status top console logs events audit"},
	{"make", "Make and check tools:", "new wasm import validate schema"},
	{"packages", "Install tools of others:", "install list search info update use uninstall verify pack cache tool"},
	{"operate", "Operate:", "start stop restart reload upgrade login logout approvals pins can config doctor"},
	{"other", "Other:", "version completion help"},
}

// groupCommands puts every command in its group, in the order of groups.
func groupCommands(root *cobra.Command) {
	cobra.EnableCommandSorting = false // the order says what to read first
	commands := map[string]*cobra.Command{}
	for _, cmd := range root.Commands() {
		commands[cmd.Name()] = cmd
	}
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for name := range strings.FieldsSeq(g.commands) {
			cmd := commands[name]
			cmd.GroupID = g.id
			root.RemoveCommand(cmd)
			root.AddCommand(cmd)
		}
	}
}

// grouped returns the flags of a set that are in a group; those in none for "".
func grouped(set *pflag.FlagSet, group string) *pflag.FlagSet {
	of := pflag.NewFlagSet(group, pflag.ContinueOnError)
	set.VisitAll(func(f *pflag.Flag) {
		if strings.Join(f.Annotations[config.GroupAnnotation], "") == group {
			of.AddFlag(f)
		}
	})
	return of
}

// groupFlags hides the flags about isolation in the help of every command but serve, which shows them in
// a separate section.
func groupFlags(root *cobra.Command) {
	usage, group := root.UsageFunc(), grouped(root.PersistentFlags(), config.IsolationGroup)
	hide := func(on bool) { group.VisitAll(func(f *pflag.Flag) { f.Hidden = on }) }
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		hide(true)
		err := usage(cmd)
		hide(false)
		if err != nil {
			return err
		}
		if cmd.Name() == "serve" {
			_, err = fmt.Fprintf(cmd.OutOrStderr(), "\n%s\n%s", config.IsolationGroup, group.FlagUsages())
		} else {
			_, err = fmt.Fprint(cmd.OutOrStderr(), "\n\"orla serve --help\" also has the flags that say how tools are isolated.\n")
		}
		return err
	})
}
