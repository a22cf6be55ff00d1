// Package running finds the Orla that a command asks, and explains errors of asking it.
package running

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/control/unixsocket"
	"github.com/orla-project/orla/internal/app/exit"
)

// Any finds the Orla for a command that only shows something: the one whose socket was given; else the
// one that serves the configured folder; else, if no folder was set and the current folder is not a
// project, the only one that runs.
func Any(flags *config.Flags, cmd *cobra.Command) (*control.Client, error) {
	return find(flags, cmd, func(*unixsocket.Running) bool { return true })
}

// Here finds the Orla for a command that changes something. The only one that runs may be that of
// another project, so it also has to belong to the current folder.
func Here(flags *config.Flags, cmd *cobra.Command) (*control.Client, error) {
	return find(flags, cmd, config.BelongsHere)
}

// Show returns the function of a command that shows something of the Orla that Any finds.
func Show(flags *config.Flags, run func(cmd *cobra.Command, client *control.Client, words []string) error) func(*cobra.Command, []string) error {
	return with(Any, flags, run)
}

// Change returns the function of a command that changes something of the Orla that Here finds.
func Change(flags *config.Flags, run func(cmd *cobra.Command, client *control.Client, words []string) error) func(*cobra.Command, []string) error {
	return with(Here, flags, run)
}

func with(
	which func(*config.Flags, *cobra.Command) (*control.Client, error), flags *config.Flags,
	run func(*cobra.Command, *control.Client, []string) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, words []string) error {
		client, err := which(flags, cmd)
		if err != nil {
			return err
		}
		return run(cmd, client, words)
	}
}

func find(flags *config.Flags, cmd *cobra.Command, may func(*unixsocket.Running) bool) (*control.Client, error) {
	cfg, l, err := Load(flags, cmd)
	if err != nil {
		return nil, err
	}
	client, err := Own(cmd.Context(), cfg, l)
	if !errors.Is(err, unixsocket.ErrNotRunning) || cfg.Socket != "" && cfg.GivenHere("socket") {
		return client, Explain(err)
	}
	if cfg.GivenHere("tools_dir") {
		return nil, notRunning(fmt.Errorf("no Orla serves %s", config.Absolute(cfg.Folder())))
	}
	all, err := unixsocket.All(cmd.Context(), cfg.SocketDirs(l))
	switch {
	case err != nil:
		return nil, Explain(err)
	case len(all) == 0:
		_, fault := l.Load() // it may hide where the socket is
		return nil, notRunning(errors.Join(errors.New("no Orla is running"), fault))
	case len(all) == 1 && !cfg.IsBelow(all[0].ToolsDir) && (cfg.IsProject() || !may(all[0])):
		return nil, &exit.Error{
			Code: exit.NotRunning, Err: fmt.Errorf("no Orla serves %s; one serves %s", config.Absolute(cfg.Folder()), all[0].ToolsDir),
			Hint: fmt.Sprintf("--tools-dir %s means that one; orla starts one here", all[0].ToolsDir),
		}
	case len(all) == 1:
		return control.NewClient(all[0].Socket), nil
	}
	lines := []error{fmt.Errorf("%d Orlas are running, and none serves %s", len(all), config.Absolute(cfg.Folder()))}
	for _, one := range all {
		lines = append(lines, fmt.Errorf("%s: pid %d, %s", one.ToolsDir, one.Pid, one.URL))
	}
	return nil, &exit.Error{Code: exit.Usage, Err: errors.Join(lines...), Hint: "say which with --tools-dir"}
}

// Own finds the Orla of a configuration. The error matches unixsocket.ErrNotRunning if there is none. The
// running Orla may not have read the file's present setting of the socket yet.
func Own(ctx context.Context, cfg *config.Loaded, l *config.Loader) (*control.Client, error) {
	if cfg.Socket == config.NoSocket && cfg.GivenHere("socket") {
		return nil, fmt.Errorf("%w that this command can reach: socket is set to none", unixsocket.ErrNotRunning)
	}
	if cfg.Socket != config.NoSocket && cfg.Socket != "" {
		_, err := unixsocket.Find(ctx, config.Absolute(cfg.Socket))
		if !errors.Is(err, unixsocket.ErrNotRunning) || cfg.GivenHere("socket") {
			return control.NewClient(config.Absolute(cfg.Socket)), err
		}
	}
	for _, dir := range cfg.SocketDirs(l) {
		socket := unixsocket.In(dir, cfg.Folder())
		_, err := unixsocket.Find(ctx, socket)
		if !errors.Is(err, unixsocket.ErrNotRunning) && !errors.Is(err, os.ErrPermission) {
			return control.NewClient(socket), err
		}
	}
	return nil, unixsocket.ErrNotRunning
}

// Serving returns the Orla that serves the configured folder; nil if none does.
func Serving(ctx context.Context, cfg *config.Loaded, l *config.Loader) (*control.Client, error) {
	client, err := Own(ctx, cfg, l)
	if errors.Is(err, unixsocket.ErrNotRunning) {
		return nil, nil
	}
	return client, Explain(err)
}

// Developing returns the Orla that serves only one tool of the configured folder, as orla dev does, if it is
// the tool with this name; nil if none does.
func Developing(ctx context.Context, cfg *config.Loaded, l *config.Loader, tool string) *control.Client {
	if cfg.GivenHere("socket") {
		return nil
	}
	all, _ := unixsocket.All(ctx, cfg.SocketDirs(l)) // what cannot be asked is none
	for _, one := range all {
		if !cfg.IsBelow(one.ToolsDir) {
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

// Load loads the configuration, and ignores faults in it: a running Orla can be asked while its
// configuration is being fixed. Faults in flags are errors.
func Load(flags *config.Flags, cmd *cobra.Command) (*config.Loaded, *config.Loader, error) {
	l := flags.Loader(cmd.Flags())
	cfg, err := l.Load()
	if usage, ok := errors.AsType[*exit.Error](config.NotLoaded(err)); ok && err != nil && usage.Code == exit.Usage {
		return nil, nil, usage
	}
	return cfg, l, nil
}

func notRunning(err error) error {
	return &exit.Error{Code: exit.NotRunning, Err: err, Hint: "orla starts one here, orla --tools-dir DIR elsewhere"}
}

// Explain returns the error of a command whose request failed or was refused.
func Explain(err error) error {
	var f *exit.Error
	refused, isRefused := errors.AsType[*control.Error](err)
	switch {
	case err == nil || errors.As(err, &f):
		return err
	case errors.Is(err, unixsocket.ErrNotRunning):
		return notRunning(err)
	case errors.Is(err, os.ErrPermission):
		if refused, ok := errors.AsType[*net.OpError](err); ok && refused.Addr != nil { // it says the path once more
			err = fmt.Errorf("%s: %w", refused.Addr, os.ErrPermission)
		}
		return &exit.Error{Code: exit.NotRunning, Err: err, Hint: "only its own user and root may talk to an Orla; try sudo"}
	case isRefused && refused.Code == control.CodeConfiguration:
		return &exit.Error{Code: exit.Invalid, Err: err, Hint: refused.Hint}
	case errors.Is(err, context.DeadlineExceeded):
		return &exit.Error{Code: exit.Failed, Err: errors.New("an Orla is running, but does not answer"), Hint: "its log may say why"}
	case isRefused:
		return &exit.Error{Code: exit.Failed, Err: err, Hint: refused.Hint}
	}
	return &exit.Error{Code: exit.Failed, Err: fmt.Errorf("talk to Orla: %w", err)}
}
