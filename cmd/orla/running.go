package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/control"
)

// noSocket is the value of socket that wants no control socket.
const noSocket = "none"

// folder is what an Orla with this configuration serves.
func (c *loaded) folder() string { return cmp.Or(c.only, c.ToolsDir) }

// place is where an Orla with this configuration has its control socket.
func (c *loaded) place(l *loader) control.Place {
	switch c.Socket {
	case noSocket:
		return control.Place{}
	case "":
	default:
		return control.Place{Socket: absolute(c.Socket)}
	}
	if given := l.runtimeDirectory(); given != "" {
		return control.Place{Socket: control.In(given, c.folder())}
	}
	for _, dir := range []string{l.userRuntimeDir(), stateDir(c, "run")} {
		if dir != "" {
			return control.Place{Socket: control.In(absolute(dir), c.folder()), Private: true}
		}
	}
	return control.Place{}
}

// runtimeDirectory is the folder for sockets that systemd gives a service
// (RuntimeDirectory=); "" if it gives none.
func (l *loader) runtimeDirectory() string {
	given, _ := lookup(l.environ, "RUNTIME_DIRECTORY")
	first, _, _ := strings.Cut(given, ":")
	return first
}

// userRuntimeDir is where a user's sockets belong while a session lasts; "" if
// nothing says so, or it is another user's, as under sudo -E.
func (l *loader) userRuntimeDir() string {
	dir, _ := lookup(l.environ, "XDG_RUNTIME_DIR")
	return ownFolder(dir)
}

// sessionDir is the same for who looks for a socket: somebody else may have
// been told.
func (l *loader) sessionDir() string {
	if _, told := lookup(l.environ, "XDG_RUNTIME_DIR"); told {
		return l.userRuntimeDir()
	}
	return ownFolder(fmt.Sprintf("/run/user/%d", os.Geteuid()))
}

