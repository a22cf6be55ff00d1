package packaged

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/cli/usage"
	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/internal/packages"
	"github.com/orla-project/orla/internal/packages/lockfile"
	"github.com/orla-project/orla/internal/packages/permission"
	"github.com/orla-project/orla/manifest/toolfile"
)

// listed is a package as orla list prints it.
type listed struct {
	Name     string          `json:"name"`
	Version  string          `json:"version"`
	Serves   bool            `json:"serves"`
	There    bool            `json:"installed"`
	Source   lockfile.Source `json:"source"`
	Signed   bool            `json:"signed"`
	Outdated string          `json:"outdated,omitempty"`
	Problem  string          `json:"problem,omitempty"`

	unasked bool // nobody can say whether there is a newer version
}

// noPackages is what commands about all packages say if there are none.
const noPackages = "no packages are installed\n"

func (c command) list() *cobra.Command {
	var global, asJSON, outdated bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the packages that are installed",
		Long: "List the packages that are installed, their versions, which one serves, and where they\n" +
			"came from. orla tools lists all tools. With --outdated, ask the repositories and\n" +
			"registries for newer versions, and for servers that were deleted. A - means that this\n" +
			"cannot be known.",
		Example: "  orla list\n  orla list --outdated\n  orla list --json | jq '.[].name'",
		Args:    cobra.NoArgs,
		RunE: c.here(&global, func(ctx context.Context, p *place, _ []string) error {
			lock, err := p.readLock()
			if err != nil {
				return err
			}
			list := []listed{}
			for _, e := range lock.Packages {
				one := listed{Name: e.Name, Version: e.Version, Serves: lock.Serving(e.Name).Version == e.Version, There: p.isThere(e), Source: e.Source, Signed: e.Signer != ""}
				if !one.There {
					one.Problem = "not installed; orla install installs it"
				}
				if outdated && one.Serves {
					var asked bool
					if one.Outdated, asked, err = c.outdated(ctx, p, e); err != nil {
						one.Problem = err.Error()
					}
					one.unasked = !asked
				}
				list = append(list, one)
			}
			if asJSON {
				return terminal.WriteJSON(c.std.Out, list)
			}
			return c.printList(list)
		}),
	}
	cmd.Flags().BoolVar(&outdated, "outdated", false, "ask for newer versions")
	return flagged(cmd, &global, &asJSON)
}

