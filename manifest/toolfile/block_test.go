package toolfile_test

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/testing/manifesttest"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/discover"
)

// search searches the folder tools of a new working directory.
func search(t *testing.T, build func()) manifest.Result {
	t.Helper()
	return discover.Tools(discover.Options{ToolsDir: manifesttest.Folder(t, build)})
}

// one serves a single executable called a.sh and returns it, or what is wrong.
func one(t *testing.T, script string, others ...string) (manifest.Tool, string) {
	t.Helper()
	t.Chdir(t.TempDir())
	manifesttest.Write(t, ".", "a.sh", script, 0o755)
	for i := 0; i < len(others); i += 2 {
		manifesttest.Write(t, ".", others[i], others[i+1], 0o644)
	}
	r := discover.Tools(discover.Options{ToolsDir: "."})
	if len(r.Tools) == 1 && len(r.Problems) == 0 {
		return r.Tools[0], ""
	}
	var list []string
	for _, p := range r.Problems {
		list = append(list, p.Err.Error())
	}
	return manifest.Tool{}, strings.Join(list, "\n")
}

func TestA6BlocksInEveryCommentStyle(t *testing.T) {
	const bom = "\xef\xbb\xbf"
	for name, script := range map[string]string{
		"hash":                  "#!/bin/sh\n# /// tool\n# description: d\n# timeout: 5\n# ///\necho\n",
		"no line after it":      "#!/bin/sh\n# /// tool\n# description: d\n# timeout: 5\n# ///",
		"CRLF":                  "#!/usr/bin/env cat\r\n# /// tool\r\n# description: d\r\n# timeout: 5\r\n# ///\r\n",
		"BOM":                   bom + "#!/bin/sh\n# /// tool\n# description: d\n# timeout: 5\n# ///\n",
		"slashes":               "#!/bin/sh\n// /// tool\n// description: d\n// timeout: 5\n// ///\n",
		"dashes":                "#!/bin/sh\n-- /// tool\n-- description: d\n-- timeout: 5\n-- ///\n",
		"semicolon":             "#!/bin/sh\n; /// tool\n; description: d\n; timeout: 5\n; ///\n",
		"no space":              "#!/bin/sh\n#/// tool\n#description: d\n#timeout: 5\n#///\n",
		"below other comments":  "#!/bin/sh\n# -*- coding: utf-8 -*-\n\n# Licence\n  # indented\n# /// tool\n# description: d\n# timeout: 5\n# ///\n",
		"below a block comment": "#!/bin/sh\n/* Licence\n here */\n// /// tool\n// description: d\n// timeout: 5\n// ///\n",
		"below php's opening":   "#!/bin/sh\n<?php\n// /// tool\n// description: d\n// timeout: 5\n// ///\n",
		"below another block":   "#!/bin/sh\n# /// script\n# dependencies = []\n# ///\n# /// tool\n# description: d\n# timeout: 5\n# ///\n",
		"far down":              "#!/bin/sh\n" + strings.Repeat("# licence\n", 1000) + "# /// tool\n# description: d\n# timeout: 5\n# ///\n",
		"over the first read":   "#!/bin/sh\n# /// tool\n# description: d\n# timeout: 5\n" + strings.Repeat("# # note\n", 1000) + "# ///\n",
		"sections":              "#!/bin/sh\n# /// tool\n# description: d\n# runtime:\n#   timeout: 5\n#\n# ///\n",
	} {
		t.Run(name, func(t *testing.T) {
			tool, faults := one(t, script)
			if faults != "" {
				t.Fatal(faults)
			}
			if tool.Name != "a" || tool.Kind != manifest.Simple || tool.Description != "d" || tool.Run.Timeout != 5*time.Second || tool.Source != "a.sh" {
				t.Errorf("got %+v", tool)
			}
		})
	}
}

