// Package auditlog has the commands that read the audit log: orla audit verify and orla audit show.
package auditlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/observe/audit"
)

// New returns the command audit.
func New(flags *config.Flags, std terminal.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Check and show the audit log",
		Long: "Check and show the audit log, which has a line for each call and each read, if audit_log is set.\n" +
			"Without a FILE, the commands read the one that is configured; - is stdin, for lines\n" +
			"from the journal: " + audit.VerifyJournal,
	}
	cmd.AddCommand(newVerify(flags, std), newShow(flags, std))
	return cmd
}

// stdin is the argument that stands for stdin.
const stdin = "-"

// inputs returns the files of a command: its arguments, or else the audit log of the configuration.
func inputs(cfg *config.Loaded, args []string) ([]string, error) {
	if len(args) > 0 {
		paths := make([]string, len(args))
		for i, arg := range args {
			var err error
			if paths[i], err = config.PathOf(arg); err != nil {
				return nil, &exit.Error{Code: exit.Usage, Err: err}
			}
		}
		return paths, nil
	}
	switch path := cfg.AuditPath(); path {
	case "":
		return nil, &exit.Error{Code: exit.Usage, Err: errors.New("there is no audit log: audit_log is not set"), Hint: "name a file, or set audit_log in orla.yaml"}
	case audit.Journal:
		return nil, &exit.Error{Code: exit.Usage, Err: errors.New("the audit log is in the journal"), Hint: audit.VerifyJournal}
	default:
		return []string{path}, nil
	}
}

// each calls read with each of the files.
func each(paths []string, std terminal.Streams, read func(path string, r io.Reader) error) error {
	for _, path := range paths {
		if path == stdin {
			if err := read("stdin", std.In); err != nil {
				return err
			}
			continue
		}
		f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a FIFO does not wait
		if err != nil {
			return err
		}
		err = read(path, f)
		_ = f.Close() // it was only read
		if err != nil {
			return err
		}
	}
	return nil
}

// newShow shows the calls of the audit log.
func newShow(flags *config.Flags, std terminal.Streams) *cobra.Command {
	var which audit.Selection
	var since, output string
	cmd := &cobra.Command{
		Use:   "show [FILE...]",
		Short: "Show the calls in the audit log",
		Long: "Show the calls in the audit log, the oldest first: when, who, which tool, the verdict,\n" +
			"the outcome, and how long it took; the same of reads of resources and prompts; what became of calls that need an approval; and\n" +
			"which pins, and which rules that are gone, somebody has accepted.\n" +
			"It does not check them; orla audit verify does.",
		Example: "  orla audit show --since 1h --verdict deny\n  orla audit show --caller ci --tool notes__add -o json | jq .args_sha256\n  orla audit show /var/log/orla/audit.log.1 /var/log/orla/audit.log",
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "" && output != "json" {
				return &exit.Error{Code: exit.Usage, Err: fmt.Errorf("--output %s: wants json", output)}
			}
			var err error
			if which.Since, err = terminal.ParseSince(since, time.Now()); err != nil {
				return &exit.Error{Code: exit.Usage, Err: err}
			}
			cfg, _, err := flags.Load(cmd.Flags())
			if err != nil {
				return err
			}
			paths, err := inputs(cfg, args)
			if err != nil {
				return err
			}
			return show(cmd.Context(), paths, which, output == "json", std)
		},
	}
	cmd.Flags().StringVar(&which.Caller, "caller", "", "calls of this `CALLER` only")
	cmd.Flags().StringVar(&which.Tool, "tool", "", "calls of this `TOOL` only: its name for clients, or that of its manifest; also a prompt, or the URI of a resource")
	cmd.Flags().StringVar(&which.Verdict, "verdict", "", "calls with this `VERDICT` only: "+strings.Join(audit.Verdicts(), ", "))
	cmd.Flags().StringVar(&since, "since", "", "calls since this `TIME`: 10m, 2d, 2026-01-02T15:04:05Z, or 2026-01-02 15:04")
	cmd.Flags().StringVarP(&output, "output", "o", "", "json prints the lines as they are in the log (`FORMAT`)")
	return cmd
}

func show(ctx context.Context, paths []string, which audit.Selection, asJSON bool, std terminal.Streams) error {
	onTerminal, shown := terminal.IsTerminal(std.Out), false
	err := each(paths, std, func(path string, r io.Reader) error {
		odd, err := which.Show(ctx, r, func(l *audit.Line, raw []byte) error {
			shown = true
			if !asJSON {
				_, err := fmt.Fprintln(std.Out, text(l))
				return err
			}
			if onTerminal {
				raw = terminal.EscapedJSON(raw)
			}
			_, err := fmt.Fprintf(std.Out, "%s\n", raw)
			return err
		})
		if odd > 0 {
			fmt.Fprintf(std.Err, "orla: %s: %s not JSON; orla audit verify says more\n", terminal.Printable(path), terminal.Count(odd, "line"))
		}
		return err
	})
	if err == nil && !shown {
		fmt.Fprintln(std.Err, "no call in the audit log fits")
	}
	return err
}

// text is the line of a call, or of a decision about one, for people.
func text(l *audit.Line) string {
	words := []string{l.Time.Local().Format("2006-01-02 15:04:05.000")}
	switch {
	case l.IsPin():
		words = append(words, l.Decider, l.Tool, "accepted", "kind="+l.Kind, "target="+l.Target, l.Digest)
	case l.IsNoRules():
		words = append(words, l.Decider, "accepted that rules are gone", "target="+l.Target, "reason="+l.Reason)
	case l.IsArguments():
		words = append(words, l.Decider, l.Tool, "arguments "+l.Change)
		if l.Until != "" {
			words = append(words, "until="+l.Until)
		}
	case l.IsApproval():
		words = append(words, l.Caller, l.Tool, l.Phase, cmp.Or(l.Change, "decided"))
		words = append(words, details(l)...)
	case l.IsRequest():
		words = append(words, l.Caller, l.Method, l.Asked(), l.Verdict, l.Outcome, fmt.Sprintf("%.1fms", l.DurationMS))
		words = append(words, details(l)...)
	default:
		words = append(words, l.Caller, l.Tool, l.Verdict, l.Outcome, fmt.Sprintf("%.1fms", l.DurationMS))
		words = append(words, details(l)...)
	}
	return terminal.Printable(strings.Join(words, "  "))
}

// details are what else a line says of a call, as key=value.
func details(l *audit.Line) (words []string) {
	for _, m := range []struct{ key, value string }{
		{"agent", l.Agent},
		{"task", l.Task},
		{"target", l.Target},
		{"class", l.Class},
		{"rule", l.Rule},
		{"approval", l.Approval},
		{"decider", l.Decider},
		{"how", l.How},
		{"extended_by", l.ExtendedBy},
		{"until", l.Until},
		{"reason", l.Reason},
	} {
		if m.value != "" && (m.key != "target" || m.value != l.Tool) {
			words = append(words, m.key+"="+m.value)
		}
	}
	return words
}
