// Package packaged has the commands about packages (RFC 3 §10, SPEC M): install, list, search, info, uninstall,
// update, use, verify and cache. They work on files, and notify a running Orla.
package packaged

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/orla-project/orla/internal/deps/versions"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/cli/running"
	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/discovery"
	"github.com/orla-project/orla/internal/app/doctor"
	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/packages"
	"github.com/orla-project/orla/internal/packages/lockfile"
	"github.com/orla-project/orla/internal/packages/origin"
	"github.com/orla-project/orla/internal/packages/permission"
)

// command is what all commands share.
type command struct {
	flags *config.Flags
	std   terminal.Streams
}

// New returns the commands.
func New(flags *config.Flags, std terminal.Streams) []*cobra.Command {
	c := command{flags, std}
	return []*cobra.Command{c.install(), c.list(), c.search(), c.info(), c.uninstall(), c.update(), c.use(), c.verify(), c.pack(), c.cache()}
}

// place is where packages are installed, by the configuration of a command.
type place struct {
	cfg    *config.Loaded
	loader *config.Loader
	store  packages.Store
	global bool
	chosen bool // the user named the configuration
}

// place finds the folder of tools of the nearest orla.yaml, or that of the user (RFC 3 §7.2).
func (c command) place(cmd *cobra.Command, global bool) (*place, error) {
	l := c.flags.Loader(cmd.Flags())
	chosen := l.Path != ""
	if !chosen && !global {
		l.Path = lockfile.Nearest(config.Absolute("."))
	}
	cfg, err := l.Load()
	if err != nil {
		return nil, config.NotLoaded(err)
	}
	own := cfg.File != "" && (l.Home == "" || config.Absolute(cfg.File) != filepath.Join(l.Home, ".orla", "config.yaml"))
	given := cfg.GivenHere("tools_dir")
	p := &place{cfg: cfg, loader: l, global: global || !own && !given, chosen: chosen}
	switch {
	case global && given:
		return nil, &exit.Error{Code: exit.Usage, Err: errors.New("--global does not go with --tools-dir")}
	case p.global && l.Home == "":
		return nil, &exit.Error{Code: exit.Failed, Err: errors.New("there is no home, and no orla.yaml in this folder or above it"), Hint: "--tools-dir names a folder"}
	case p.global:
		p.store.Dir = filepath.Join(l.Home, ".orla", "tools")
	case given, cfg.OriginOf("tools_dir").Rank == config.FromFile:
		p.store.Dir = config.Absolute(cfg.ToolsDir)
	default:
		p.store.Dir = filepath.Join(filepath.Dir(config.Absolute(cfg.File)), "tools")
	}
	if !p.global {
		cfg.ToolsDir = p.store.Dir
	}
	p.store.Lock = lockfile.Path(p.store.Dir, config.Absolute(cfg.File), l.Home)
	p.store.Machine = discovery.MachineOf(cfg, l.Home)
	p.store.Git.Limits = origin.Limits{Bytes: int64(cfg.MaxPackage)}
	p.store.Waiting = func(process int) {
		by := ""
		if process != 0 {
			by = fmt.Sprintf(" (process %d)", process)
		}
		c.say("waiting for another orla that changes what is installed%s; it can be ended without harm", by)
	}
	if terminal.IsTerminal(c.std.Err) {
		p.store.Git.Progress = func(line string) { fmt.Fprintf(c.std.Err, "\r\x1b[K%s", terminal.Printable(line)) }
	}
	return p, nil
}

// open opens the folder of tools to change what is installed. The orla.yaml of a repository of others can name any folder,
// and its orla.lock what is written and removed there: one elsewhere that has no packages yet has to be named by the user.
func (p *place) open(ctx context.Context) (*packages.Session, error) {
	dir := regularfile.Real(p.store.Dir)
	if !p.global && !p.chosen && !p.cfg.GivenHere("tools_dir") && !permission.Below(dir, regularfile.Real(filepath.Dir(config.Absolute(p.cfg.File)))) {
		if info, err := os.Lstat(filepath.Join(dir, lockfile.WorkDir)); err != nil || !info.IsDir() {
			return nil, &exit.Error{
				Code: exit.Failed,
				Err:  fmt.Errorf("tools_dir in %s leads to %s, which is outside its own folder and has no packages yet; nothing was changed", p.cfg.File, dir),
				Hint: "if you want packages there, say it once with --tools-dir " + terminal.Printable(dir),
			}
		}
	}
	return p.store.Open(ctx)
}

