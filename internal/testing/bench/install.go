package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// work is a command whose time is compared with that of others.
type work struct {
	name string
	run  func(round int) *exec.Cmd
}

// measureInstall compares an install of a package with what git does alone, and a tool that has dependencies with the
// same tool in an environment that the user has made (SPEC M, R5).
func measureInstall(ctx context.Context, b *bench) ([]table, error) {
	for _, program := range []string{"git", "python3"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, nil //nolint:nilerr // without it, there is no measurement
		}
	}
	dir := filepath.Join(b.dir, "install")
	registry, tool := filepath.Join(dir, "registry"), filepath.Join(dir, "say")
	if err := repositories(ctx, registry, tool); err != nil {
		return nil, err
	}
	installs, err := b.inTurns(ctx, []work{
		{"git clone of the tag alone", func(round int) *exec.Cmd {
			return exec.CommandContext(ctx, "git", "clone", "--quiet", "--depth", "1", "--branch", "v1.0.0", "file://"+tool, filepath.Join(dir, fmt.Sprint("clone-", round)))
		}},
		{"orla install, from a registry", func(round int) *exec.Cmd {
			at := filepath.Join(dir, fmt.Sprint("tools-", round))
			return b.apart(exec.CommandContext(ctx, b.orla, "install", "say", "--registry", "file://"+registry, "--yes", "--tools-dir", at), dir)
		}},
	})
	if err != nil {
		return nil, err
	}
	installs.title = "An install from a git repository of this machine"
	installs.note = "The install also asks which tags there are, reads the registry, checks each file, and writes them to the disk for good."

	python, err := realPython(ctx)
	if err != nil {
		return nil, err
	}
	plain, needing := filepath.Join(dir, "plain"), filepath.Join(dir, "needing")
	const builds = "python3 -m venv --without-pip"
	if err := errors.Join(
		put(filepath.Join(plain, "tool.py"), "#!/usr/bin/env python3\nprint(1)\n"),
		put(filepath.Join(needing, "tool.py"), "#!/usr/bin/env python3\n# /// tool\n# description: x\n# setup: [sh, -c, 'exec "+builds+" $ORLA_ENV']\n# ///\nprint(1)\n"),
		put(filepath.Join(needing, "requirements.txt"), "acme\n"),
	); err != nil {
		return nil, err
	}
	call := func(tools, state string) *exec.Cmd {
		cmd := b.apart(exec.CommandContext(ctx, b.orla, "call", "tool", "--socket", "none", "--tools-dir", tools), dir)
		cmd.Env = append(cmd.Env, "ORLA_STATE_DIR="+filepath.Join(dir, state), "PATH="+filepath.Dir(python)+":"+os.Getenv("PATH"))
		return cmd
	}
	for _, cmd := range []*exec.Cmd{
		exec.CommandContext(ctx, python, "-m", "venv", "--without-pip", filepath.Join(plain, ".venv")),
		call(needing, "state"), // its dependencies are there from now on
	} {
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%w: %s", err, out)
		}
	}
	starts, err := b.inTurns(ctx, []work{
		{"a tool with a .venv of the user", func(int) *exec.Cmd { return call(plain, "state") }},
		{"one with dependencies that are unchanged", func(int) *exec.Cmd { return call(needing, "state") }},
		{"the installer alone", func(round int) *exec.Cmd {
			return exec.CommandContext(ctx, python, "-m", "venv", "--without-pip", filepath.Join(dir, fmt.Sprint("venv-", round)))
		}},
		{"one whose dependencies are installed first", func(round int) *exec.Cmd { return call(needing, fmt.Sprint("state-", round)) }},
	})
	if err != nil {
		return nil, err
	}
	starts.title = "A call of a Python tool with dependencies (R5)"
	starts.note = "Each line is `orla call` as a whole, from exec to exit. The installer is `" + builds + "`, so that no network is measured."
	return []table{installs, starts}, nil
}

// inTurns runs each work in turns, and returns a table of their times. The first one is what the others are compared
// with.
func (b *bench) inTurns(ctx context.Context, all []work) (table, error) {
	t := table{header: []string{"what", "runs", "p50", "to the first", "CPU", "to the first"}}
	took, used := make([][]time.Duration, len(all)), make([][]time.Duration, len(all))
	for round := range b.scale.manyStarts {
		for i, w := range all {
			cmd := w.run(round)
			began := time.Now()
			if out, err := cmd.CombinedOutput(); err != nil {
				return t, fmt.Errorf("%s: %w: %s", w.name, err, out)
			}
			took[i] = append(took[i], time.Since(began))
			used[i] = append(used[i], cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
		}
		if ctx.Err() != nil {
			return t, ctx.Err()
		}
	}
	wall, cpu := median(took[0]), median(used[0])
	for i, w := range all {
		p50, own := median(took[i]), median(used[i])
		t.add(w.name, fmt.Sprint(len(took[i])), millis(p50), times(quotient(p50, wall)), millis(own), times(quotient(own, cpu)))
	}
	return t, nil
}

// apart lets a command have a home of its own.
func (b *bench) apart(cmd *exec.Cmd, dir string) *exec.Cmd {
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+dir, "XDG_CACHE_HOME="+filepath.Join(dir, "cache"))
	return cmd
}

// repositories makes a registry, and the repository of the tool that it names.
func repositories(ctx context.Context, registry, tool string) error {
	if err := errors.Join(
		put(filepath.Join(registry, "registry.yaml"), "version: 1\nregistry_url: file://"+registry+"\ntools:\n  - {name: say, description: It says something., repository: 'file://"+tool+"'}\n"),
		put(filepath.Join(tool, "tool.yaml"), "name: say\nversion: 1.0.0\ndescription: It says something.\nentrypoint: run\n"),
		put(filepath.Join(tool, "run"), "#!/bin/sh\necho something\n"),
	); err != nil {
		return err
	}
	for _, dir := range []string{registry, tool} {
		for _, args := range [][]string{{"init", "--quiet"}, {"add", "-A"}, {"-c", "user.name=bench", "-c", "user.email=bench@localhost", "commit", "--quiet", "-m", "1.0.0"}, {"tag", "v1.0.0"}} {
			if _, err := output(ctx, "git", append([]string{"-C", dir}, args...)...); err != nil {
				return err
			}
		}
	}
	return nil
}

// put writes a program or a file, and the folder that it is in.
func put(file, text string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text), 0o755)
}
