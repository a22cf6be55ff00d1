package auditlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/observe/audit"
)

// maxKey bounds the files of keys and heads, in bytes.
const maxKey = 64 << 10

// newVerify checks the audit log.
func newVerify(flags *config.Flags, std terminal.Streams) *cobra.Command {
	var key, head string
	cmd := &cobra.Command{
		Use:   "verify [FILE...]",
		Short: "Check that nobody has changed the audit log",
		Long: "Check that no line of the audit log was changed, inserted, deleted or moved, and that\n" +
			"its end was not cut. Give the files of a log that was rotated, the oldest first. The\n" +
			"exit code is 1 if something is wrong, and each finding names the line.\n\n" +
			"The key and the newest head come from state_dir. Who can write there can forge the\n" +
			"log: keep a copy of the key and of heads elsewhere, and give them with --key and\n" +
			"--head. docs/AUDIT.md says what can be known, and what cannot.",
		Example: "  orla audit verify\n  orla audit verify /var/log/orla/audit.log.1 /var/log/orla/audit.log\n  orla audit verify --key key.pub --head audit.head audit.log",
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, _, err := flags.Load(cmd.Flags())
			if err != nil {
				return err
			}
			paths, err := inputs(cfg, args)
			if err != nil {
				return err
			}
			v, hints, err := verifier(cfg, paths, key, head)
			if err != nil {
				return err
			}
			err = each(paths, std, func(path string, r io.Reader) error {
				return v.File(cmd.Context(), path, r, path == cfg.AuditPath())
			})
			if err != nil {
				return err
			}
			report := v.Report()
			tell(std.Out, report, append(hints, unknown(report, v)...))
			if !report.OK() {
				return errors.New("the audit log is not as Orla wrote it")
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "public `KEY` that checks signatures, or its file (default: audit/key.pub in state_dir)")
	cmd.Flags().StringVar(&head, "head", "", "`FILE` with the line of a head that the log must have (default: the newest in state_dir)")
	return cmd
}

// verifier returns the Verifier for some files, and what it cannot check.
func verifier(cfg *config.Loaded, paths []string, key, head string) (v *audit.Verifier, hints []string, err error) {
	own := cfg.AuditPath()
	last := config.Absolute(paths[len(paths)-1])
	v = &audit.Verifier{Stream: slices.Contains(paths, stdin)}
	switch {
	case v.Stream && own == audit.Journal:
		last = own
	case v.Stream:
		last = ""
	}
	if key == "" {
		if key, err = audit.PublicKey(cfg.StateDir); errors.Is(err, fs.ErrNotExist) {
			hints = append(hints, "no key was found, so no signature was checked: give one with --key")
		} else if err != nil {
			return nil, nil, err
		}
	} else if !strings.Contains(key, "+") {
		text, err := config.ReadRegular(key, maxKey)
		if err != nil {
			return nil, nil, err
		}
		key = strings.TrimSpace(string(text))
	}
	if key != "" {
		if v.Key, err = audit.ParseKey(key); err != nil {
			return nil, nil, &exit.Error{Code: exit.Usage, Err: fmt.Errorf("--key: %w", err)}
		}
	}
	switch {
	case head != "":
		text, err := config.ReadRegular(head, maxKey)
		if err != nil {
			return nil, nil, err
		}
		v.Head, v.Whole = []byte(strings.TrimSuffix(string(text), "\n")), true
	case last == own && own != "":
		if v.Head, err = audit.LastHead(cfg.StateDir, own); err != nil {
			return nil, nil, err
		}
		v.Whole = v.Head != nil
	}
	if !v.Whole {
		hints = append(hints, "whether the end was cut is not known: the last file is not the one that is configured, or has no head yet; --head gives one")
	}
	return v, hints, nil
}

// unknown says what a report leaves open.
func unknown(r *audit.Report, v *audit.Verifier) []string {
	switch {
	case v.Key == nil || r.Unsigned == 0:
		return nil
	case r.Signed == 0:
		return []string{"no head is signed yet: who can write the file can have changed every line, and linked them again"}
	}
	return []string{fmt.Sprintf("the last %s no signature yet: who can write the file can have changed, added or cut them, and linked them again",
		terminal.Count(r.Unsigned, "line")+map[bool]string{true: " has", false: " have"}[r.Unsigned == 1])}
}

// tell prints a report.
func tell(w io.Writer, r *audit.Report, hints []string) {
	for _, f := range r.Findings {
		fmt.Fprintf(w, "fail  %s\n", terminal.Printable(f.String()))
	}
	if r.More > 0 {
		fmt.Fprintf(w, "fail  and %s\n", terminal.Count(r.More, "more finding"))
	}
	for _, f := range r.Notes {
		fmt.Fprintf(w, "note  %s\n", terminal.Printable(f.String()))
	}
	for _, hint := range hints {
		fmt.Fprintf(w, "note  %s\n", hint)
	}
	if r.Lines == 0 {
		fmt.Fprintln(w, "note  there are no lines")
		return
	}
	if !r.OK() {
		return
	}
	fmt.Fprintf(w, "ok    %s with %s, numbers %d to %d\n", terminal.Count(r.Lines, "line"), terminal.Count(r.Calls, "call"), r.First, r.Last)
	if r.Signed > 0 {
		fmt.Fprintf(w, "ok    signed up to number %d, at %s\n", r.Signed, r.At.Local().Format(time.DateTime))
	}
}
