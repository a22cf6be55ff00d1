package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/control"
)

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
