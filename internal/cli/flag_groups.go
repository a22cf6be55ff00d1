package cli

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/orla-project/orla/internal/config"
)

// grouped returns those of a set's flags that are in a group; "" is no group.
func grouped(set *pflag.FlagSet, group string) *pflag.FlagSet {
	of := pflag.NewFlagSet(group, pflag.ContinueOnError)
	set.VisitAll(func(f *pflag.Flag) {
		switch in := f.Annotations[config.GroupAnnotation]; {
		case len(in) == 0 && group == "", len(in) == 1 && in[0] == group:
			of.AddFlag(f)
		}
	})
	return of
}

// groupFlags has the help of root end with its group, and that of the commands
// below say where it is.
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
		if cmd.HasParent() {
			_, err = fmt.Fprint(cmd.OutOrStderr(), "\n\"orla --help\" also has the flags that say how tools are isolated.\n")
		} else {
			_, err = fmt.Fprintf(cmd.OutOrStderr(), "\n%s\n%s", config.IsolationGroup, group.FlagUsages())
		}
		return err
	})
}
