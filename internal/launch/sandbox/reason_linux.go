//go:build amd64 || arm64

package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/launch"
)

// Probe says why this machine cannot sandbox processes natively; it returns nil if it can. It sets
// up a whole sandbox, in which nothing runs, and keeps the answer for some time.
func (h *Host) Probe(ctx context.Context) []Reason {
	h.mu.Lock()
	answer, fresh := h.answer, !h.probed.IsZero() && time.Since(h.probed) < patience
	h.mu.Unlock()
	if fresh {
		return answer
	}
	answer = nil
	v, _ := newView(nil, nil) // without paths there is no error
	p, reason, err := h.start(ctx, launch.Spec{Whole: true}, v, Options{Limits: DefaultLimits})
	switch {
	case reason != nil:
		answer = []Reason{*reason}
	case err != nil:
		return []Reason{{What: "a sandbox", Why: fault.From(err).Reason, Fix: "try again"}}
	default:
		<-p.Exited()
		p.abandon()
		<-p.Gone()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answer, h.probed = answer, time.Now()
	return answer
}

// elsewhere is the advice if native sandboxes are not possible at all.
const elsewhere = "or install podman or docker and set sandbox_backend: container"

func (r Reason) fault() *fault.Error {
	return fault.New(fault.IsolationUnavailable, "no sandbox can be had here: %s", r.String())
}

func noCgroup(why string) *Reason {
	fix := "run Orla as a service with Delegate=yes, or by `systemd-run --user --scope -p Delegate=yes orla ...`, "
	if os.Geteuid() == 0 {
		fix = "run Orla as a service with Delegate=yes, or by `systemd-run --scope -p Delegate=yes orla ...`, "
	}
	return &Reason{What: "memory, processors and processes cannot be bounded", Why: why, Fix: fix + elsewhere}
}

// noNamespaces returns the Reason if a start failed because namespaces are not available.
func noNamespaces(err error) *Reason {
	r := &Reason{What: "namespaces cannot be made", Why: errno(err).Error(), Fix: elsewhere[len("or "):]}
	switch errno(err) {
	case unix.EPERM, unix.EACCES:
		r.Fix = allowUsers() + elsewhere
	case unix.ENOSPC, unix.EUSERS:
		r.Fix = "raise user.max_user_namespaces and its like (sysctl), " + elsewhere
	case unix.EINVAL, unix.ENOSYS:
		r.Fix = "run a kernel that has them, " + elsewhere
	default:
		return nil
	}
	return r
}

// allowUsers says how this machine can be made to give namespaces to ordinary users.
func allowUsers() string {
	if os.Geteuid() == 0 {
		return "run Orla where root has CAP_SYS_ADMIN, as no container's has by default, "
	}
	for file, fix := range map[string]string{
		"kernel/apparmor_restrict_unprivileged_userns=1": "set kernel.apparmor_restrict_unprivileged_userns=0 (sysctl) or give orla an AppArmor profile with userns, ",
		"kernel/unprivileged_userns_clone=0":             "set kernel.unprivileged_userns_clone=1 (sysctl), ",
		"user/max_user_namespaces=0":                     "raise user.max_user_namespaces (sysctl), ",
	} {
		name, bad, _ := strings.Cut(file, "=")
		if value, err := os.ReadFile("/proc/sys/" + name); err == nil && string(bytes.TrimSpace(value)) == bad {
			return fix
		}
	}
	return "allow user namespaces on this machine, "
}

// notMade returns why a stage could not set up the sandbox.
func notMade(step string, cause syscall.Errno) *Reason {
	r := &Reason{What: "a sandbox cannot be made", Why: step + ": " + cause.Error(), Fix: elsewhere[len("or "):]}
	switch cause {
	case unix.ENOSYS:
		r.Fix = "run Linux 5.12 or newer, " + elsewhere
	case unix.EPERM, unix.EACCES:
		r.Fix = allowUsers() + elsewhere
	case unix.ELOOP, unix.ESTALE:
		r.Why, r.Fix = step+": it was exchanged after it was checked", "call the tool again, and find out who changes that path"
	default: // no advice for this cause
	}
	return r
}

// fewPids is the highest limit with which the stage itself may lack threads.
const fewPids = 16

func unanswered(err error, pids int) *Reason {
	r := &Reason{What: "a sandbox cannot be made", Why: "its first stage ended without a word", Fix: "look whether /proc is mounted, " + elsewhere}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		r.Why = "its first stage does not answer"
	case pids <= fewPids:
		r.Fix = mayHave(pids) + ": ask for more (pids_limit)"
	}
	return r
}