func (c command) printList(list []listed) error {
	if len(list) == 0 {
		return c.print(noPackages)
	}
	table := tabwriter.NewWriter(c.std.Out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tVERSION\tSERVES\tSOURCE\tNOTE")
	for _, l := range list {
		serves, note := "no", l.Problem
		if l.Serves {
			serves = "yes"
		}
		if l.Outdated != "" {
			note = strings.TrimPrefix(note+"; "+l.Outdated+" is there", "; ")
		}
		if note == "" && l.unasked {
			note = "-"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", l.Name, l.Version, serves, terminal.Printable(l.Source.URL), terminal.Printable(note))
	}
	return table.Flush()
}

// about is a package as orla info prints it.
type about struct {
	Name        string            `json:"name"`
	Version     string            `json:"version,omitempty"`
	Description string            `json:"description,omitempty"`
	About       toolfile.About    `json:"about"`
	Lock        *lockfile.Package `json:"lock,omitempty"`
	Versions    []string          `json:"versions,omitempty"`
	Dir         string            `json:"dir,omitempty"`
	Repository  string            `json:"repository,omitempty"`
	Registry    string            `json:"registry,omitempty"`
	Maintainer  string            `json:"maintainer,omitempty"`
}

func (c command) info() *cobra.Command {
	var global, asJSON bool
	cmd := &cobra.Command{
		Use:     "info NAME[@VERSION]",
		Short:   "Show the details of a package",
		Long:    "Show the details of a package: what its tool.yaml says of it, where it came from, who\nsigned it, and what it was granted. One that is not installed is looked up in the\nregistries.",
		Example: "  orla info fetch\n  orla info fetch@1.2.0 --json",
		Args:    oneName,
		RunE: c.here(&global, func(ctx context.Context, p *place, words []string) error {
			lock, err := p.readLock()
			if err != nil {
				return err
			}
			name, version := versioned(words[0])
			entry := lock.Serving(name)
			if version != "" {
				entry = lock.Find(name, version)
			}
			if entry == nil {
				found, err := c.lookUp(ctx, p, name)
				if near := yamldoc.Nearest(name, lock.Names()); err != nil && near != "" {
					return &exit.Error{Code: exit.Failed, Err: fmt.Errorf("%s %w", name, packages.ErrNotInstalled), Hint: "did you mean " + near + "?"}
				}
				if err != nil {
					return err
				}
				return c.printInfo(found, asJSON)
			}
			found, err := p.read(*entry)
			if err != nil {
				return err
			}
			for _, v := range lock.Versions(name) {
				found.Versions = append(found.Versions, v.Version)
			}
			return c.printInfo(found, asJSON)
		}),
	}
	return flagged(cmd, &global, &asJSON)
}

// read reads what an installed package says of itself.
func (p *place) read(entry lockfile.Package) (about, error) {
	a := about{Name: entry.Name, Version: entry.Version, Lock: &entry, Dir: p.store.Folder(entry.Name, entry.Version), Repository: entry.Source.URL, Registry: entry.Source.Registry}
	if !p.isThere(entry) {
		return a, nil
	}
	t, _, _, err := toolfile.ReadPackage(a.Dir, toolfile.ManifestFile, toolfile.ManifestFile, nil)
	if err != nil {
		return a, err
	}
	a.Description = t.Description
	a.About, err = toolfile.ReadAbout(a.Dir, toolfile.ManifestFile)
	return a, err
}

func (c command) printInfo(a about, asJSON bool) error {
	if asJSON {
		return terminal.WriteJSON(c.std.Out, a)
	}
	var text strings.Builder
	line := func(key, value string) {
		if value != "" {
			fmt.Fprintf(&text, "%-13s %s\n", key, terminal.Printable(value))
		}
	}
	line("name", a.Name)
	line("version", a.Version)
	line("description", a.Description)
	line("author", a.About.Author)
	line("maintainer", a.Maintainer)
	line("license", a.About.License)
	line("homepage", a.About.Homepage)
	line("repository", cmp.Or(a.About.Repository, a.Repository))
	line("keywords", strings.Join(a.About.Keywords, ", "))
	line("needs", strings.Join(a.About.Requires, ", "))
	line("asks for", strings.Join(a.About.Permissions, ", "))
	if e := a.Lock; e != nil {
		line("granted", cmp.Or(strings.Join(e.Permissions, ", "), "nothing"))
		line("not enforced", strings.Join(e.Unenforced, ", "))
		if strings.Contains(strings.Join(e.Permissions, "\n"), string(permission.Secret)+":") {
			line("its Secret", "packages/"+e.Source.SecretName(e.Name))
		}
		line("from", e.Source.URL+ofRegistry(e.Source))
		if e.Commit != "" {
			line("revision", revision(*e))
			line("signature", signature(*e))
		}
		line("digest", e.Digest)
		line("its image", e.Image)
		line("versions", strings.Join(a.Versions, ", "))
		line("folder", a.Dir)
	} else {
		line("registry", a.Registry)
	}
	return c.print(text.String())
}

// oneName requires the name of a package.
var oneName = usage.Words(1, "wants the name of a package; orla list lists those that are installed")

func (c command) uninstall() *cobra.Command {
	var global, asJSON bool
	cmd := &cobra.Command{
		Use:   "uninstall NAME[@VERSION]",
		Short: "Remove a package",
		Long: "Remove a package with all its versions, or one of them, and what orla.lock has of it. A\n" +
			"running Orla stops it as if its folder was removed.",
		Example: "  orla uninstall fetch\n  orla uninstall fetch@1.2.0",
		Args:    oneName,
		RunE: c.session(&global, func(ctx context.Context, p *place, s *packages.Session, words []string) error {
			name, version := versioned(words[0])
			removed, err := s.Remove(ctx, name, version)
			if err != nil {
				return err
			}
			c.reload(ctx, p)
			if asJSON {
				return terminal.WriteJSON(c.std.Out, map[string]any{"name": name, "removed": removed})
			}
			return c.print("removed " + name + " " + strings.Join(removed, ", ") + "\n")
		}),
	}
	return flagged(cmd, &global, &asJSON)
}

func (c command) use() *cobra.Command {
	var global, asJSON bool
	cmd := &cobra.Command{
		Use:     "use NAME@VERSION",
		Short:   "Choose which installed version of a package serves",
		Long:    "Choose which installed version of a package serves. Without a choice it is the highest one.",
		Example: "  orla use fetch@1.2.0",
		Args: func(_ *cobra.Command, words []string) error {
			if len(words) != 1 || !strings.Contains(words[0], "@") {
				return errors.New("wants NAME@VERSION; orla list lists what is installed")
			}
			return nil
		},
		RunE: c.session(&global, func(ctx context.Context, p *place, s *packages.Session, words []string) error {
			name, version := versioned(words[0])
			if err := s.Use(ctx, name, version); err != nil {
				return err
			}
			return c.done(ctx, p, []lockfile.Package{*s.Lock.Find(name, version)}, asJSON)
		}),
	}
	return flagged(cmd, &global, &asJSON)
}

func (c command) verify() *cobra.Command {
	var global, asJSON bool
	cmd := &cobra.Command{
		Use:     "verify",
		Short:   "Compare what is installed with orla.lock",
		Long:    "Compare the files of what is installed with orla.lock. The exit code is 1 if something\ndiffers; orla install installs what the lock has.",
		Example: "  orla verify\n  orla verify --json",
		Args:    cobra.NoArgs,
		RunE: c.here(&global, func(ctx context.Context, p *place, _ []string) error {
			if _, err := p.readLock(); err != nil {
				return err
			}
			list, err := p.store.Verify(ctx)
			if err != nil {
				return err
			}
			wrong := 0
			var text strings.Builder
			for _, v := range list {
				said := "as the lock has it"
				if v.Problem != "" {
					wrong++
					said = v.Problem
				}
				fmt.Fprintf(&text, "%s %s: %s\n", v.Name, v.Version, said)
			}
			if len(list) == 0 {
				text.WriteString(noPackages)
			}
			if asJSON {
				err = terminal.WriteJSON(c.std.Out, list)
			} else {
				err = c.print(text.String())
			}
			if err == nil && wrong > 0 {
				err = &exit.Error{Code: exit.Failed, Err: errors.New("the installed packages differ from the lock"), Hint: "orla install installs what the lock names; orla uninstall removes the rest"}
			}
			return err
		}),
	}
	return flagged(cmd, &global, &asJSON)
}
