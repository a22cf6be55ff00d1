package packaged

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/discovery"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/app/wiring"
	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/packages"
	"github.com/orla-project/orla/internal/packages/lockfile"
	"github.com/orla-project/orla/internal/packages/origin"
	"github.com/orla-project/orla/internal/packages/permission"
	"github.com/orla-project/orla/manifest"
)

// updated is what orla update did with a package, or would do.
type updated struct {
	Name        string   `json:"name"`
	From        string   `json:"from"`
	To          string   `json:"to,omitempty"` // "" if nothing newer is there
	Permissions []string `json:"new_permissions,omitempty"`
	Tools       []string `json:"changed_tools,omitempty"`
	Image       string   `json:"new_image,omitempty"`
	State       string   `json:"state"` // newest, chosen (another version is installed), would update, updated, rolled back or failed
	Reason      string   `json:"reason,omitempty"`

	first bool // no version was here before
}

func (c command) update() *cobra.Command {
	var w wanted
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "update [NAME...]",
		Short: "Update packages to their highest versions",
		Long: "Update packages, or all of them, to their highest stable versions. The new version is\n" +
			"installed next to the old one. A running Orla starts it, and calls wait for it as for any\n" +
			"reload. If it does not become READY, the old version serves again.",
		Example: "  orla update\n  orla update fetch --dry-run\n  orla update --yes",
		Args:    cobra.ArbitraryArgs,
		RunE: c.session(&w.global, func(ctx context.Context, p *place, s *packages.Session, words []string) error {
			if len(words) == 0 {
				words = s.Lock.Names()
			}
			list, faults := []updated{}, []error(nil)
			for _, name := range words {
				one, err := c.updateOne(ctx, p, s, name, w, dryRun)
				if err != nil {
					one.State, one.Reason = "failed", err.Error()
					faults = append(faults, fmt.Errorf("%s: %w", name, err))
				} else if one.State == "rolled back" {
					back := one.From + " serves again"
					if one.first {
						back = "it was removed again"
					}
					faults = append(faults, fmt.Errorf("%s %s was not READY, and %s: %s", one.Name, one.To, back, one.Reason))
				}
				list = append(list, one)
			}
			if w.asJSON {
				faults = append(faults, terminal.WriteJSON(c.std.Out, list))
			} else {
				faults = append(faults, c.printUpdates(list))
			}
			return errors.Join(faults...)
		}),
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would change, and change nothing")
	w.flags(cmd)
	return cmd
}

func (c command) printUpdates(list []updated) error {
	var text strings.Builder
	if len(list) == 0 {
		text.WriteString(noPackages)
	}
	for _, u := range list {
		switch u.State {
		case "newest":
			fmt.Fprintf(&text, "%s %s is the newest\n", u.Name, u.From)
		case "chosen":
			fmt.Fprintf(&text, "%s %s was chosen, and %s is installed; orla use %[1]s@%[3]s changes that\n", u.Name, u.From, u.To)
		case "would update", "updated":
			fmt.Fprintf(&text, "%s %s -> %s: %s\n", u.Name, u.From, u.To, u.State)
		}
		for _, p := range u.Permissions {
			fmt.Fprintf(&text, "  new permission %s\n", terminal.Printable(p))
		}
		if u.Image != "" {
			fmt.Fprintf(&text, "  new image %s\n", terminal.Printable(u.Image))
		}
		for _, tool := range u.Tools {
			fmt.Fprintf(&text, "  changed definition %s\n", terminal.Printable(tool))
		}
		if u.State == "updated" && u.Reason != "" {
			fmt.Fprintf(&text, "  %s\n", terminal.Printable(u.Reason))
		}
	}
	return c.print(text.String())
}

