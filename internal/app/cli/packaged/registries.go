package packaged

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/app/version"
	"github.com/orla-project/orla/internal/packages"
	"github.com/orla-project/orla/internal/packages/registry"
)

// registries returns the registries to ask: the one that the command line names, or those of the configuration.
func (c command) registries(p *place, only string) (*registry.Registries, error) {
	urls := p.cfg.Registries
	if only != "" {
		urls = []string{only}
	}
	if len(urls) == 0 {
		return nil, &exit.Error{Code: exit.Failed, Err: errors.New("no registries are configured"), Hint: "--registry URL names one, and so does registries in orla.yaml; orla install of the URL of a git repository, or with --local FOLDER, needs none"}
	}
	folder, err := registry.Folder()
	if err != nil {
		return nil, err
	}
	git := p.store.Git
	git.Local = git.Local || strings.HasPrefix(only, "file://")
	return registry.New(folder, urls, registry.Options{Git: git, UserAgent: "orla/" + version.Version()}), nil
}

// find returns the entry of a name in a registry, or in those of the configuration if that is "". version is for servers; "" is the latest.
func (c command) find(ctx context.Context, p *place, only, name, version string) (registry.Entry, error) {
	all, err := c.registries(p, only)
	if err != nil {
		return registry.Entry{}, err
	}
	return all.Find(ctx, name, version)
}

// fromRegistry brings a package that a registry names.
func (c command) fromRegistry(ctx context.Context, p *place, s *packages.Session, name string, from packages.From, w wanted) (*packages.Candidate, error) {
	entry, err := c.find(ctx, p, w.registry, name, from.Ref)
	if err != nil {
		return nil, err
	}
	if entry.Age > 0 {
		c.say("the registry did not answer; what it said %s ago counts", terminal.ShortAge(entry.Age))
	}
	if entry.Server != nil {
		return c.fromServer(ctx, p, s, entry, w)
	}
	from.URL, from.Name, from.Registry, from.Signers = entry.Repository, entry.Name, entry.Registry, entry.Signers
	return s.Git(ctx, from)
}

// lookUp returns what a registry says of a name.
func (c command) lookUp(ctx context.Context, p *place, name string) (about, error) {
	e, err := c.find(ctx, p, "", name, "")
	if err != nil {
		return about{}, err
	}
	a := about{Name: e.Name, Description: e.Description, Repository: e.Repository, Registry: e.Registry, Maintainer: e.Maintainer}
	a.About.Keywords = e.Keywords
	return a, nil
}

// found is a package as orla search prints it.
type found struct {
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Keywords    []string `json:"keywords,omitempty"`
	Repository  string   `json:"repository,omitempty"`
	Registry    string   `json:"registry"`
}

func (c command) search() *cobra.Command {
	var asJSON bool
	var only string
	cmd := &cobra.Command{
		Use:     "search QUERY...",
		Short:   "Search the registries for packages",
		Long:    "Search the registries for packages whose name, description or keywords have all words,\nthe best match first. Offline, the last answers count, and their age is printed.",
		Example: "  orla search web fetch\n  orla search git --json",
		Args: func(_ *cobra.Command, words []string) error {
			if len(words) == 0 {
				return errors.New("wants words to search for")
			}
			return nil
		},
		RunE: c.here(new(bool), func(ctx context.Context, p *place, words []string) error {
			all, err := c.registries(p, only)
			if err != nil {
				return err
			}
			asked, err := all.Search(ctx, strings.Join(words, " "))
			if err != nil {
				return err
			}
			for _, problem := range asked.Problems {
				c.say("%v", problem)
			}
			if asked.Age > 0 {
				c.say("a registry did not answer; what it said %s ago counts", terminal.ShortAge(asked.Age))
			}
			list := []found{}
			for _, e := range asked.Entries {
				list = append(list, found{e.Name, e.Description, e.Keywords, e.Repository, e.Registry})
			}
			if asJSON {
				return terminal.WriteJSON(c.std.Out, list)
			}
			var text strings.Builder
			if len(list) == 0 {
				text.WriteString("nothing was found\n")
			}
			for _, f := range list {
				fmt.Fprintf(&text, "%s\n  %s\n", terminal.Printable(f.Name), terminal.FirstLine(f.Description))
			}
			return c.print(text.String())
		}),
	}
	cmd.Flags().StringVar(&only, "registry", "", "search this `URL` alone")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (c command) cache() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cache",
		Short: "Manage the cache of registries",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var asJSON bool
	clear := &cobra.Command{
		Use:     "clear",
		Short:   "Clear the cache of registries",
		Long:    "Clear the cache of registries. The next command that needs one asks the registry again.",
		Example: "  orla cache clear",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			folder, err := registry.Folder()
			if err == nil {
				err = registry.New(folder, nil, registry.Options{}).Clear()
			}
			if err != nil {
				return err
			}
			if asJSON {
				return terminal.WriteJSON(c.std.Out, map[string]string{"cleared": folder})
			}
			return c.print("removed what was in " + folder + "\n")
		},
	}
	clear.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.AddCommand(clear)
	return cmd
}
