package discover_test

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/orla-project/orla/internal/testing/manifesttest"
)

// SPEC A2: every skip has one visible reason.
func TestA2ALinkToAFolderIsReportedWhereNothingFindsTheFolder(t *testing.T) {
	var store, inside string
	r := search(t, func() {
		manifesttest.Write(t, "tools", ".store/pack/x.sh", manifesttest.Script, 0o755)
		manifesttest.Write(t, "tools", "node_modules/bin/x.sh", manifesttest.Script, 0o755)
		manifesttest.Write(t, "tools", "found/y.sh", manifesttest.Script, 0o755)
		manifesttest.WritePackage(t, "tools/pack", "pack", "1.0.0")
		manifesttest.Write(t, "tools", "pack/bin/z.sh", manifesttest.Script, 0o755)
		root, err := filepath.EvalSymlinks("tools")
		if err != nil {
			t.Fatal(err)
		}
		if root, err = filepath.Abs(root); err != nil {
			t.Fatal(err)
		}
		store, inside = filepath.Join(root, ".store/pack"), filepath.Join(root, "pack/bin")
		for name, target := range map[string]string{
			"stored": ".store/pack", "again": "found", "all": ".", "bin": "pack/bin", "venv": ".store", ".hidden": ".store",
		} {
			if err := os.Symlink(target, filepath.Join("tools", name)); err != nil {
				t.Fatal(err)
			}
		}
	})
	manifesttest.Expect(t, r, []string{"pack", "y"}, []string{
		"warning tools/bin: is skipped: it is a link to " + inside + ", a folder that is not searched where it stands",
		"warning tools/stored: is skipped: it is a link to " + store + ", a folder that is not searched where it stands",
	})
}

func TestA6ABadSidecarIsReportedOnce(t *testing.T) {
	r := search(t, func() {
		for _, name := range []string{"dangling", "leaving", "pipe"} {
			manifesttest.Write(t, "tools", name, manifesttest.Script, 0o755)
		}
		fifo(t, "tools/pipe.tool.yaml")
		fifo(t, "tools/stray.tool.yaml")
		for name, target := range map[string]string{"dangling": "nowhere", "leaving": "/etc/passwd"} {
			if err := os.Symlink(target, "tools/"+name+".tool.yaml"); err != nil {
				t.Fatal(err)
			}
		}
	})
	manifesttest.Expect(t, r, nil, []string{
		"error tools/dangling: tools/dangling.tool.yaml: cannot be read: no such file or directory" + manifesttest.MayBeRule,
		"error tools/leaving: tools/leaving.tool.yaml: is a link that leaves the folder",
		"error tools/pipe: tools/pipe.tool.yaml: is not a regular file but a FIFO" + manifesttest.MayBeRule,
		"error tools/stray.tool.yaml: is not a regular file but a FIFO" + manifesttest.MayBeRule,
	})
}

// SPEC A2: folders of package managers are not searched; a package that stands in place of one is pointed out.
func TestA2APackageInASkippedFolderIsPointedOut(t *testing.T) {
	r := search(t, func() {
		manifesttest.WritePackage(t, "tools/venv", "venv", "1.0.0")
		manifesttest.Write(t, "tools/node_modules", "orla-tool.json", "{}", 0o644)
		manifesttest.Write(t, "tools/below/venv/lib", "tool.yaml", "", 0o644)
		manifesttest.Write(t, "tools/__pycache__/tool.yaml", "x", "", 0o644)
	})
	const why = ": folders with this name are not searched; rename it"
	manifesttest.Expect(t, r, nil, []string{
		"warning tools/node_modules: is skipped, although orla-tool.json is in it" + why,
		"warning tools/venv: is skipped, although tool.yaml is in it" + why,
	})
}

func TestEditorsBackupsAreNoTools(t *testing.T) {
	r := search(t, func() {
		manifesttest.Write(t, "tools", "a.sh", manifesttest.Script, 0o755)
		manifesttest.Write(t, "tools", "a.sh~", manifesttest.Script, 0o755)
		manifesttest.Write(t, "tools", "#a.sh#", manifesttest.Script, 0o755)
		manifesttest.Write(t, "tools", "a.sh.tmp", manifesttest.Script, 0o755)
	})
	manifesttest.Expect(t, r, []string{"a"}, nil)
}

func TestAProgramThatLostItsModeIsPointedOut(t *testing.T) {
	r := search(t, func() {
		manifesttest.Write(t, "tools", "built", "\x7fELF\x02", 0o644)
		manifesttest.Write(t, "tools", "lib.so", "\x7fELF\x02", 0o644)
		manifesttest.Write(t, "tools", "notes", "to do", 0o644)
	})
	manifesttest.Expect(t, r, nil, []string{"warning tools/built: is not executable: chmod +x tools/built"})
}

