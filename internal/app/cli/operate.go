package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/cli/running"
	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/terminal"
)

// newOperate returns the commands that stop, start and restart capsules.
func newOperate(flags *config.Flags, std terminal.Streams) []*cobra.Command {
	return []*cobra.Command{
		operateCommand(flags, std, control.Restart, "Give capsules a new process",
			"Give each capsule a new process, and wait until it is READY. Calls in flight may end\n"+
				"first, and calls that arrive during the restart wait. A pause after a crash is skipped."),
		operateCommand(flags, std, control.Stop, "Stop capsules until they are started again",
			"Stop each capsule until orla start or orla restart. It stays stopped when files change\n"+
				"and when Orla itself starts again. Its tools stay listed; calls fail with the message\n"+
				"that it is stopped."),
		operateCommand(flags, std, control.Start, "Start capsules that are stopped",
			"Start each capsule that is not READY, and wait until it is READY; else say why not."),
	}
}

func operateCommand(flags *config.Flags, std terminal.Streams, action control.Action, short, long string) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:     string(action) + " NAME...",
		Short:   short,
		Long:    long,
		Example: fmt.Sprintf("  orla %s notes\n  orla %[1]s notes tickets\n  orla %[1]s --all", action),
		Args: func(_ *cobra.Command, names []string) error {
			if all == (len(names) > 0) {
				return errors.New("wants the names of capsules, or --all")
			}
			return nil
		},
		ValidArgsFunction: completeManifests(flags, 0, func(t control.ToolStatus) bool { return t.State != "" }),
		RunE: running.Change(flags, func(cmd *cobra.Command, client *control.Client, names []string) error {
			if all {
				status, err := client.Status(cmd.Context())
				if err != nil {
					return running.Explain(err)
				}
				for _, t := range status.Tools {
					if t.State != "" {
						names = append(names, t.Name)
					}
				}
			}
			return operateAll(cmd.Context(), client, action, names, std.Out)
		}),
	}
	cmd.Flags().BoolVar(&all, "all", false, "every capsule")
	return cmd
}

// operateAll applies an action to capsules, in parallel, and prints the state of each afterwards. A failure
// of one does not affect the others.
func operateAll(ctx context.Context, client *control.Client, action control.Action, names []string, out io.Writer) error {
	const atOnce = 16
	places := make(chan struct{}, atOnce)
	now := make([]*control.ToolStatus, len(names))
	errs := make([]error, len(names))
	var asking sync.WaitGroup
	for i, name := range names {
		asking.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			now[i], errs[i] = client.Operate(ctx, name, action)
		})
	}
	asking.Wait()
	for i, t := range now {
		if errs[i] != nil {
			continue
		}
		line := terminal.Printable(names[i]) + ": " + t.State
		if t.Pid != 0 {
			line += fmt.Sprintf(", pid %d", t.Pid)
		}
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	failed := slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(failed) == 1 {
		return running.NearName(ctx, client, names, running.Explain(failed[0]))
	}
	return errors.Join(failed...)
}