// clearProgress removes the last line of the progress of git.
func (c command) clearProgress(p *place) {
	if p.store.Git.Progress != nil {
		_, _ = io.WriteString(c.std.Err, "\r\x1b[K") // it is only for looks
	}
}

// missing says which programs a package needs that are not there (SPEC R1).
func (c command) missing(ctx context.Context, candidate *packages.Candidate) {
	for _, need := range candidate.About.Requires {
		f := doctor.Requirement(ctx, need, versions.Satisfies, []string{candidate.Entry.Name})
		if f.Level == doctor.OK {
			continue
		}
		if c.say("%s", f.Text); f.Fix != "" {
			c.say("  to install it: %s", f.Fix)
		}
	}
	for _, warning := range candidate.Warnings {
		c.say("%v", warning)
	}
}

// say prints a line for a person.
func (c command) say(format string, args ...any) {
	fmt.Fprintln(c.std.Err, terminal.Printable(fmt.Sprintf(format, args...)))
}

// here runs a command at the place of its configuration, until ctrl-C.
func (c command) here(global *bool, run func(context.Context, *place, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, words []string) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		p, err := c.place(cmd, *global)
		if err != nil {
			return err
		}
		return failed(ctx, run(ctx, p, words))
	}
}

// session is here for a command that changes what is installed.
func (c command) session(global *bool, run func(context.Context, *place, *packages.Session, []string) error) func(*cobra.Command, []string) error {
	return c.here(global, func(ctx context.Context, p *place, words []string) error {
		p.store.Git.Local = p.fromFiles() // which of them may be opened is decided for each
		s, err := p.open(ctx)
		if err != nil {
			return err
		}
		return run(ctx, p, s, words)
	})
}

// failed returns the error of a command.
func failed(ctx context.Context, err error) error {
	_, hasCode := errors.AsType[*exit.Error](err)
	switch {
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return errors.New("interrupted; nothing was changed")
	case hasCode:
	case errors.Is(err, packages.ErrNotInstalled):
		return &exit.Error{Code: exit.Failed, Err: err, Hint: "orla list lists what is installed"}
	case errors.Is(err, packages.ErrConsent):
		return &exit.Error{Code: exit.Failed, Err: err, Hint: "nothing was changed"}
	}
	return err
}

// reload has the running Orla notice what has changed. It returns nil without one.
func (c command) reload(ctx context.Context, p *place) (*control.Client, *control.Reload) {
	client, err := running.Serving(ctx, p.cfg, p.loader)
	if err != nil || client == nil {
		return nil, nil
	}
	done, err := client.Reload(ctx, control.ReloadRequest{})
	if err != nil {
		c.say("the running Orla could not be told: %v", err)
		return nil, nil
	}
	return client, done
}

// notServed returns why a reload did not serve a package; "" if it did.
func notServed(done *control.Reload, name string) string {
	if done == nil {
		return ""
	}
	if why := done.Failed[name]; why != "" {
		return why
	}
	for _, problem := range done.Problems {
		if problem.Tool == name && problem.Severity == "error" {
			return strings.Join(problem.Messages, "; ")
		}
	}
	return ""
}

// flagged adds --global and --json to a command.
func flagged(cmd *cobra.Command, global, asJSON *bool) *cobra.Command {
	cmd.Flags().BoolVar(global, "global", false, "the packages of this user, in ~/.orla/tools")
	cmd.Flags().BoolVar(asJSON, "json", false, "print JSON")
	return cmd
}

// print writes text for a person.
func (c command) print(text string) error { return terminal.WriteLines(c.std.Out, text) }

// versioned splits NAME@VERSION.
func versioned(word string) (name, version string) {
	name, version, _ = strings.Cut(word, "@")
	return name, strings.TrimPrefix(version, "v")
}

// readLock reads the lock without waiting for anybody.
func (p *place) readLock() (*lockfile.Lock, error) {
	lock, err := lockfile.Read(p.store.Lock)
	if err != nil {
		return nil, &exit.Error{Code: exit.Invalid, Err: err}
	}
	return lock, nil
}

// isThere reports whether a version is installed.
func (p *place) isThere(entry lockfile.Package) bool {
	_, err := os.Stat(filepath.Join(p.store.Folder(entry.Name, entry.Version), lockfile.RecordName))
	return err == nil
}