// SPEC A5: a file without a shebang is executed as it is, if a system can do that.
func TestA5AFileThatNoSystemRunsIsAFault(t *testing.T) {
	r := search(t, func() {
		manifesttest.Write(t, "tools", "archive.jar", manifesttest.Binary, 0o755)
		manifesttest.Write(t, "tools", "torn", "\x7fELF\x02", 0o755)
		manifesttest.Write(t, "tools", "torn_package/tool.yaml", "name: torn_package\nversion: 1.0.0\ndescription: x\nentrypoint: main\n", 0o644)
		manifesttest.Write(t, "tools", "torn_package/main", "\x7fELF\x02", 0o755)
		manifesttest.Write(t, "tools", "program.exe", "MZ\x90\x00", 0o755)
		manifesttest.Write(t, "tools", "isolated", "MZ\x90\x00", 0o755)
		manifesttest.Write(t, "tools", "isolated.tool.yaml", "description: d\nruntime: {isolation_mode: container}\n", 0o644)
		manifesttest.Write(t, "tools", "bare.py", "# /// tool\n# description: d\n# ///\nprint()\n", 0o755)
		manifesttest.Write(t, "tools", "empty", "", 0o755)
		manifesttest.Write(t, "tools", "noise", "\x01\x02\x00\xff\xfe\xfd\xfc\xfb\xfa", 0o755)
		manifesttest.Write(t, "tools", "windows.sh", "#!/bin/sh\r\necho\r\n", 0o755)
		manifesttest.Write(t, "tools", "shebang.sh", "#!/bin/sh\r\necho\n", 0o755)
		manifesttest.Write(t, "tools", "other.txt.cat", "#!/usr/bin/env cat\r\nx\r\n", 0o755)
		manifesttest.Write(t, "tools", "pyhton", "#!/usr/bin/env pyhton3\n", 0o755)
	})
	manifesttest.Expect(t, r, []string{"archive", "isolated", "other.txt", "program", "shebang", "torn", "torn_package", "windows"}, []string{
		"error tools/bare.py: has no shebang line, so that nothing says what runs it; begin it with a line such as #!/usr/bin/env python3",
		"error tools/empty: is empty",
		"error tools/noise: cannot be run: it is neither a program of this machine nor a script with a shebang line",
		"warning tools/program.exe: is a program for Windows, and this machine is " + runtime.GOOS + "/" + runtime.GOARCH + ": it cannot be run here without an emulator",
		`error tools/pyhton: interpreter "pyhton3" is not there: no pyhton3 in PATH; did you mean python3? If not, install it, or change the file's first line`,
		"warning tools/torn: cannot be run: its ELF header is damaged or not complete; build or copy it again",
		`warning tools/torn_package/tool.yaml: tools/torn_package/tool.yaml:4:13: entrypoint: "main" cannot be run: its ELF header is damaged or not complete; build or copy it again`,
		"warning tools/windows.sh: has lines that end in CR LF, as on Windows, and sh takes the CR for a part of each command; to convert them: sed -i 's/\\r$//' tools/windows.sh",
	})
}

// SPEC A5: what was meant to be the shebang of a file is pointed out.
func TestA5AShebangThatIsNearlyOne(t *testing.T) {
	files := map[string]struct{ text, want string }{
		"down.sh":    {"\n\n#!/bin/sh\necho\n", "line 3 looks like one, and nothing may stand before its #!, no space and no other line"},
		"indent.sh":  {"  #!/bin/sh\necho\n", "line 1 looks like one, and nothing may stand before its #!, no space and no other line"},
		"bang.py":    {"#/usr/bin/env python3\n", `its first line is "#/usr/bin/env python3"; write #!/usr/bin/env python3`},
		"swapped.sh": {"!#/bin/sh\r\necho\r\n", `its first line is "!#/bin/sh"; write #!/bin/sh`},
		"space.sh":   {"# !/bin/sh\n", `its first line is "# !/bin/sh"; write #!/bin/sh`},
	}
	r := search(t, func() {
		for name, file := range files {
			manifesttest.Write(t, "tools", name, file.text, 0o755)
		}
		manifesttest.Write(t, "tools", "words.sh", "# /usr/bin/env is a program\n", 0o755)
	})
	want := []string{"error tools/words.sh: has no shebang line, so that nothing says what runs it; begin it with a line such as #!/bin/sh"}
	for name, file := range files {
		want = append(want, "error tools/"+name+": has no shebang line: "+file.want)
	}
	slices.Sort(want)
	manifesttest.Expect(t, r, nil, want)
}

// SPEC A2: NAME/VERSION/tool.yaml serves as NAME. SPEC A4: nothing is dropped silently.
func TestVersionsThatAreEquallyHighConflict(t *testing.T) {
	r := search(t, func() {
		for _, version := range []string{"0.9.0", "1.0.0", "1.0.0+b", "v1.0.0"} {
			says := version
			if version == "v1.0.0" {
				says = "1.0.0"
			}
			manifesttest.WritePackage(t, "tools/pack/"+version, "pack", says)
		}
		manifesttest.WritePackage(t, "tools/renamed/1.0.0", "other", "1.0.0")
	})
	const conflict = " is as high a version as tools/pack/1.0.0/tool.yaml, which is served; remove one of the two"
	manifesttest.Expect(t, r, []string{"other", "pack"}, []string{
		"error tools/pack/1.0.0+b/tool.yaml: conflict: 1.0.0+b" + conflict,
		"error tools/pack/v1.0.0/tool.yaml: conflict: v1.0.0" + conflict,
		`warning tools/renamed/1.0.0/tool.yaml: is served as "other", the name in its manifest, although its folder is called "renamed"`,
	})
}
