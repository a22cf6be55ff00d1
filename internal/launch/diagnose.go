package launch

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"

	"github.com/orla-project/orla/internal/call/fault"
)

// diagnose turns the error of a failed start into one that says what to do about it.
func diagnose(spec Spec, err error) *fault.Error {
	failed := func(format string, args ...any) *fault.Error {
		return fault.Wrap(fault.StartFailed, err, format, args...)
	}
	// The system cannot execute this file, and a retry does not help. Each Launcher uses the same code
	// for that (SPEC-TOOLS 4).
	unsupported := func(format string, args ...any) *fault.Error {
		return fault.Wrap(fault.UnsupportedTool, err, format, args...)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fault.From(err)
	case errors.As(err, new(*fault.Error)):
		return fault.From(err)
	case errors.Is(err, errClosed):
		return failed("Orla is stopping; no new process is started")
	case errors.Is(err, syscall.E2BIG):
		return fault.Wrap(fault.InvalidInput, err, "the arguments are larger than the system allows on a command line; take them on stdin (arguments: stdin)")
	case errors.Is(err, syscall.ETXTBSY):
		return failed("%s is still being written; try again", spec.Path)
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return failed("no file descriptor is left; raise the limit (ulimit -n) or lower max_concurrent_calls")
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM):
		return failed("the system has no room for another process (%v); raise its limits (ulimit -u) or lower max_concurrent_calls", errnoOf(err))
	case errors.Is(err, syscall.ENOEXEC):
		return unsupported("%s", unrunnable(spec.Path))
	}
	if _, statErr := os.Stat(spec.Dir); spec.Dir != "" && statErr != nil {
		return failed("the working directory %s is not there: %v", spec.Dir, errnoOf(statErr))
	}
	info, statErr := os.Stat(spec.Path)
	switch {
	case errors.Is(statErr, syscall.ENOENT):
		return failed("%s is not there any more", spec.Path)
	case statErr == nil && info.Mode()&0o111 == 0:
		return unsupported("%s is not executable: chmod +x %s", spec.Path, spec.Path)
	case errors.Is(err, syscall.ENOENT) && MissingInterpreter(spec.Path) != "":
		return unsupported("%s names an interpreter or a loader that is not installed", spec.Path)
	case errors.Is(err, syscall.ENOENT):
		return failed("%s or its working directory was not there for a moment; try again", spec.Path)
	case errors.Is(err, syscall.EACCES):
		return unsupported("%s may not be executed by this user, or lies on a file system mounted noexec", spec.Path)
	}
	return failed("%s could not be started: %v", spec.Path, errnoOf(err))
}

// MissingInterpreter returns the interpreter that a script names, or the dynamic linker of a program,
// if that file does not exist; else "".
func MissingInterpreter(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // only read
	head := make([]byte, 256)        // as much as the kernel reads
	n, _ := io.ReadFull(f, head)     // a short file is fine
	interpreter := ""
	if line, ok := strings.CutPrefix(string(head[:n]), "#!"); ok {
		line, _, _ = strings.Cut(line, "\n")
		if words := strings.Fields(line); len(words) > 0 {
			interpreter = words[0]
		}
	} else if interpreter, err = LinkerOf(f); err != nil {
		return ""
	}
	if _, err := os.Stat(interpreter); interpreter == "" || err == nil {
		return ""
	}
	return interpreter
}

// LinkerOf returns the dynamic linker of a program; "" if it needs none.
func LinkerOf(r io.ReaderAt) (string, error) {
	program, err := elf.NewFile(r)
	if err != nil {
		return "", err
	}
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP {
			name, err := io.ReadAll(io.LimitReader(p.Open(), 4096)) // a path, at most
			return strings.TrimRight(string(name), "\x00"), err
		}
	}
	return "", nil
}

// unrunnable says why the system cannot execute a file.
func unrunnable(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return path + " cannot be read"
	}
	defer func() { _ = f.Close() }() // only read
	head := make([]byte, 512)
	n, _ := io.ReadFull(f, head) // short files are the ones to find
	head = head[:n]
	switch {
	case n == 0:
		return path + " is empty"
	case bytes.HasPrefix(head, []byte(elf.ELFMAG)):
		return path + " is a program for another kind of machine than this " + runtime.GOOS + "/" + runtime.GOARCH
	case bytes.IndexByte(head, 0) < 0:
		return path + " is a script without a shebang line: begin it with one, such as #!/bin/sh"
	}
	return path + " is not a program for this " + runtime.GOOS + "/" + runtime.GOARCH
}

// errnoOf removes the paths that package os adds to a system error.
func errnoOf(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}
