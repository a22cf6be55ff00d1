package bundle

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/orla-project/orla/internal/observe/brief"
)

// lockTime is how long an installer may take to find versions.
const lockTime = 5 * time.Minute

// Lock writes the lock of a package that Server has made, in its folder: all versions, and the digests of what is
// installed later. Versions that were published after a time do not count, unless it is zero. It runs npm or uv, which ask their indexes and run nothing of a package. For Python without
// uv there is no lock: locked is false, and only the version of the package itself is fixed.
func Lock(ctx context.Context, dir string, until time.Time) (locked bool, err error) {
	exists := func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, name))
		return err == nil
	}
	switch {
	case exists("package.json") && exists(nodeFile) && !exists("package-lock.json"):
		args := []string{"install", "--package-lock-only", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier"}
		if !until.IsZero() {
			args = append(args, "--before="+until.Format(time.RFC3339))
		}
		return true, run(ctx, dir, "npm", args...)
	case exists("requirements.txt") && exists(pythonFile):
		if _, err := exec.LookPath("uv"); err != nil {
			return false, nil //nolint:nilerr // without uv there is no lock
		}
		const out = "requirements.locked"
		// Only wheels: to ask a source distribution for its dependencies is to run it.
		args := []string{"pip", "compile", "--quiet", "--no-header", "--no-annotate", "--generate-hashes", "--only-binary", ":all:", "--output-file", out}
		if !until.IsZero() {
			args = append(args, "--exclude-newer="+until.Format(time.RFC3339))
		}
		if err := run(ctx, dir, "uv", append(args, "requirements.txt")...); err != nil {
			return false, err
		}
		return true, replaceRequirements(filepath.Join(dir, "requirements.txt"), filepath.Join(dir, out))
	}
	return true, nil
}

// replaceRequirements replaces a file with its locked form, but for the index that the registry names. The user's own index
// is left out: its URL may have a password.
func replaceRequirements(file, locked string) error {
	before, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	after, err := os.ReadFile(locked)
	if err != nil {
		return err
	}
	if first, _, _ := strings.Cut(string(before), "\n"); strings.HasPrefix(first, "--index-url ") {
		after = append([]byte(first+"\n"), after...)
	}
	return errors.Join(os.WriteFile(file, after, 0o644), os.Remove(locked))
}

// run runs an installer in a folder.
func run(ctx context.Context, dir, program string, args ...string) error {
	_, err := output(ctx, dir, program, args...)
	return err
}

// output runs a program in a folder and returns the end of its output.
func output(ctx context.Context, dir, program string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lockTime, fmt.Errorf("%s did not finish within %s", program, lockTime))
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
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
	text := strings.Map(func(r rune) rune {
		if r == '\n' {
			return ' '
		}
		if r != ' ' && unicode.In(r, unicode.C) {
			return -1
		}
		return r
	}, t.String())
	return brief.Cut(strings.TrimSpace(text[max(0, len(text)-1500):]), 1500)
}
