// Package upgrading is orla upgrade.
package upgrading

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/cli/running"
	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/control/unixsocket"
	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/call/pace"
)

// New makes a running Orla execute a new binary.
func New(flags *config.Flags, std terminal.Streams) *cobra.Command {
	binary := ""
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Have a running Orla execute a new binary, without a restart",
		Long: "Have a running Orla execute a new binary in its own process: the file that it was started\n" +
			"from, which was replaced, or another one. Calls in flight end first, within shutdown_grace.\n" +
			"Calls that have asked their client something are waited for longer, for 5 minutes at most.\n" +
			"Capsules without a sandbox keep their process and memory, and clients keep their sessions;\n" +
			"new requests wait until then. A binary that does not start, or cannot go on, changes nothing.",
		Example: "  orla upgrade\n  orla upgrade --binary /opt/orla/bin/orla",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if binary != "" {
				path, err := filepath.Abs(binary)
				if err != nil {
					return err
				}
				binary = path
			}
			client, err := running.Here(flags, cmd)
			if err != nil {
				return err
			}
			return upgrade(cmd.Context(), client, binary, std)
		},
	}
	cmd.Flags().StringVar(&binary, "binary", "", "the new binary, a `FILE`, if it is not where the running one was started from")
	return cmd
}

// upgrade asks for an upgrade, and waits until the new binary serves.
func upgrade(ctx context.Context, client *control.Client, binary string, std terminal.Streams) error {
	before, err := client.Status(ctx)
	if err != nil {
		return running.Explain(err)
	}
	next, err := client.Upgrade(ctx, binary)
	if err != nil {
		return running.Explain(err)
	}
	const pause, soon = 20 * time.Millisecond, 2 * time.Second
	said := time.Now().Add(soon)
	for {
		if !said.IsZero() && time.Now().After(said) {
			said = time.Time{}
			_, _ = fmt.Fprintln(std.Err, "waiting for calls in flight, and for answers of clients to questions of tools") // it is only for people
		}
		now, err := client.Status(ctx)
		switch {
		case err != nil && errors.Is(err, unixsocket.ErrNotRunning):
			return running.Explain(err)
		case err != nil: // the connection was closed before the answer; the next one waits for the new binary
		case now.Upgrades >= next.Number:
			_, err := fmt.Fprintf(std.Out, "upgraded from %s to %s; process %d\n", before.Version, now.Version, now.Pid)
			return err
		case now.NotUpgraded != "":
			return &exit.Error{Code: exit.Failed, Err: errors.New(now.NotUpgraded), Hint: "the running Orla keeps serving"}
		}
		if !pace.Sleep(ctx, pause) {
			return context.Cause(ctx)
		}
	}
}
