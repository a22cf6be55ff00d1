package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/cli/running"
	"github.com/orla-project/orla/internal/app/cli/statuspage"
	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/terminal"
)

// newStatus shows what a running Orla and its tools are doing.
func newStatus(flags *config.Flags, std terminal.Streams) *cobra.Command {
	var watch, asJSON bool
	cmd := &cobra.Command{
		Use:   "status [NAME]",
		Short: "Show what a running Orla and its tools are doing",
		Long: "Show what a running Orla and each of its tools are doing: state, process, restarts,\n" +
			"calls, latencies, memory and processor time, and the reason for each capsule that is\n" +
			"down. If there are rules, also show who may call how many tools, and what each caller\n" +
			"uses of its limits. With a name, show everything about that tool, and the last lines\n" +
			"of its stderr. p50 and p99 are those of the last 256 calls of each tool.",
		Example:           "  orla status\n  orla status notes\n  orla status --watch\n  orla status --json | jq '.tools[] | select(.state == \"CRASHED\")'",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeManifests(flags, 1, nil),
		RunE: running.Show(flags, func(cmd *cobra.Command, client *control.Client, args []string) error {
			style := statuspage.Style{Width: terminal.Width(std.Out), Colours: terminal.Colourful(std.Out)}
			v := view{client: client, name: strings.Join(args, ""), asJSON: asJSON, out: std.Out, style: style}
			if watch {
				return v.watch(cmd.Context())
			}
			return v.show(cmd.Context())
		}),
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show it again every two seconds")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, as the control API has it")
	return cmd
}

// view shows the status of one Orla, or of one of its tools.
type view struct {
	client *control.Client
	name   string // of the one tool; "" for all
	asJSON bool
	out    io.Writer
	style  statuspage.Style
}

// statusTimeout bounds a request for the status.
const statusTimeout = 10 * time.Second

func (v *view) show(ctx context.Context) error {
	text, err := v.text(ctx)
	if err != nil {
		return running.NearName(ctx, v.client, []string{v.name}, running.Explain(err))
	}
	_, err = v.out.Write(text)
	return err
}

// text is what is shown.
func (v *view) text(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	var shown any
	var page string
	if v.name != "" {
		tool, err := v.client.Tool(ctx, v.name)
		if err != nil {
			return nil, err
		}
		shown, page = tool, statuspage.Tool(tool, v.style)
	} else {
		status, err := v.client.Status(ctx)
		if err != nil {
			return nil, err
		}
		shown, page = status, statuspage.Status(status, v.style)
	}
	if !v.asJSON {
		return []byte(page), nil
	}
	out, err := terminal.JSON(shown)
	if terminal.IsTerminal(v.out) {
		out = terminal.EscapedJSON(out)
	}
	return out, err
}

// watch shows the status repeatedly: on a terminal in the same place, elsewhere one after the other, as
// JSON one line each.
func (v *view) watch(ctx context.Context) error {
	const every = 2 * time.Second
	again := time.NewTicker(every)
	defer again.Stop()
	for first := true; ; first = false {
		text, err := v.text(ctx)
		if err != nil {
			return running.Explain(err)
		}
		if v.asJSON {
			var line bytes.Buffer
			if err := json.Compact(&line, text); err != nil {
				return err
			}
			text = append(line.Bytes(), '\n')
		} else if terminal.IsTerminal(v.out) {
			const home = "\x1b[H\x1b[2J\x1b[3J"
			text = append([]byte(home), text...)
		} else if !first {
			text = append([]byte("\n"), text...)
		}
		if _, err := v.out.Write(text); err != nil {
			return err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