// ownFolder is the folder of Orla's sockets in dir, if dir is this user's.
func ownFolder(dir string) string {
	info, err := os.Stat(dir)
	if err != nil || !filepath.IsAbs(dir) {
		return ""
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || int(owner.Uid) != os.Geteuid() {
		return ""
	}
	return filepath.Join(dir, "orla")
}

// systemDir is where an Orla that is a service of the system has its socket.
const systemDir = "/run/orla"

// socketDirs are where an Orla may have its socket that this user can talk to.
func (c *loaded) socketDirs(l *loader) []string {
	var dirs []string
	for _, dir := range []string{l.runtimeDirectory(), l.sessionDir(), stateDir(c, "run"), systemDir} {
		if dir != "" {
			dirs = append(dirs, absolute(dir))
		}
	}
	return dirs
}

// anyOrla finds the Orla that a command is about: the one whose socket was
// given, else the one that serves the configured folder, else, if nobody named
// a folder and this is not a project of its own, the only one that runs.
func anyOrla(flags *configFlags, cmd *cobra.Command) (*control.Client, error) {
	cfg, l, err := whatThereIs(flags, cmd)
	if err != nil {
		return nil, err
	}
	client, err := ownOrla(cmd.Context(), cfg, l)
	if !errors.Is(err, control.ErrNotRunning) || cfg.Socket != "" && cfg.toldHere("socket") {
		return client, talk(err)
	}
	if cfg.toldHere("tools_dir") {
		return nil, notRunning(fmt.Errorf("no Orla serves %s", absolute(cfg.folder())))
	}
	all, err := control.All(cmd.Context(), cfg.socketDirs(l))
	switch {
	case err != nil:
		return nil, talk(err)
	case len(all) == 0:
		return nil, notRunning(errors.New("no Orla is running"))
	case len(all) == 1 && cfg.isProject() && !cfg.isBelow(all[0].ToolsDir):
		return nil, &failure{
			code: exitNotRunning, err: fmt.Errorf("no Orla serves %s; one serves %s", absolute(cfg.folder()), all[0].ToolsDir),
			hint: fmt.Sprintf("--tools-dir %s means that one; orla starts one here", all[0].ToolsDir),
		}
	case len(all) == 1:
		return control.NewClient(all[0].Socket), nil
	}
	lines := []error{fmt.Errorf("%d Orlas are running, and none serves %s", len(all), absolute(cfg.folder()))}
	for _, one := range all {
		lines = append(lines, fmt.Errorf("%s: pid %d, %s", one.ToolsDir, one.Pid, one.URL))
	}
	return nil, &failure{code: exitUsage, err: errors.Join(lines...), hint: "say which with --tools-dir"}
}

// isProject reports whether the folder that one stands in has tools or a configuration of
// its own: what is asked there is not about another project's Orla.
func (c *loaded) isProject() bool {
	info, err := os.Stat(c.folder())
	return err == nil && info.IsDir() || c.file != "" && !filepath.IsAbs(c.file)
}

// isBelow reports whether a folder is inside the tools folder, as that of orla dev is.
func (c *loaded) isBelow(folder string) bool {
	return strings.HasPrefix(control.Resolve(folder), control.Resolve(c.folder())+string(filepath.Separator))
}

// toldHere reports whether a key was given on the command line or in its
// environment: whoever did that means it.
func (c *loaded) toldHere(key string) bool { return c.originOf(key).rank >= fromEnviron }

// ownOrla finds the Orla of a configuration. The error matches
// control.ErrNotRunning if there is none. What the file says of the socket may
// be new to the Orla that runs.
func ownOrla(ctx context.Context, cfg *loaded, l *loader) (*control.Client, error) {
	if cfg.Socket == noSocket && cfg.toldHere("socket") {
		return nil, fmt.Errorf("%w that could be talked to: the socket is none", control.ErrNotRunning)
	}
	if cfg.Socket != noSocket && cfg.Socket != "" {
		_, err := control.Find(ctx, absolute(cfg.Socket))
		if !errors.Is(err, control.ErrNotRunning) || cfg.toldHere("socket") {
			return control.NewClient(absolute(cfg.Socket)), err
		}
	}
	for _, dir := range cfg.socketDirs(l) {
		socket := control.In(dir, cfg.folder())
		_, err := control.Find(ctx, socket)
		if !errors.Is(err, control.ErrNotRunning) && !errors.Is(err, os.ErrPermission) {
			return control.NewClient(socket), err
		}
	}
	return nil, control.ErrNotRunning
}

// serving is the Orla that serves what is configured; nil if none does.
func serving(ctx context.Context, cfg *loaded, l *loader) (*control.Client, error) {
	client, err := ownOrla(ctx, cfg, l)
	if errors.Is(err, control.ErrNotRunning) {
		return nil, nil
	}
	return client, talk(err)
}

// inUseByOrla says which Orla has the configured address, if one of this user's has; nil if
// none has.
func inUseByOrla(ctx context.Context, l *loader, cfg *loaded) error {
	all, _ := control.All(ctx, cfg.socketDirs(l)) // what cannot be asked is none
	for _, one := range all {
		at, err := url.Parse(one.URL)
		if err != nil || at.Host != cfg.address() {
			continue
		}
		if control.Resolve(one.ToolsDir) == control.Resolve(cfg.folder()) {
			return &failure{
				code: exitFailed, err: fmt.Errorf("an Orla serves %s already, at %s (pid %d)", one.ToolsDir, one.URL, one.Pid),
				hint: "orla status shows what it does, orla reload has it read its files again",
			}
		}
		return &failure{
			code: exitFailed, err: fmt.Errorf("%s is in use by the Orla that serves %s (pid %d)", at.Host, one.ToolsDir, one.Pid),
			hint: "take another port with --port, or 0 for any that is free",
		}
	}
	return nil
}

// developing is the Orla that serves one tool of the configured folder alone, as
// orla dev does, if that is the one with this name; nil if none does.
func developing(ctx context.Context, cfg *loaded, l *loader, tool string) *control.Client {
	if cfg.toldHere("socket") {
		return nil
	}
	all, _ := control.All(ctx, cfg.socketDirs(l)) // what cannot be asked is none
	for _, one := range all {
		if !cfg.isBelow(one.ToolsDir) {
			continue
		}
		client := control.NewClient(one.Socket)
		tools, _ := client.Tools(ctx) // none if it cannot be asked
		if slices.ContainsFunc(tools, func(t control.ListedTool) bool { return t.Name == tool }) {
			return client
		}
	}
	return nil
}

// whatThereIs loads the configuration as far as it holds: an Orla that runs can
// be asked while its configuration is being mended. Flags must hold.
func whatThereIs(flags *configFlags, cmd *cobra.Command) (*loaded, *loader, error) {
	l := flags.loader(cmd.Flags())
	cfg, err := l.load()
	if usage, ok := errors.AsType[*failure](notLoaded(err)); ok && err != nil && usage.code == exitUsage {
		return nil, nil, usage
	}
	return cfg, l, nil
}

func notRunning(err error) error {
	return &failure{code: exitNotRunning, err: err, hint: "orla starts one here, orla --tools-dir DIR elsewhere"}
}

// talk is how a command ends that could not ask, or was refused.
func talk(err error) error {
	var f *failure
	refused, isRefused := errors.AsType[*control.Error](err)
	switch {
	case err == nil || errors.As(err, &f):
		return err
	case errors.Is(err, control.ErrNotRunning):
		return notRunning(err)
	case errors.Is(err, os.ErrPermission):
		return &failure{code: exitNotRunning, err: err, hint: "only its own user and root may talk to an Orla; try sudo"}
	case isRefused && refused.Code == control.CodeConfiguration:
		return &failure{code: exitInvalid, err: err, hint: refused.Hint}
	case errors.Is(err, context.DeadlineExceeded):
		return &failure{code: exitFailed, err: errors.New("an Orla is there, and does not answer"), hint: "its log may say why"}
	case isRefused:
		return &failure{code: exitFailed, err: err, hint: refused.Hint}
	}
	return &failure{code: exitFailed, err: fmt.Errorf("talk to Orla: %w", err)}
}
