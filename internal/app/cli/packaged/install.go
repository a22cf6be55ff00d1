package packaged

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/discovery"
	"github.com/orla-project/orla/internal/app/doctor"
	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/app/wiring"
	"github.com/orla-project/orla/internal/packages"
	"github.com/orla-project/orla/internal/packages/lockfile"
	"github.com/orla-project/orla/internal/packages/permission"
	"github.com/orla-project/orla/manifest"
)

// wanted is what the command line of an install says.
type wanted struct {
	packages.Consent
	local, registry            string
	global, frozen, asJSON     bool
	acceptSigner, acceptNoSign bool
	set                        []string // answers, KEY=VALUE

	entry *lockfile.Package // of a package that is made once more: its own, or that of the version before; nil for the first time
	exact bool              // it has to be what the lock has
}

func (c command) install() *cobra.Command {
	var w wanted
	cmd := &cobra.Command{
		Use:   "install [NAME[@TAG] | URL[@TAG|@COMMIT]]",
		Short: "Install a package, or all that orla.lock has",
		Long: "Install a package: by its name in a registry, from a git repository, or with --local\n" +
			"from a folder or an archive. It goes into the tools folder of the nearest orla.yaml, or\n" +
			"into ~/.orla/tools. Without a tag, the highest stable version is installed.\n\n" +
			"What the package asks for is shown first. Installed tools run sandboxed, and get no\n" +
			"more than that. orla.lock records it: keep it in version control. Without a name,\n" +
			"exactly what orla.lock has is installed, once you have agreed.",
		Example: "  orla install fetch\n  orla install fetch@v1.2.0 --yes\n  orla install https://example.com/fetch.git\n" +
			"  orla install --local ./fetch\n  orla install --frozen",
		Args: func(_ *cobra.Command, words []string) error {
			switch {
			case len(words) > 1:
				return errors.New("wants one package at a time")
			case len(words) == 1 && w.local != "":
				return errors.New("give either a name or --local")
			case w.registry != "" && len(words) == 0:
				return errors.New("--registry needs the name of a package")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, words []string) error {
			if len(words) == 0 && w.local == "" {
				return c.session(&w.global, func(ctx context.Context, p *place, s *packages.Session, _ []string) error {
					return c.installLocked(ctx, p, s, w)
				})(cmd, words)
			}
			return c.here(&w.global, func(ctx context.Context, p *place, words []string) error {
				return c.installOne(ctx, p, strings.Join(words, ""), w)
			})(cmd, words)
		},
	}
	f := cmd.Flags()
	f.StringVar(&w.local, "local", "", "install from a folder or an archive (.tar.gz, .zip, .mcpb) at `PATH`")
	f.StringVar(&w.registry, "registry", "", "look the name up at this `URL` alone")
	f.BoolVar(&w.frozen, "frozen", false, "fail if orla.lock would change")
	w.flags(cmd)
	return cmd
}

// flags adds the flags that an install and an update share.
func (w *wanted) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVarP(&w.Permissions, "yes", "y", false, "agree to the permissions that are asked for")
	f.BoolVar(&w.Unenforced, "accept-unenforced", false, "accept permissions that Orla cannot enforce")
	f.BoolVar(&w.acceptSigner, "accept-signer", false, "accept another signer than before")
	f.BoolVar(&w.acceptNoSign, "unsigned", false, "accept a version without a signature after signed ones")
	f.StringArrayVar(&w.set, "set", nil, "answer what a bundle or server asks: `KEY=VALUE`, or KEY=@FILE; may be repeated")
	flagged(cmd, &w.global, &w.asJSON)
}