func TestA6WhatIsNoBlockIsIgnored(t *testing.T) {
	for name, script := range map[string]string{
		"another block":      "#!/bin/sh\n# /// script\n# nonsense\n# ///\n",
		"another word":       "#!/bin/sh\n# /// toolbox\n",
		"binary":             manifesttest.Binary + strings.Repeat("\x00#\n", 50_000),
		"one very long line": "#!/bin/sh\n#" + strings.Repeat("x", 200_000),
		"comments for ever":  "#!/bin/sh\n" + strings.Repeat("# x\n", 50_000),
	} {
		t.Run(name, func(t *testing.T) {
			tool, faults := one(t, script)
			if faults != "" || string(tool.InputSchema) != `{"type":"object"}` {
				t.Errorf("got %+v, %s", tool, faults)
			}
		})
	}
}

func TestA6WhatItsAuthorMayTakeForABlockIsAWarning(t *testing.T) {
	for name, script := range map[string]string{
		"below code": "#!/bin/sh\necho\n# /// tool\n# description: d\n# ///\n",
		"indented":   "#!/bin/sh\n\n  # /// tool\n  # description: d\n  # ///\n",
		"a tab":      "#!/usr/bin/env cat\r\n\r\n#\t/// tool\r\n",
		"a capital":  "#!/usr/bin/env sh\n\n// /// Tool\n",
		"a plural":   "#!/bin/sh\n\n#///tools\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, faults := one(t, script)
			if !strings.HasPrefix(faults, "line 3 looks like a metadata block and is not read") {
				t.Errorf("got %s", faults)
			}
		})
	}
}

// SPEC-TOOLS 7: a script that asks to be isolated where nobody reads it is not
// served as if it had not.
func TestT7IsolationThatNobodyReadsIsAnError(t *testing.T) {
	for name, script := range map[string]string{
		"below code":        "#!/bin/sh\nset -e\n# /// tool\n# isolation_mode: sandboxed\n# ///\n",
		"in a section":      "#!/bin/sh\nset -e\n  # /// Tool\n  # runtime: {timeout: 3s, isolation_mode: 'container'} # held\n  # ///\n",
		"in another script": "#!/usr/bin/env node\nx\n// ///tools\n// runtime:\n//   isolation_mode: sandboxed # it is\n",
	} {
		t.Run(name, func(t *testing.T) {
			if _, faults := one(t, script); !strings.Contains(faults, "isolation_mode would have no effect: line 3 does not open a metadata block") {
				t.Errorf("got %s", faults)
			}
		})
	}
	for name, script := range map[string]string{
		"none":           "#!/bin/sh\nset -e\n# /// tool\n# isolation_mode: none\n",
		"after the code": "#!/bin/sh\nset -e\n# /// tool\necho\n# isolation_mode: sandboxed\n",
	} {
		if _, faults := one(t, script); !strings.HasPrefix(faults, "line 3 looks like a metadata block") {
			t.Errorf("%s: got %s", name, faults)
		}
	}
}

// SPEC-TOOLS 7: the same of a file whose name is nearly that of a sidecar, or of
// a package's manifest.
func TestT7ManifestsThatAreMisnamedAreErrors(t *testing.T) {
	for _, name := range []string{"a.tool.yml", "a.sh.tool.yml", "a.tool.json", "a.Tool.yaml"} {
		r := search(t, func() {
			manifesttest.Write(t, "tools", "a.sh", manifesttest.Script, 0o755)
			manifesttest.Write(t, "tools", name, "isolation_mode: sandboxed\n", 0o644)
		})
		manifesttest.Expect(t, r, nil, []string{"error tools/a.sh: " + name + " is not read and has no effect; rename it to a.tool.yaml"})
	}
	r := search(t, func() {
		manifesttest.Write(t, "tools", "pack/tool.yml", "runtime: {isolation_mode: sandboxed}\n", 0o644)
		manifesttest.Write(t, "tools", "pack/bin/run.sh", manifesttest.Script, 0o755)
	})
	manifesttest.Expect(t, r, nil, []string{"error tools/pack/tool.yml: is not read: call it tool.yaml; nothing in its folder is served"})
}