func mayHave(pids int) string {
	return fmt.Sprintf("it may have %d processes and threads, with those that make the sandbox", pids)
}

// showIt is the advice about a program that is not visible in a sandbox.
const showIt = "it is not among what a sandbox sees of this machine; add its folder to sandbox_paths"

// finds checks before the start whether a sandbox contains the program of a Spec and what it needs.
func (v view) finds(spec launch.Spec) error {
	if !v.runs(spec.Path) {
		if _, err := os.Stat(spec.Path); err != nil {
			return fault.Wrap(fault.StartFailed, err, "%s is not there any more", spec.Path)
		}
		return fault.New(fault.UnsupportedTool, "%s cannot be run in the sandbox: %s", spec.Path, showIt)
	}
	source, _ := v.locate(spec.Path) // it exists: runs has checked that
	interpreter, name := shebang(source)
	if interpreter != "" && !v.runs(interpreter) && exists(interpreter) {
		return fault.New(fault.UnsupportedTool, "the interpreter %s of %s cannot be run in the sandbox: %s", interpreter, spec.Path, showIt)
	}
	if name == "" {
		return nil
	}
	elsewhere := ""
	for _, dir := range filepath.SplitList(pathOf(spec.Env)) {
		path := filepath.Join(dir, name)
		switch {
		case !filepath.IsAbs(path) || !exists(path):
		case v.runs(path):
			return nil
		case elsewhere == "":
			elsewhere = path
		}
	}
	if elsewhere == "" {
		return nil // env will report it
	}
	return fault.New(fault.UnsupportedTool, "the interpreter %s of %s cannot be run in the sandbox: %s", elsewhere, spec.Path, showIt)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func pathOf(env []string) string {
	path := "/usr/local/bin:/usr/bin:/bin"
	for _, kv := range env {
		if value, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = value
		}
	}
	return path
}

// shebang returns the interpreter of a script, and the name that env looks for if that is env.
func shebang(path string) (interpreter, name string) {
	f, err := os.Open(path)
	if err != nil {
		return "", ""
	}
	defer func() { _ = f.Close() }() // only read
	head := make([]byte, 256)
	n, _ := io.ReadFull(f, head) // a short file is not a script
	line, isScript := strings.CutPrefix(string(head[:n]), "#!")
	if !isScript {
		return "", ""
	}
	line, _, _ = strings.Cut(line, "\n")
	words := strings.Fields(line)
	if len(words) == 0 {
		return "", ""
	}
	if filepath.Base(words[0]) != "env" {
		return words[0], ""
	}
	for _, word := range words[1:] {
		if !strings.HasPrefix(word, "-") && !strings.Contains(word, "=") {
			return words[0], word
		}
	}
	return words[0], ""
}

// unrun returns why a program could not be executed in its sandbox, or its working directory not be
// entered.
func unrun(path string, cause syscall.Errno, pids int) error {
	failed := func(format string, args ...any) error {
		return fault.Wrap(fault.StartFailed, cause, format, args...)
	}
	unsupported := func(format string, args ...any) error {
		return fault.Wrap(fault.UnsupportedTool, cause, format, args...)
	}
	switch cause {
	case unix.EACCES:
		return unsupported("%s may not be read or executed by the user of sandboxes (%d): chmod o+rx it, and the folder it is in", path, ID)
	case unix.ENOENT:
		return unsupported("%s needs an interpreter or a loader that is not there: %s", path, showIt)
	case unix.ENOEXEC:
		return unsupported("%s is not a program for this machine; a script begins with a line such as #!/bin/sh", path)
	case unix.EAGAIN:
		return failed("%s could not be started in its sandbox: %s (pids_limit), or Orla's own service has too many (TasksMax)", path, mayHave(pids))
	case unix.E2BIG:
		return fault.Wrap(fault.InvalidInput, cause, "the arguments are larger than the system allows on a command line; take them on stdin (arguments: stdin)")
	default:
		return failed("%s could not be started in its sandbox: %v", path, cause)
	}
}