// updateOne updates one package, and takes it back if a running Orla cannot run it.
func (c command) updateOne(ctx context.Context, p *place, s *packages.Session, name string, w wanted, dryRun bool) (updated, error) {
	before := s.Lock.Serving(name)
	if before == nil {
		return updated{Name: name}, packages.ErrNotInstalled // with the name before it
	}
	u := updated{Name: name, From: before.Version, State: "newest"}
	candidate, err := c.newer(ctx, p, s, *before, w)
	c.clearProgress(p)
	if err != nil || candidate == nil {
		return u, err
	}
	defer candidate.Discard()
	if candidate.Same && candidate.Entry.Version != before.Version {
		u.To, u.State = candidate.Entry.Version, "chosen"
		return u, nil
	}
	if candidate.Same || manifest.CompareVersions(candidate.Entry.Version, before.Version) <= 0 && before.Source.Kind != lockfile.Local {
		return u, nil
	}
	u.first = candidate.IsFirst()
	u.To, u.Permissions, u.Tools = candidate.Entry.Version, permission.Texts(candidate.More), changedTools(before.Tools, candidate.Entry.Tools)
	o, err := c.offer(ctx, p, candidate, false)
	if err != nil {
		return u, err
	}
	if image := o.pinned(); candidate.Entry.Image == "" || candidate.Entry.Image != before.Image {
		u.Image = image
	}
	if dryRun {
		u.State = "would update"
		return u, nil
	}
	agreed, err := c.consent(ctx, p, o, w.Consent)
	if err != nil {
		return u, err
	}
	end, err := c.prepare(ctx, p, candidate, agreed)
	defer end()
	if err != nil {
		return u, fmt.Errorf("%s %s was not installed, and %s serves on: %w", name, u.To, u.From, err)
	}
	if err := candidate.Install(ctx, agreed); err != nil {
		return u, err
	}
	u.State = "updated"
	client, reloaded := c.reload(ctx, p)
	if client == nil {
		return u, nil
	}
	if u.Reason, err = follow(ctx, client, reloaded, candidate); err == nil {
		return u, nil
	}
	u.State, u.Reason = "rolled back", err.Error()
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), backTime)
	defer cancel()
	if err := candidate.TakeBack(back); err != nil {
		return u, fmt.Errorf("%w; and the old version could not be restored: %w", errors.New(u.Reason), err)
	}
	c.reload(context.WithoutCancel(ctx), p)
	return u, nil
}

// prepare installs what the new version of a simple tool needs of other package managers, while the old one serves: nothing
// follows its start, which is that of each call. A capsule that runs waits for it by itself. What was installed is kept until end.
// Nothing runs outside of a sandbox that nobody has agreed to here: the configuration may be that of a repository of others, which can
// have the folder of an older version too.
func (c command) prepare(ctx context.Context, p *place, candidate *packages.Candidate, agreed packages.Consent) (end func(), err error) {
	t, entry := candidate.Tool, candidate.Entry
	if t.Kind != manifest.Simple {
		return func() {}, nil
	}
	if err := discovery.Grant(&t, &entry, p.cfg, p.loader.Home); err != nil {
		return func() {}, err
	}
	if !agreed.Permissions && (!t.Run.Setup.NoScripts || !t.Isolation.Isolated()) {
		c.say("%s: the packages that it needs are installed by its first call: %s lets that run outside of a sandbox, and --yes agrees to it", entry.Name, p.cfg.OriginOf("packages").Text)
		return func() {}, nil
	}
	if p.othersState() {
		c.say("%s: the packages that it needs are installed by its first call: state_dir in %s leads to a folder outside its own that Orla has not used yet", entry.Name, p.cfg.File)
		return func() {}, nil
	}
	tried, end, err := wiring.InstallPackages(ctx, p.cfg, t) // with the digest that it will have
	if !tried {
		c.say("%s: the packages that it needs are installed by its first call: the state folder is another user's", entry.Name)
	}
	return end, err
}

// othersState reports whether the orla.yaml of a repository, which may be somebody else's, has chosen a folder of the state that is outside of
// the repository and has no environments yet: who updates a package has not decided to run anything of that repository.
func (p *place) othersState() bool {
	dir := config.Absolute(config.StateDir(p.cfg, "env"))
	if p.global || p.chosen || dir == "" || p.cfg.OriginOf("state_dir").Rank != config.FromFile {
		return false
	}
	_, err := os.Lstat(dir)
	return err != nil && !permission.Below(regularfile.Real(dir), regularfile.Real(filepath.Dir(config.Absolute(p.cfg.File))))
}

