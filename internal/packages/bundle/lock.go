package bundle

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/orla-project/orla/internal/deps"
	"github.com/orla-project/orla/internal/deps/printed"
	"github.com/orla-project/orla/internal/observe/brief"
)

// The files that say which packages are needed.
const (
	packageFile      = "package.json"
	requirementsFile = "requirements.txt"
)

// indexLine is what a requirements.txt has about its index.
func indexLine(index string) string { return "--index-url " + index + "\n" }

// mostWithdrawn bounds the versions that notes name.
const mostWithdrawn = 10

// lockTime is how long an installer may take to find versions.
const lockTime = 5 * time.Minute

// Lock writes the lock of a package that Server has made, in its folder: all versions, and the digests of what is
// installed later. Versions that were published after a time do not count, unless it is zero. It has npm or uv ask their
// indexes; nothing of a package runs. Notes then have the versions that were withdrawn. For Python without uv there is no lock: locked is false, and only the version of the
// package itself is fixed.
func (m *Made) Lock(ctx context.Context, dir string, until time.Time, by deps.Locker) (locked bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lockTime, fmt.Errorf("the versions of its packages were not found within %s", lockTime))
	defer cancel()
	switch requirements, hasRequirements := m.Files[requirementsFile]; {
	case m.Files[packageFile] != "":
		// npm ignores options that it is too old for. Without them it would ask addresses that a package names.
		argv := []string{
			"npm", "install", "--package-lock-only", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier",
			"--git=/bin/false", "--allow-git=none", "--allow-remote=none", "--allow-file=none", "--allow-directory=none",
		}
		if m.index != "" {
			argv = append(argv, "--registry="+m.index)
		}
		if !until.IsZero() {
			argv = append(argv, "--before="+until.Format(time.RFC3339))
		}
		const name = "package-lock.json"
		text, _, err := by.Write(ctx, argv, packageFile, m.Files[packageFile], name)
		if err != nil {
			return true, err
		}
		m.noteWithdrawn(deprecated(text))
		return true, os.WriteFile(filepath.Join(dir, name), text, 0o644) //nolint:gosec // it has no secrets
	case hasRequirements && !by.Has("uv"):
		return false, nil
	case hasRequirements:
		const out = "requirements.locked"
		// Only wheels: to ask a source distribution for its dependencies is to run it.
		argv := []string{
			"uv", "pip", "compile", "--no-header", "--no-annotate", "--generate-hashes", "--only-binary", ":all:",
			"--no-config", "--no-sources", "--output-file", out,
		}
		if by.Python != "" {
			argv = append(argv, "--python="+by.Python)
		}
		index := ""
		if m.index != "" {
			argv, index = append(argv, "--index-url="+m.index), indexLine(m.index)
		}
		if !until.IsZero() {
			argv = append(argv, "--exclude-newer="+until.Format(time.RFC3339))
		}
		text, withdrawn, err := by.Write(ctx, append(argv, requirementsFile), requirementsFile, strings.TrimPrefix(requirements, index), out)
		if err != nil {
			return false, err
		}
		m.noteWithdrawn(withdrawn)
		// The user's own index is left out: its URL may have a password.
		return true, os.WriteFile(filepath.Join(dir, requirementsFile), append([]byte(index), text...), 0o644) //nolint:gosec // the same
	}
	return true, nil
}

// noteWithdrawn adds the versions to the notes that their publishers have withdrawn.
func (m *Made) noteWithdrawn(list []printed.Withdrawal) {
	for i, w := range list {
		if i == mostWithdrawn {
			m.Notes = append(m.Notes, fmt.Sprintf("%d more versions were withdrawn by their publishers", len(list)-i))
			return
		}
		m.Notes = append(m.Notes, line(w.String(), 400))
	}
}

// deprecated returns the versions in a package-lock.json that npm says are deprecated. It does not print them while it writes one.
func deprecated(text []byte) (list []printed.Withdrawal) {
	var lock struct {
		Packages map[string]struct{ Version, Deprecated string }
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		return nil // deps has read what counts of it
	}
	for _, place := range slices.Sorted(maps.Keys(lock.Packages)) {
		one, names := lock.Packages[place], strings.Split(place, "node_modules/")
		if w := printed.NewWithdrawal(names[len(names)-1], one.Version, one.Deprecated); one.Deprecated != "" && !slices.Contains(list, w) {
			list = append(list, w)
		}
	}
	return list
}

// output runs a program in the root folder, where it finds nothing of ours, and returns the end of its output.
func output(ctx context.Context, program string, args ...string) ([]byte, error) {
	return outputOf(ctx, nil, program, args...)
}

// outputOf is output with an environment; nil is for that of this process.
func outputOf(ctx context.Context, environ []string, program string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lockTime, fmt.Errorf("%s did not finish within %s", program, lockTime))
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = "/", environ
	out, said := &tail{}, &tail{}
	cmd.Stdout, cmd.Stderr = out, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 2 * time.Second
	err := cmd.Run()
	switch {
	case err == nil:
		return out.Bytes(), nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, exec.ErrNotFound):
		return nil, fmt.Errorf("the program %s is not installed, which the package needs to be installed", program)
	}
	return nil, fmt.Errorf("%s failed: %s", program, cmp.Or(said.words(), out.words(), err.Error()))
}

// tail keeps the end of an output.
type tail struct{ bytes.Buffer }

func (t *tail) Write(p []byte) (int, error) {
	if t.Len() > 16<<10 {
		t.Next(t.Len() - 4<<10)
	}
	return t.Buffer.Write(p)
}

// words returns the last lines, without what a terminal would obey.
func (t *tail) words() string {
	text := brief.Plain(t.String())
	return brief.Plain(text[max(0, len(text)-1500):])
}
