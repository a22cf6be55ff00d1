package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/capsule/files"
	"github.com/orla-project/orla/internal/app/access"
	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/discovery"
	"github.com/orla-project/orla/internal/app/doctor"
	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/app/wiring"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/discover"
)

// newValidate checks tools and prints their problems.
func newValidate(flags *config.Flags, std terminal.Streams) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "validate [PATH]",
		Short: "Check tools and the configuration, and say what is wrong",
		Long: "Check a folder of tools, a package, a tool.yaml, a file of resources or a single\n" +
			"executable; without a path, the configuration and everything that would be served. The\n" +
			"exit code is 4 when something is at fault; warnings alone leave it 0.",
		Example: "  orla validate\n  orla validate tools/report.py\n  orla validate --json my-package/",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l := flags.Loader(cmd.Flags())
			cfg, err := l.Load()
			if f, ok := errors.AsType[*exit.Error](config.NotLoaded(err)); ok && err != nil && f.Code == exit.Usage {
				return f
			}
			for i := range args {
				var wrong error
				if args[i], wrong = config.PathOf(args[i]); wrong != nil {
					return &exit.Error{Code: exit.Usage, Err: wrong}
				}
			}
			found := check(cfg, l.Home, args, err)
			warnOfRules(cmd.Context(), &found)
			warnOfRequirements(cmd.Context(), &found)
			warnOfPermissions(&found)
			needs := warnOfDependencies(&found)
			if len(args) == 0 {
				for _, text := range l.Misspelled() {
					found.Problems = append(found.Problems, manifest.Problem{Severity: manifest.Warning, Err: errors.New(text)})
				}
			}
			if err == nil {
				discovery.WarnOfRenames(&found, cfg)
				if len(args) == 0 { // the resources of another file may have them
					warnOfPaths(&found, cfg)
					wiring.AddDenials(cfg, &found)
					discovery.WarnOfSecrets(&found, cfg)
				}
			}
			return reportValidation(found, needs, err != nil && len(args) == 0, asJSON, std)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// warnOfPaths warns of folders of the configuration that are not there, and of a log file that this user cannot write.
func warnOfPaths(found *manifest.Result, cfg *config.Loaded) {
	list := cfg.Missing()
	if cfg.LogFile != "" {
		if f := doctor.LogFile("log_file", config.Absolute(cfg.LogFile)); f.Level == doctor.Fail {
			list = append(list, cfg.At("log_file", errors.New(f.Text)))
		}
	}
	for _, err := range list {
		found.Problems = append(found.Problems, manifest.Problem{Severity: manifest.Warning, Err: err})
	}
}

// warnOfRules warns of each capsule that has more rules in .gitignore files than are read.
func warnOfRules(ctx context.Context, found *manifest.Result) {
	for _, t := range found.Tools {
		if t.Kind != manifest.Capsule {
			continue
		}
		if file := files.RulesLeftOut(ctx, t); file != "" {
			found.Problems = append(found.Problems, problemOf(t, manifest.Warning, fmt.Errorf(
				"%s: not all rules are read, as there are too many: what the rest names makes the capsule reload", file)))
		}
	}
}

// check finds the tools to validate. notLoaded is the error of the configuration, which is reported only
// without a path.
func check(cfg *config.Loaded, home string, path []string, notLoaded error) manifest.Result {
	fault := func(err error) manifest.Result {
		return manifest.Result{Problems: []manifest.Problem{{Path: cfg.File, Severity: manifest.Fault, Err: err}}}
	}
	switch {
	case len(path) == 1:
		if notLoaded != nil {
			cfg = &config.Loaded{Config: config.Defaults()}
		}
		return discovery.WithLimits(discover.Validate(path[0]), cfg)
	case notLoaded != nil:
		return fault(notLoaded)
	}
	if err := cfg.CheckToolsDir(); err != nil {
		return fault(err)
	}
	found := discovery.Find(cfg, home)
	if _, _, err := access.Tokens(cfg); err != nil {
		found.Problems = append(fault(err).Problems, found.Problems...)
	}
	if _, err := wiring.Webhook(cfg); err != nil {
		found.Problems = append(fault(err).Problems, found.Problems...)
	}
	if _, err := wiring.ConsoleSecret(cfg); err != nil {
		found.Problems = append(fault(err).Problems, found.Problems...)
	}
	return found
}

// reportValidation prints what was found. With unread the configuration has faults, and nobody has looked for tools.
func reportValidation(found manifest.Result, needs []dependency, unread, asJSON bool, std terminal.Streams) error {
	faults := 0
	list := discovery.Problems(found.Problems)
	for _, p := range list {
		if p.Severity == string(manifest.Fault) {
			faults += len(p.Messages)
		}
	}
	if asJSON {
		if err := terminal.WriteJSON(std.Out, map[string]any{"tools": listTools(found.Tools), "problems": list}); err != nil {
			return err
		}
	} else {
		discovery.PrintReported(std.Err, list)
		if err := printDependencies(std.Out, needs); err != nil {
			return err
		}
		inOrder := terminal.Count(len(found.Tools), "tool")
		if n := len(found.Secrets); n > 0 {
			inOrder += " and " + terminal.Count(n, "secret")
		}
		if unread {
			inOrder = "the configuration is not in order, so no tools were checked; "
		} else {
			inOrder += " in order, "
		}
		if _, err := fmt.Fprintf(std.Out, "%s%s\n", inOrder, terminal.Count(faults, "fault")); err != nil {
			return err
		}
	}
	if faults > 0 {
		return &exit.Error{Code: exit.Invalid, Err: fmt.Errorf("%s; see above", terminal.Count(faults, "fault"))}
	}
	return nil
}