var commit = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`) })

// parseWord splits an argument into a repository or a name, and what follows the @.
func parseWord(word string) (url, name, ref string, err error) {
	at := strings.LastIndex(word, "@")
	if at > 0 && !strings.ContainsAny(word[at:], "/:") {
		word, ref = word[:at], word[at+1:]
		if ref == "" {
			return "", "", "", errors.New("nothing follows the @")
		}
	}
	if scheme, _, ok := strings.Cut(word, ":"); ok && slices.Contains([]string{"npm", "pypi", "pip", "oci", "docker"}, scheme) {
		return "", "", "", fmt.Errorf("%s is not the URL of a git repository; packages of npm and PyPI and images are installed by the name of a server that an MCP registry has", word)
	} else if ok {
		url = word
	} else {
		name = word
	}
	version := strings.TrimPrefix(ref, "v")
	switch {
	case strings.Count(name, "/") > 1 && !strings.HasPrefix(name, ".") && !strings.HasPrefix(name, "/"):
		return "", "", "", fmt.Errorf("%s is not a name and not a URL; did you mean https://%[1]s?", name)
	case strings.Contains(name, "/"): // a server of an MCP registry, whose versions are its own
		return url, name, ref, nil
	case ref == "", ref == "latest", strings.HasPrefix(ref, "v") && manifest.ValidVersion(version), url != "" && commit().MatchString(ref):
		return url, name, ref, nil
	case manifest.ValidVersion(ref):
		return "", "", "", fmt.Errorf("tags begin with v: did you mean @v%s?", ref)
	case strings.ContainsAny(ref, "^~*<>= "):
		return "", "", "", fmt.Errorf("%q is a range of versions, which are not supported: give a tag such as v1.2.0, or latest", ref)
	}
	return "", "", "", fmt.Errorf("%q is not a tag such as v1.2.0, and not latest", ref)
}

// refusePath refuses a path in place of a name.
func refusePath(word string) error {
	first, _, _ := strings.Cut(filepath.ToSlash(word), "/")
	if first != "" && first != "." && first != ".." && first != "~" {
		return nil
	}
	path, err := config.PathOf(word)
	if err == nil {
		_, err = os.Stat(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%s does not exist", path)
	}
	if err != nil {
		return &exit.Error{Code: exit.Usage, Err: err, Hint: "orla install wants a name, the URL of a git repository, or --local PATH"}
	}
	return &exit.Error{Code: exit.Usage, Err: fmt.Errorf("%s is a path, not a name", word), Hint: "orla install --local " + terminal.Printable(word)}
}

// orLocal adds to the error for a word that it may be a file or a folder here.
func orLocal(word string, err error) error {
	if err == nil || word == "" || strings.Contains(word, ":") {
		return err
	}
	if _, no := os.Stat(word); no != nil {
		return err
	}
	code := exit.Failed
	if f, ok := errors.AsType[*exit.Error](err); ok {
		code = f.Code
	}
	return &exit.Error{Code: code, Err: err, Hint: "it is a file or a folder here too: orla install --local " + terminal.Printable(word)}
}

// candidate brings the package that was asked for into a stage.
func (c command) candidate(ctx context.Context, p *place, s *packages.Session, word string, w wanted) (*packages.Candidate, error) {
	if w.local != "" {
		path, err := config.PathOf(w.local)
		if err != nil {
			return nil, err
		}
		return c.fromLocal(ctx, s, path, w)
	}
	url, name, ref, err := parseWord(word)
	if err != nil {
		return nil, &exit.Error{Code: exit.Usage, Err: err}
	}
	from := packages.From{URL: url, Ref: ref, AcceptSigner: w.acceptSigner, Unsigned: w.acceptNoSign}
	if name == "" {
		return s.Git(ctx, from)
	}
	return c.fromRegistry(ctx, p, s, name, from, w)
}

// installed is a package as the commands print it as JSON.
type installed struct {
	lockfile.Package
	Dir string `json:"dir"`
	// Running says what a running Orla does with it; "" without one.
	Running string `json:"running,omitempty"`
}

func (c command) installOne(ctx context.Context, p *place, word string, w wanted) error {
	// git reads the configuration of a repository of this machine, so only the command line may name one.
	if w.local == "" {
		if err := refusePath(word); err != nil {
			return err
		}
	}
	p.store.Git.Local = strings.HasPrefix(word, "file://") || strings.HasPrefix(w.registry, "file://")
	s, err := p.open(ctx)
	if err != nil {
		return err
	}
	candidate, err := c.candidate(ctx, p, s, word, w)
	c.clearProgress(p)
	if err != nil {
		return orLocal(word, err)
	}
	defer candidate.Discard()
	c.missing(ctx, candidate)
	o, err := c.offer(ctx, p, candidate, false)
	if err != nil {
		return err
	}
	if w.frozen && !frozen(s.Lock, candidate) {
		return fmt.Errorf("installing %s %s would change %s, and --frozen forbids that", candidate.Entry.Name, candidate.Entry.Version, p.store.Lock)
	}
	if err := c.taken(p, candidate.Entry.Name); err != nil {
		return err
	}
	agreed, err := c.consent(ctx, p, o, w.Consent)
	if err != nil {
		return err
	}
	if err := candidate.Install(ctx, agreed); err != nil {
		return err
	}
	return c.done(ctx, p, []lockfile.Package{candidate.Entry}, w.asJSON)
}

// frozen reports whether installing a candidate keeps the lock as it is.
func frozen(lock *lockfile.Lock, candidate *packages.Candidate) bool {
	next := lock.Clone()
	next.Put(candidate.Entry)
	return string(next.Text()) == string(lock.Text())
}

// installLocked installs what the lock has.
func (c command) installLocked(ctx context.Context, p *place, s *packages.Session, w wanted) error {
	if len(s.Lock.Packages) == 0 {
		return &exit.Error{Code: exit.Failed, Err: fmt.Errorf("%s has no packages, and no name was given", p.store.Lock), Hint: "orla install NAME installs one, orla search QUERY finds some"}
	}
	verified, err := p.store.Verify(ctx)
	if err != nil {
		return err
	}
	wrong := map[string]string{}
	for _, v := range verified {
		wrong[v.Name+"@"+v.Version] = v.Problem
	}
	var faults []error
	all := []lockfile.Package{}
	for _, entry := range s.Lock.Packages {
		accepted := p.isAccepted(entry)
		if wrong[entry.Name+"@"+entry.Version] == "" && accepted {
			continue
		}
		if w.frozen && !accepted {
			faults = append(faults, fmt.Errorf("%s %s has permissions that cannot be enforced on this machine; to accept them would change %s, and --frozen forbids that", entry.Name, entry.Version, p.store.Lock))
			continue
		}
		if err := c.installEntry(ctx, p, s, entry, w); err != nil {
			faults = append(faults, err)
			continue
		}
		all = append(all, entry)
	}
	if len(faults) > 0 && len(all) == 0 && !w.asJSON {
		return errors.Join(faults...) // not all of the lock is installed
	}
	if err := c.done(ctx, p, all, w.asJSON); err != nil {
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// isAccepted reports whether what this machine cannot enforce of an entry was accepted, or is not given.
func (p *place) isAccepted(entry lockfile.Package) bool {
	those, _ := p.store.Unaccepted(entry)
	return len(those) == 0 || p.cfg.PackageOf(entry.Name, entry.Source).Permissions != nil
}

// installEntry installs what the lock has of one version. Somebody else may have written the lock and the configuration, as in
// a repository that was cloned, so that a person here has to agree to what they give.
func (c command) installEntry(ctx context.Context, p *place, s *packages.Session, entry lockfile.Package, w wanted) error {
	candidate, err := c.locked(ctx, p, s, entry, w)
	c.clearProgress(p)
	if err != nil {
		return err
	}
	defer candidate.Discard()
	o, err := c.offer(ctx, p, candidate, w.frozen)
	if err != nil {
		return err
	}
	agreed, err := c.consent(ctx, p, o, w.Consent)
	if err != nil {
		return err
	}
	return candidate.Install(ctx, agreed)
}

// done notifies a running Orla, and prints what was installed.
func (c command) done(ctx context.Context, p *place, all []lockfile.Package, asJSON bool) error {
	client, reloaded := c.reload(ctx, p)
	if client == nil && len(all) > 0 { // a running Orla may have what this process lacks
		c.sayNoSandbox(ctx, p, all)
	}
	list := make([]installed, 0, len(all))
	var text strings.Builder
	for _, entry := range all {
		one := installed{Package: entry, Dir: p.store.Folder(entry.Name, entry.Version)}
		if client != nil {
			if one.Running = "served"; !entry.Serves {
				one.Running = "another version serves"
			}
			if why := notServed(reloaded, entry.Name); why != "" {
				one.Running = "not served: " + why
			}
		}
		list = append(list, one)
		fmt.Fprintf(&text, "installed %s %s in %s\n", entry.Name, entry.Version, one.Dir)
		switch {
		case one.Running != "" && one.Running != "served":
			fmt.Fprintf(&text, "  %s\n", one.Running)
		case !entry.Serves:
			fmt.Fprintf(&text, "  another version serves; orla use %s@%s changes that\n", entry.Name, entry.Version)
		}
	}
	if asJSON {
		return terminal.WriteJSON(c.std.Out, list)
	}
	if len(all) == 0 {
		text.WriteString("all that the lock has is installed\n")
	}
	return c.print(text.String())
}

// sayNoSandbox says which packages cannot be called, as this machine has no sandboxes.
func (c command) sayNoSandbox(ctx context.Context, p *place, all []lockfile.Package) {
	var needed []string
	for _, t := range discovery.Find(p.cfg, p.loader.Home).Tools {
		isOne := func(e lockfile.Package) bool { return e.Name == t.Name && e.Serves }
		if t.Isolation.Terms.Backend == manifest.BackendNative && slices.ContainsFunc(all, isOne) {
			needed = append(needed, t.Name)
		}
	}
	if len(needed) == 0 {
		return
	}
	if found := wiring.ExamineSandbox(ctx, needed); found.Level != doctor.OK {
		c.say("%s, whose calls are refused", found.Text)
		c.say("  to change that: %s; or, if you trust it, say isolation: none for it below packages in orla.yaml", found.Fix)
	}
}

// taken returns an error if another tool in the folder has the name of a package.
func (c command) taken(p *place, name string) error {
	for _, t := range discovery.Find(p.cfg, p.loader.Home).Tools {
		source := config.Absolute(t.Source)
		switch {
		case t.Name != name || permission.Below(source, filepath.Join(p.store.Dir, name)):
		case permission.Below(source, p.store.Dir):
			return fmt.Errorf("%s is a tool with this name already; remove or rename it first", t.Source)
		case !p.global:
			c.say("it will be served in place of %s", t.Source)
		}
	}
	return nil
}
