package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/orla-project/orla/internal/app/doctor"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/deps"
	"github.com/orla-project/orla/internal/deps/printed"
	"github.com/orla-project/orla/internal/deps/versions"
	"github.com/orla-project/orla/internal/launch/environ"
	"github.com/orla-project/orla/internal/packages/permission"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/toolfile"
)

// dependency is what one tool needs.
type dependency struct {
	tool      manifest.Tool
	need      deps.Need
	installer string
	there     bool // the installer is
}

// dependenciesOf returns what tools need that declare packages. problems are the declarations that cannot be read.
func dependenciesOf(tools []manifest.Tool) (list []dependency, problems []manifest.Problem) {
	clean := environ.Clean(os.Environ())
	var files deps.Files
	for _, t := range tools {
		source, ok := environ.Dependencies(t, clean)
		if !ok {
			continue
		}
		need, err := files.Detect(source)
		if err != nil {
			problems = append(problems, problemOf(t, manifest.Fault, fmt.Errorf("cannot read its dependencies: %w", err)))
		} else if !need.IsZero() {
			program, there := need.Installer(clean)
			list = append(list, dependency{t, need, program, there})
		}
	}
	return list, problems
}

// warnOfDependencies adds to what was found the declarations of packages that cannot be read or installed.
func warnOfDependencies(found *manifest.Result) []dependency {
	list, problems := dependenciesOf(found.Tools)
	found.Problems = append(found.Problems, problems...)
	for _, d := range list {
		if !d.there {
			found.Problems = append(found.Problems, problemOf(d.tool, manifest.Warning, fmt.Errorf(
				"%s installs what %s declares, and is not in PATH; orla doctor says how to install it", d.installer, d.declared())))
		}
	}
	return list
}

// problemOf returns a problem of a tool.
func problemOf(t manifest.Tool, severity manifest.Severity, err error) manifest.Problem {
	return manifest.Problem{Path: t.Source, Tool: t.Name, Severity: severity, Err: err}
}

// declared names the file that decides about versions.
func (d dependency) declared() string {
	return filepath.Base(cmp.Or(d.need.Lock, d.need.File))
}

// printDependencies prints what tools need.
func printDependencies(out io.Writer, list []dependency) error {
	for _, d := range list {
		if _, err := fmt.Fprintf(out, "%s needs the packages of %s, which %s installs\n", d.tool.Name, terminal.Printable(d.declared()), terminal.Printable(d.installer)); err != nil {
			return err
		}
	}
	return nil
}

// examineDependencies checks what installs the packages of tools.
func examineDependencies(ctx context.Context, tools []manifest.Tool) []doctor.Finding {
	list, _ := dependenciesOf(tools) // validate has the problems
	needed := map[string][]string{}
	for _, d := range list {
		if len(d.tool.Run.Setup.Command) == 0 {
			needed[d.installer] = append(needed[d.installer], d.tool.Name)
		}
	}
	return append(requirementsOf(ctx, tools), doctor.Installers(ctx, needed)...)
}

// requirementsOf checks the programs that tools require. The processes of a container have others.
func requirementsOf(ctx context.Context, tools []manifest.Tool) (list []doctor.Finding) {
	required := map[string][]string{}
	for _, t := range tools {
		if t.Isolation.Isolated() && t.Isolation.Terms.Backend != manifest.BackendNative {
			continue
		}
		for _, r := range t.Requires {
			required[r] = append(required[r], t.Name)
		}
	}
	for _, r := range slices.Sorted(maps.Keys(required)) {
		list = append(list, doctor.Requirement(ctx, r, versions.Satisfies, required[r]))
	}
	return list
}

// warnOfRequirements adds to what was found the programs that tools require and that are not there.
func warnOfRequirements(ctx context.Context, found *manifest.Result) {
	for _, t := range found.Tools {
		for _, f := range requirementsOf(ctx, []manifest.Tool{t}) {
			if f.Level == doctor.OK {
				continue
			}
			text := f.Text
			if f.Fix != "" {
				text += "; to install it: " + f.Fix
			}
			found.Problems = append(found.Problems, problemOf(t, manifest.Warning, errors.New(text)))
		}
	}
}

// warnOfPermissions adds to what was found the permissions of packages that orla install would refuse.
func warnOfPermissions(found *manifest.Result) {
	for _, t := range found.Tools {
		if t.Version == "" || t.Runtime.Generated {
			continue // only a package has a tool.yaml
		}
		about, err := toolfile.ReadAbout(t.Dir, t.Source)
		if err == nil {
			var list []permission.Permission
			list, err = permission.ParseAll(about.Permissions)
			if slices.ContainsFunc(list, func(p permission.Permission) bool { return p.Kind == permission.Secret }) {
				err = errors.New("secrets are asked for by runtime.secret_env")
			}
			if err != nil {
				err = fmt.Errorf("permissions: %w, so orla install refuses the package", err)
			}
		}
		if err != nil && filepath.Base(t.Source) == toolfile.ManifestFile {
			found.Problems = append(found.Problems, problemOf(t, manifest.Warning, err))
		}
	}
}

// installs is the log of one call. It prints that a version was installed that its publisher has withdrawn, and if somebody waits at a
// terminal that packages are being installed, and nothing else.
type installs struct {
	slog.Handler
	out    io.Writer
	waited bool
}

// Enabled reports whether a level is one of what is printed.
func (h installs) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn || h.waited && level >= slog.LevelInfo
}

// Handle prints a record.
func (h installs) Handle(_ context.Context, r slog.Record) error {
	if h.waited && r.Message == deps.Begins && r.NumAttrs() == 0 { // and not that of a step
		_, err := fmt.Fprintln(h.out, "installing dependencies …")
		return err
	}
	if r.Message != deps.Withdrawn {
		return nil
	}
	values := map[string]string{}
	r.Attrs(func(a slog.Attr) bool {
		values[a.Key] = a.Value.String()
		return true
	})
	w := printed.NewWithdrawal(values["package"], values["version"], values["reason"])
	_, err := fmt.Fprintln(h.out, "warning: "+terminal.Printable(w.String()))
	return err
}

// WithAttrs returns h: the file and the digest are not printed.
func (h installs) WithAttrs([]slog.Attr) slog.Handler { return h }

// WithGroup returns h.
func (h installs) WithGroup(string) slog.Handler { return h }