func TestA6ABrokenBlockIsAnErrorWithFileAndLine(t *testing.T) {
	for name, c := range map[string]struct{ script, want string }{
		"bad values": {
			"#!/bin/sh\n# /// tool\n# description: d\n#timeuot: 5\n# mcp:\n#   title: [x]\n# ///\n",
			"a.sh:4:2: timeuot: unknown key; did you mean \"timeout\"?\na.sh:6:12: mcp.title: wants a string, got a list",
		},
		"what a package has": {
			"#!/bin/sh\n# /// tool\n# name: b\n# version: 1.0.0\n# entrypoint: c\n# ///\n",
			"a.sh:3:3: name: does not belong here: a simple tool is called as its file is\n" +
				"a.sh:4:3: version: does not belong here: only a package has a version\n" +
				"a.sh:5:3: entrypoint: does not belong here: the executable itself is run",
		},
		"both forms of a key": {
			"#!/bin/sh\n# /// tool\n# timeout: 5\n# runtime: {timeout: 6}\n# title: x\n# mcp: {title: y}\n# ///\n",
			"a.sh:4:22: runtime.timeout: is given twice, as timeout and as runtime.timeout; keep one\n" +
				"a.sh:6:16: mcp.title: is given twice, as title and as mcp.title; keep one",
		},
		"a bad value of the short form": {
			"#!/bin/sh\n# /// tool\n# timeout: 0\n# input_schema: {a: strng}\n# ///\n",
			"a.sh:3:12: timeout: must be above 0; leave it out for the configured timeout\n" +
				"a.sh:4:21: input_schema.a: wants string, number, integer, boolean, object, array, null (with ? if it may be left out) or the schema of one argument, got \"strng\"; did you mean \"string\"?",
		},
		"a bad value of retry": {
			"#!/bin/sh\n# /// tool\n# retry: {max_attempts: -1}\n# ///\n",
			"a.sh:3:25: retry.max_attempts: must be at least 1, which is the first attempt, got -1",
		},
		"a capsule": {
			"#!/bin/sh\n# /// tool\n# runtime: {mode: capsule}\n# ///\n",
			"a.sh:3:19: runtime.mode: must be simple: a capsule is a folder with tool.yaml",
		},
		"code before its end": {
			"#!/bin/sh\n# /// tool\n# timeout: 5\n\necho\n",
			`a.sh:4:1: the metadata block of line 2 must end with "# ///" before this line, which is not a comment`,
		},
		"no end": {
			"#!/bin/sh\n// /// tool\n// timeout: 5\n",
			`a.sh:2:1: the metadata block that begins here must end with a line "// ///", within the file's first 65536 bytes`,
		},
		"an end too far down": {
			"#!/bin/sh\n# /// tool\n" + strings.Repeat("# # note\n", 10_000) + "# ///\n",
			`a.sh:2:1: the metadata block that begins here must end with a line "# ///", within the file's first 65536 bytes`,
		},
		"two blocks": {
			"#!/bin/sh\n# /// tool\n# ///\n\n# /// tool\n# ///\n",
			"a.sh:5:1: a second metadata block begins here; the first is on line 2",
		},
		"isolation outside": { // SPEC-TOOLS 7: never weaker than its author believes
			"#!/bin/sh\n# ---\n# runtime:\n#   isolation_mode: sandboxed\n# ---\necho\n",
			`a.sh:4:1: isolation_mode is not in a metadata block, and would have no effect: the block begins with "# /// tool" and ends with "# ///"`,
		},
		"isolation outside, quoted, in a long comment": {
			"#!/usr/bin/env node\n/*\n * isolation_mode: \"container\"\n */\n",
			`a.sh:3:1: isolation_mode is not in a metadata block, and would have no effect: the block begins with "# /// tool" and ends with "# ///"`,
		},
		"one inside the other": {
			"#!/bin/sh\n# /// tool\n# /// tool\n# ///\n",
			`a.sh:3:1: a second metadata block begins inside that of line 2, which must end with "# ///"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, got := one(t, c.script); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestA6FlatKeysAreThoseOfTheSections(t *testing.T) {
	flat, faults := one(t, `#!/bin/sh
# /// tool
# description: d
# title: T
# annotations: {readOnlyHint: true}
# input_schema: {a: string}
# output_schema: {type: object}
# args: [-v]
# env: {A: 1}
# inherit_env: false
# timeout: 1m
# max_concurrency: 2
# arguments: flags
# output: mcp
# max_output: 1KiB
# ///
`)
	if faults != "" {
		t.Fatal(faults)
	}
	full, faults := one(t, `#!/bin/sh
# /// tool
# description: d
# mcp:
#   title: T
#   annotations: {readOnlyHint: true}
#   input_schema: {a: string}
#   output_schema: {type: object}
# runtime:
#   args: [-v]
#   env: {A: 1}
#   inherit_env: false
#   timeout: 1m
#   max_concurrency: 2
#   arguments: flags
#   output: mcp
#   max_output: 1KiB
# ///
`)
	if faults != "" {
		t.Fatal(faults)
	}
	full.Path, full.Dir = flat.Path, flat.Dir
	if !reflect.DeepEqual(flat, full) {
		t.Errorf("flat %+v\nfull %+v", flat, full)
	}
	if flat.Title != "T" || flat.Annotations == nil || flat.Run.MaxConcurrency != 2 || flat.Run.Args[0] != "-v" {
		t.Errorf("got %+v", flat)
	}
}

func TestA6SidecarsDescribeTheExecutableBesideThem(t *testing.T) {
	const good = "description: d\ninput_schema: {a: string}\n"
	for _, name := range []string{"a.tool.yaml", "a.sh.tool.yaml"} {
		tool, faults := one(t, manifesttest.Binary, name, good)
		if faults != "" || tool.Name != "a" || tool.Description != "d" || tool.Source != name || filepath.Base(tool.Path) != "a.sh" {
			t.Errorf("%s: got %+v, %s", name, tool, faults)
		}
	}
	block := "#!/bin/sh\n# /// tool\n# ///\n"
	for name, c := range map[string]struct {
		script string
		files  []string
		want   string
	}{
		"a block as well":  {block, []string{"a.tool.yaml", good}, "is described twice, by the block on its line 2 and by a.tool.yaml; keep one"},
		"two of them":      {manifesttest.Binary, []string{"a.tool.yaml", good, "a.sh.tool.yaml", good}, "is described twice, by a.sh.tool.yaml and a.tool.yaml; keep one"},
		"a broken one":     {manifesttest.Binary, []string{"a.tool.yaml", "\nname: b\n"}, "a.tool.yaml:2:1: name: does not belong here: a simple tool is called as its file is"},
		"one with nothing": {manifesttest.Binary, []string{"a.tool.yaml", "description: d\n", "b.tool.yaml", good}, "describes no executable: there is none called b in its folder, with or without an extension (chmod +x)"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, got := one(t, c.script, c.files...); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// SPEC-TOOLS 6.3: retry of a block, whose other keys have their defaults.
func TestT63RetryInABlock(t *testing.T) {
	for _, retry := range []string{"retry: {max_attempts: 3}", "runtime: {retry: {max_attempts: 3}}"} {
		tool, faults := one(t, "#!/bin/sh\n# /// tool\n# annotations: {idempotentHint: true}\n# "+retry+"\n# ///\n")
		want := manifest.Retry{MaxAttempts: 3, MaxBackoff: 30 * time.Second, Jitter: manifest.JitterNone}
		if tool.Retry != want || faults != "" {
			t.Errorf("%s: got %+v, %s", retry, tool.Retry, faults)
		}
	}
}
