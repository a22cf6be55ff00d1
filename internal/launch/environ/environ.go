// Package environ makes the environment of a tool's process (SPEC C2, D3): Orla's own, without the
// variables that are for Orla alone, and what the tool's manifest sets. Simple tools and capsules
// both use it, so a tool has the same environment and finds the same programs in either mode. What
// belongs to a single call or process is added later: package simple adds the id and the trace of a
// call and its secrets, package launch adds ORLA_INSTANCE.
package environ

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/manifest"
)

// kept are the variables that are always inherited (SPEC C2).
var kept = [...]string{"PATH", "HOME", "LANG", "TMPDIR"}

// Clean returns a copy of own, an environment as os.Environ returns it, without the variables that
// are for Orla alone: its settings and secrets, those that systemd sets for Orla (SPEC C2), and the
// trace in which Orla was started.
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
		return slices.ContainsFunc([]string{"ORLA_", "ORLOJ_SECRET_", "WATCHDOG_", "LISTEN_", "FDSTORE"}, func(prefix string) bool {
			return strings.HasPrefix(name, prefix)
		})
	})
}

// Of returns the environment of a tool's processes: the variables of clean that tool inherits, PWD
// and ORLA_TOOL, those of the file's first line, and those of the manifest. Later ones override
// earlier ones. A tool of type cli gets only those of the manifest, PATH, HOME and LANG (SPEC-TOOLS
// 3.6). Isolated processes inherit only what was granted. Each variable appears once. Of does not
// change clean; the result is the caller's.
func Of(tool manifest.Tool, clean []string) []string {
	var environ []string
	switch {
	case tool.Isolation.Isolated():
		environ = append(ofIsolated(tool.Isolation), only(clean, tool.Isolation.Grants.Env...)...)
	case tool.Kind == manifest.Cli:
		environ = only(clean, "PATH", "HOME", "LANG")
	case tool.Run.InheritEnv.Narrow:
		environ = only(clean, append(kept[:], tool.Run.InheritEnv.Names...)...)
	default:
		environ = slices.Clone(clean)
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

// only returns the variables of an environment that have one of the names.
func only(clean []string, names ...string) []string {
	return slices.DeleteFunc(slices.Clone(clean), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return !slices.Contains(names, name)
	})
}

// usualPath is the PATH of an isolated process.
const usualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// ofIsolated returns the variables that each isolated process has. In a container PATH comes from the
// image.
func ofIsolated(i manifest.Isolation) []string {
	environ := []string{"HOME=/tmp", "LANG=C.UTF-8"}
	if i.Grants.Home != "" { // where programs would keep what they make is not to be changed
		environ = []string{"HOME=" + i.Grants.Home, "LANG=C.UTF-8", "XDG_CACHE_HOME=/tmp"}
	}
	if backend := i.Terms.Backend; backend != manifest.BackendContainer && backend != manifest.BackendKubernetes {
		environ = append(environ, "PATH="+usualPath)
	}
	return environ
}

// Find finds a program by the PATH of environ, the environment of a process that sees this machine's
// programs. It does not use Orla's own PATH. A program with a slash is not looked for in PATH. Find
// returns "" if the program does not exist, is not executable, or is relative to an unknown folder.
func Find(program string, environ []string) string {
	if strings.Contains(program, "/") {
		if filepath.IsAbs(program) && regularfile.IsProgram(program) {
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
		if filepath.IsAbs(file) && regularfile.IsProgram(file) {
			return file
		}
	}
	return ""
}

// Interpreter finds the interpreter of a tool's file, for processes that see this machine's
// programs.
func Interpreter(tool manifest.Tool, environ []string) (string, error) {
	i := tool.Interpreter
	if !tool.Isolation.Isolated() {
		return tool.ResolveInterpreter()
	}
	if i.Path != "" && regularfile.IsProgram(i.Path) {
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