// newer fetches the highest version; nil if the present one is it.
func (c command) newer(ctx context.Context, p *place, s *packages.Session, before lockfile.Package, w wanted) (*packages.Candidate, error) {
	if err := p.mayFetch(before.Source); err != nil {
		return nil, err
	}
	switch before.Source.Kind {
	case lockfile.Git:
	case lockfile.Local:
		return c.fromLocal(ctx, s, before.Source.URL, w)
	case lockfile.Bundle, lockfile.Server:
		return c.newerMade(ctx, p, s, before, w)
	}
	from := packages.From{URL: before.Source.URL, Name: before.Name, Registry: before.Source.Registry, AcceptSigner: w.acceptSigner, Unsigned: w.acceptNoSign}
	if from.Registry != "" {
		entry, err := c.find(ctx, p, from.Registry, before.Name, "")
		if err != nil {
			return nil, err
		}
		if entry.Repository != from.URL {
			return nil, fmt.Errorf("the registry says that it is at %s now, and it was installed from %s; run orla uninstall %s first", entry.Repository, from.URL, before.Name)
		}
		from.Signers = entry.Signers
	}
	tags, _, err := p.store.Git.Tags(ctx, from.URL)
	if err != nil {
		return nil, err
	}
	if from.Ref = origin.Latest(tags); from.Ref == "" || manifest.CompareVersions(from.Ref, before.Version) <= 0 {
		return nil, nil //nolint:nilnil // there is nothing newer
	}
	return s.Git(ctx, from)
}

// changedTools lists the tools whose definitions differ.
func changedTools(before, after map[string]string) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if before[name] != after[name] {
			names = append(names, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if after[name] == "" {
			names = append(names, name)
		}
	}
	return names
}

const (
	followEvery = 50 * time.Millisecond
	// followSlack is what a start may take beyond the tool's own startup time.
	followSlack = 15 * time.Second
	// followMost bounds the tool's own startup time here: calls wait meanwhile, and its publisher chooses it.
	followMost = time.Minute
	// backTime is how long another orla may keep a version that failed from being taken back.
	backTime = time.Minute
)

// follow waits until a running Orla runs the new version. The error says why it does not; note is for a person.
func follow(ctx context.Context, client *control.Client, reloaded *control.Reload, candidate *packages.Candidate) (note string, err error) {
	name, version := candidate.Entry.Name, candidate.Entry.Version
	if why := notServed(reloaded, name); why != "" {
		return "", errors.New(why)
	}
	patience := patienceWith(candidate.Tool)
	for deadline := time.Now().Add(patience); ; {
		t, err := client.Tool(ctx, name)
		switch refused, isRefused := errors.AsType[*control.Error](err); {
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		case isRefused:
			return "", errors.New(refused.Message)
		case err != nil:
			return "", err
		case strings.HasPrefix(t.Reason, "installing dependencies"):
			deadline = time.Now().Add(patience) // the installer has a time limit of its own
		case t.Version != version: // it waits for its packages
		case t.State == "", t.State == "READY", t.State == "CREATED" && candidate.Tool.Runtime.Start == manifest.StartLazy:
			return held(ctx, client, name), nil
		case t.Held:
			return "it is stopped, and was not tried; orla start " + name + " starts it", nil
		case t.State == "CRASHED", t.State == "STOPPED":
			return "", errors.New(t.State + ": " + t.Reason)
		}
		if time.Now().After(deadline) {
			return "", fmt.Errorf("it did not become READY within %s; it is %s", patience, t.State)
		}
		select {
		case <-time.After(followEvery):
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// patienceWith is how long a new version may take until it is READY.
func patienceWith(t manifest.Tool) time.Duration {
	return min(t.Runtime.StartupTimeout, followMost) + followSlack
}

// held says that changed definitions are not served.
func held(ctx context.Context, client *control.Client, name string) string {
	pins, err := client.Pinned(ctx, name)
	if err != nil || pins.Pin != string(manifest.PinHold) || len(pins.Items) == 0 {
		return ""
	}
	return fmt.Sprintf("%s differ from what was accepted, and are not served: orla pins diff %s", terminal.Count(len(pins.Items), "definition"), name)
}
