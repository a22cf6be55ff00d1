package keys_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/manifesttest"
	"github.com/orla-project/orla/manifest/discover"
)

const idleRetry = "has no effect on a call that was sent, as the tool is annotated neither readOnlyHint nor idempotentHint: a second attempt could do its work twice"

func TestB2KeysWithoutEffectAreWarnedOf(t *testing.T) {
	for runtime, want := range map[string]string{
		"{hot_load: {}}":               "tool.yaml:5:11: runtime.hot_load: has no effect without runtime.mode: capsule",
		"{drain_ms: 1}":                "tool.yaml:5:21: runtime.drain_ms: has no effect without runtime.mode: capsule",
		"{mode: capsule, output: mcp}": "tool.yaml:5:34: runtime.output: has no effect on a capsule",
		"{mode: capsule, timeout: 1, env: {}, tool_prefix: a}":                 "",
		"{mode: capsule, hot_load: {debounce_ms: 2000}}":                       "",
		"{retry: {max_attempts: 1}}":                                           "",
		"{mode: capsule, retry: {max_attempts: 2}}":                            "", // its tools are annotated one by one
		"{retry: {max_attempts: 2}}\nmcp: {annotations: {readOnlyHint: true}}": "",
		"{retry: {max_attempts: 2}}":                                           "tool.yaml:5:11: runtime.retry: " + idleRetry,
		"{mode: capsule, retry: {max_attempts: 2}}\nmcp: {}":                   "tool.yaml:5:26: runtime.retry: " + idleRetry,
		"{mode: capsule, hot_load: {debounce_ms: 2001}}":                       "tool.yaml:5:50: runtime.hot_load.debounce_ms: has the effect of 2000: no change waits longer for its reload",
		"{mode: capsule, pin: hold}\nmcp: {}":                                  "tool.yaml:5:31: runtime.pin: has no effect with mcp, which says what the tool is: only definitions that a process lists are pinned",
		"{pin: hold}":                                                          "tool.yaml:5:16: runtime.pin: has no effect without runtime.mode: capsule",
		"{mode: capsule, tool_prefix: a}\nmcp: {}":                             "tool.yaml:5:39: runtime.tool_prefix: has no effect with mcp, which makes the capsule a single tool with its own name",
		"{mode: capsule, hot_load: {watch: [run.sh, src]}}":                    `tool.yaml:5:53: runtime.hot_load.watch[1]: "src" does not exist in the package; nothing is watched there until it does`,
	} {
		dir := manifesttest.Pack(t, "name: a\nversion: 1.0.0\ndescription: x\nentrypoint: run.sh\nruntime: "+runtime+"\n")
		t.Chdir(dir)
		r := discover.Validate(".")
		got := ""
		for _, p := range r.Problems {
			got += p.Err.Error()
		}
		if got != want || len(r.Tools) != 1 {
			t.Errorf("%s: got %d tools and %q, want %q", runtime, len(r.Tools), got, want)
		}
	}
}

// SPEC E1: what is watched is the package's own, after links are resolved.
func TestE1WatchedPathsStayInsideAfterLinks(t *testing.T) {
	outside := t.TempDir()
	dir := manifesttest.Pack(t, "name: a\nversion: 1.0.0\ndescription: x\nentrypoint: run.sh\nruntime: {mode: capsule, hot_load: {watch: [src]}}\n")
	manifesttest.Write(t, dir, "lib/a", "", 0o644)
	for target, good := range map[string]bool{outside: false, "lib": true, "lib/a": true, "..": false} {
		src := filepath.Join(dir, "src")
		if err := os.RemoveAll(src); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, src); err != nil {
			t.Fatal(err)
		}
		r := discover.Validate(dir)
		switch {
		case good && len(r.Tools) == 1 && len(r.Problems) == 0:
		case !good && len(r.Tools) == 0 && strings.HasSuffix(r.Problems[0].Err.Error(), `tool.yaml:5:45: runtime.hot_load.watch[0]: "src" is a link that leaves the package`):
		default:
			t.Errorf("link to %s: got %d tools and %v", target, len(r.Tools), manifesttest.Texts(r))
		}
	}
}
