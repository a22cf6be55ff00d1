// Package environ puts together the environment of a tool's process (SPEC C2,
// D3): what Orla passes on of its own, less what is Orla's alone, and what the
// tool's manifest sets on top. It starts nothing; both kinds of providers use it,
// so that a tool finds the same in either mode, its programs included. What belongs to one
// call or one process is added where that begins: the id and the trace of a call and its
// secrets in package simple, ORLA_INSTANCE in package launch.
package environ

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/orla-project/orla/manifest"
)

// kept are the variables that a narrowed environment always has (SPEC C2).
var kept = [...]string{"PATH", "HOME", "LANG", "TMPDIR"}

// Clean returns a copy of own, an environment as os.Environ gives it, without
// what is Orla's: its settings, secrets, what systemd means for Orla alone
// (SPEC C2), and the trace in which Orla itself was started, which is no call's.
func Clean(own []string) []string {
	return slices.DeleteFunc(slices.Clone(own), func(kv string) bool {
		name, _, ok := strings.Cut(kv, "=")
		if !ok {
			return true
		}
		switch name {
		case "NOTIFY_SOCKET", "INVOCATION_ID", "JOURNAL_STREAM", "CREDENTIALS_DIRECTORY", "MAINPID", "MANAGERPID", "PWD", "OLDPWD",
			"TRACEPARENT", "TRACESTATE", "OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS":
			return true
		}
		for _, prefix := range [...]string{"ORLA_", "ORLOJ_SECRET_", "WATCHDOG_", "LISTEN_", "FDSTORE"} {
			if strings.HasPrefix(name, prefix) {
				return true
			}
		}
		return false
	})
}

// Of returns the environment of a tool's processes: what tool lets through of
// clean, PWD and ORLA_TOOL, what the file's first line sets, and what the
// manifest sets, which wins. Of type cli it is what the manifest sets and PATH,
// HOME and LANG alone (SPEC-TOOLS 3.6). Where the processes are isolated nothing
// of clean is in it. Each variable is there once. clean stays as it is; the
// result is the caller's.
func Of(tool manifest.Tool, clean []string) []string {
	var environ []string
	switch {
	case tool.Isolation.Isolated():
		environ = ofIsolated(tool.Isolation)
	case tool.Kind == manifest.Cli:
		environ = only(clean, "PATH", "HOME", "LANG")
	default:
		environ = slices.Clone(inherited(clean, tool.Run.InheritEnv))
	}
	if tool.Kind != manifest.Cli {
		environ = append(environ, "PWD="+tool.WorkDir(), "ORLA_TOOL="+tool.Name)
		environ = append(environ, tool.Interpreter.Env...)
	}
	for _, name := range slices.Sorted(maps.Keys(tool.Run.Env)) {
		environ = append(environ, name+"="+tool.Run.Env[name])
	}
	return lastOfEach(environ)
}

// inherited returns what policy lets through of a clean environment.
func inherited(clean []string, policy manifest.EnvPolicy) []string {
	if !policy.Narrow {
		return clean
	}
	return only(clean, append(kept[:], policy.Names...)...)
}

// only returns the variables of an environment that have one of the names.
func only(clean []string, names ...string) []string {
	return slices.DeleteFunc(slices.Clone(clean), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return !slices.Contains(names, name)
	})
}

// usualPath is where programs are on this kind of machine.
const usualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// ofIsolated is what every process has that does not live where Orla does. Where
// programs are in an image, the image says.
func ofIsolated(i manifest.Isolation) []string {
	environ := []string{"HOME=/tmp", "LANG=C.UTF-8"}
	if backend := i.Terms.Backend; backend != manifest.BackendContainer && backend != manifest.BackendKubernetes {
		environ = append(environ, "PATH="+usualPath)
	}
	return environ
}

// Find looks a program up as a process with an environment would that is to see
// this machine's programs, and not by Orla's own PATH. What has a slash is not
// looked for in PATH; "" is not to be found, not executable, or
// relative to a folder that nobody knows.
func Find(program string, environ []string) string {
	if strings.Contains(program, "/") {
		if filepath.IsAbs(program) && executable(program) {
			return program
		}
		return ""
	}
	path := usualPath
	for _, kv := range environ {
		if value, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = value
		}
	}
	for _, dir := range filepath.SplitList(path) {
		file := filepath.Join(dir, program)
		if filepath.IsAbs(file) && executable(file) {
			return file
		}
	}
	return ""
}

// executable reports whether a path names a file that somebody may execute.
func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// Interpreter finds what runs a tool's file where this machine's programs are seen.
func Interpreter(tool manifest.Tool, environ []string) (string, error) {
	i := tool.Interpreter
	if !tool.Isolation.Isolated() {
		return tool.ResolveInterpreter()
	}
	if i.Path != "" && executable(i.Path) {
		return i.Path, nil
	}
	if found := Find(i.Name, environ); found != "" {
		return found, nil
	}
	return "", &manifest.NoInterpreterError{Interpreter: i}
}

// lastOfEach keeps the last value of each variable.
func lastOfEach(environ []string) []string {
	seen := make(map[string]bool, len(environ))
	out := make([]string, 0, len(environ))
	for _, kv := range slices.Backward(environ) {
		if name, _, _ := strings.Cut(kv, "="); !seen[name] {
			seen[name] = true
			out = append(out, kv)
		}
	}
	slices.Reverse(out)
	return out
}
