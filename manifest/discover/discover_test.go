package discover_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/manifesttest"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/discover"
)

const another = "#!/bin/sh\necho another\n"

// search searches the folder tools of a new working directory.
func search(t *testing.T, build func()) manifest.Result {
	t.Helper()
	return discover.Tools(discover.Options{ToolsDir: manifesttest.Folder(t, build)})
}

func TestA1AnAbsentOrEmptyFolderIsAWarning(t *testing.T) {
	t.Chdir(t.TempDir())
	r := discover.Tools(discover.Options{ToolsDir: "tools", UserDir: "home"})
	manifesttest.Expect(t, r, nil, []string{"warning tools: does not exist; make the folder and put an executable into it to serve it as a tool"})
	for _, dir := range []string{"tools", "home"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r = discover.Tools(discover.Options{ToolsDir: "tools", UserDir: "home"})
	manifesttest.Expect(t, r, nil, []string{"warning tools: holds no tools; put an executable into it (chmod +x) to serve it"})
	manifesttest.Write(t, ".", "file", "", 0o644)
	r = discover.Tools(discover.Options{ToolsDir: "file"})
	manifesttest.Expect(t, r, nil, []string{"error file: is not a folder"})
}

func TestA2ASimpleToolIsDescribed(t *testing.T) {
	r := search(t, func() { manifesttest.Write(t, "tools", "sub/hello.py", "#!/bin/sh -e\r\necho\n", 0o755) })
	root, err := filepath.EvalSymlinks("tools")
	if err != nil {
		t.Fatal(err)
	}
	if root, err = filepath.Abs(root); err != nil {
		t.Fatal(err)
	}
	want := []manifest.Tool{{
		Name: "hello", Kind: manifest.Simple, Path: filepath.Join(root, "sub/hello.py"), Dir: root, Source: "tools/sub/hello.py",
		Interpreter: manifest.Interpreter{Name: "sh", Path: "/bin/sh", Args: []string{"-e"}},
		InputSchema: json.RawMessage(`{"type":"object"}`),
		Run:         manifest.Run{Arguments: manifest.ArgumentsBoth, Output: manifest.OutputText},
	}}
	if len(r.Problems) > 0 || !reflect.DeepEqual(r.Tools, want) {
		t.Errorf("got  %+v %v\nwant %+v", r.Tools, manifesttest.Texts(r), want)
	}
}

func TestA2WhatIsFoundAndWhatIsSkipped(t *testing.T) {
	r := search(t, func() {
		manifesttest.Write(t, "tools", "run.sh", manifesttest.Script, 0o755)
		manifesttest.Write(t, "tools", "a/b/c/deep", manifesttest.Script, 0o700)
		manifesttest.Write(t, "tools", "binary", manifesttest.Binary, 0o001)
		manifesttest.Write(t, "tools", "archive.tar.gz", manifesttest.Script, 0o755)
		for _, silent := range []string{".hidden.sh", ".sh", ".git/hook", "node_modules/a/x", "a/__pycache__/x", "venv/bin/python", ".venv/bin/python"} {
			manifesttest.Write(t, "tools", silent, manifesttest.Script, 0o755)
		}
		for _, data := range []string{"README.md", "a/data.json", "config.yaml", "notes", "empty"} {
			manifesttest.Write(t, "tools", data, "x", 0o644)
		}
		manifesttest.Write(t, "tools", "forgot.py", manifesttest.Script, 0o644)
		manifesttest.Write(t, "tools", "helpers.py", "def f(): pass\n", 0o644)
		manifesttest.Write(t, "tools", "described.js", "// /// tool\n// ///\n", 0o644)
		manifesttest.Write(t, "tools", "a/forgot", manifesttest.Script, 0o644)
		manifesttest.Write(t, "tools", "old/orla-tool.json", "{\"name\": \"old\"}", 0o644)
		manifesttest.Write(t, "tools", "old/main.py", manifesttest.Script, 0o755)
		manifesttest.Write(t, "tools", "res.yaml", "apiVersion: v1\nkind: Tool # it is\n", 0o755)
		manifesttest.Write(t, "tools", "res2.tool.yaml", "apiVersion: v1\nkind: \"Tool\"\n", 0o644)
		manifesttest.Write(t, "tools", "other.yaml", "kind: Toolbox\n", 0o644)
		manifesttest.Write(t, "tools", "pack/tool.yml", "name: x\n", 0o644)
		manifesttest.Write(t, "tools", "broken/tool.yaml", "name: broken\n", 0o644)
		manifesttest.Write(t, "tools", "broken/run.sh", manifesttest.Script, 0o755)
		manifesttest.Write(t, "tools", "badblock.sh", "#!/bin/sh\n# /// tool\n", 0o755)
	})
	manifesttest.Expect(t, r, []string{"archive.tar", "binary", "deep", "run"}, []string{
		"warning tools/a/forgot: is not executable: chmod +x tools/a/forgot",
		`error tools/badblock.sh: tools/badblock.sh:2:1: the metadata block that begins here must end with a line "# ///", within the file's first 65536 bytes`,
		"error tools/broken/tool.yaml: tools/broken/tool.yaml:1:1: version: is required\n" +
			"tools/broken/tool.yaml:1:1: description: is required\ntools/broken/tool.yaml:1:1: entrypoint: is required",
		"warning tools/described.js: is not executable: chmod +x tools/described.js",
		"warning tools/forgot.py: is not executable: chmod +x tools/forgot.py",
		"warning tools/old/orla-tool.json: " + manifesttest.Deprecated,
		"error tools/old/orla-tool.json: tools/old/orla-tool.json:1:1: version: is required\ntools/old/orla-tool.json:1:1: entrypoint: is required",
		"error tools/pack/tool.yml: is not read: call it tool.yaml; nothing in its folder is served",
		"error tools/res.yaml: tools/res.yaml:1:1: metadata: is required\ntools/res.yaml:1:1: spec: is required\n" +
			`tools/res.yaml:1:13: apiVersion: wants orloj.dev/v1, got "v1"`,
		"error tools/res2.tool.yaml: tools/res2.tool.yaml:1:1: metadata: is required\ntools/res2.tool.yaml:1:1: spec: is required\n" +
			`tools/res2.tool.yaml:1:13: apiVersion: wants orloj.dev/v1, got "v1"`,
	})
}

func TestA2LinksStayInsideAndSpecialFilesAreNotOpened(t *testing.T) {
	r := search(t, func() {
		manifesttest.Write(t, "tools", "lib/real.sh", manifesttest.Script, 0o755)
		manifesttest.Write(t, "tools", "lib/data.txt", "x", 0o644)
		manifesttest.Write(t, ".", "outside.sh", manifesttest.Script, 0o755)
		manifesttest.Link(t, "lib/real.sh", "tools/alias.sh")
		manifesttest.Link(t, "lib/real.sh", "tools/real")
		manifesttest.Link(t, "lib/data.txt", "tools/data")
		manifesttest.Link(t, "../outside.sh", "tools/out1")
		manifesttest.Link(t, "..", "tools/out2")
		manifesttest.Link(t, "gone", "tools/dangling")
		manifesttest.Link(t, "loop2", "tools/loop1")
		manifesttest.Link(t, "loop1", "tools/loop2")
		manifesttest.Link(t, "..", "tools/lib/up")
		manifesttest.Link(t, ".", "tools/self")
		fifo(t, "tools/fifo")
		fifo(t, "tools/lib/fifo.tool.yaml")
		fifo(t, "tools/waits/tool.yaml")
		manifesttest.Link(t, "fifo", "tools/tofifo")
		socket, err := net.Listen("unix", "tools/socket")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := socket.Close(); err != nil {
				t.Error(err)
			}
		})
	})
	root, err := filepath.EvalSymlinks(".")
	if err != nil {
		t.Fatal(err)
	}
	if root, err = filepath.Abs(root); err != nil {
		t.Fatal(err)
	}
	manifesttest.Expect(t, r, []string{"alias", "real"}, []string{
		"warning tools/dangling: is skipped: it is a link to something that does not exist",
		"warning tools/fifo: is skipped: it is a FIFO, not a file",
		"error tools/lib/fifo.tool.yaml: is not a regular file but a FIFO" + manifesttest.MayBeRule,
		"warning tools/loop1: is skipped: it is a link that cannot be followed: too many links",
		"warning tools/loop2: is skipped: it is a link that cannot be followed: too many links",
		"warning tools/out1: is skipped: it is a link that leaves the folder, to " + root + "/outside.sh",
		"warning tools/out2: is skipped: it is a link that leaves the folder, to " + root,
		"warning tools/socket: is skipped: it is a socket, not a file",
		"warning tools/tofifo: is skipped: it is a link to a FIFO, not to a file",
		"error tools/waits/tool.yaml: is not a regular file but a FIFO" + manifesttest.MayBeRule,
	})
	for _, tool := range r.Tools {
		if want := root + "/tools/lib/real.sh"; tool.Path != want || tool.Dir != root+"/tools" {
			t.Errorf("%s: path %s, folder %s; want %s", tool.Name, tool.Path, tool.Dir, want)
		}
	}
}

func TestA2AHugeExecutableCostsItsFirstBytes(t *testing.T) {
	r := search(t, func() {
		manifesttest.Write(t, "tools", "huge", manifesttest.Binary, 0o755)
		if err := os.Truncate("tools/huge", 1<<40); err != nil {
			t.Skipf("the file system has no such large files: %v", err)
		}
	})
	manifesttest.Expect(t, r, []string{"huge"}, nil)
}

func TestA2TenThousandTools(t *testing.T) {
	needs.Time(t, "writes ten thousand files")
	r := search(t, func() {
		for i := range 10_000 {
			if err := os.WriteFile(fmt.Sprintf("tools/t%05d.sh", i), []byte(manifesttest.Script), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	})
	if len(r.Tools) != 10_000 || len(r.Problems) > 0 || !slices.IsSortedFunc(r.Tools, func(a, b manifest.Tool) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("got %d tools and %d problems", len(r.Tools), len(r.Problems))
	}
}

func TestA2PackagesAreOpaqueAndTheHighestVersionServes(t *testing.T) {
	r := search(t, func() {
		manifesttest.WritePackage(t, "tools/one", "first", "1.0.0")
		manifesttest.Write(t, "tools", "one/bin/inner", manifesttest.Script, 0o755)
		manifesttest.Write(t, "tools", "one/inner2/tool.yaml", "x", 0o644)
		for _, version := range []string{"1.9.0", "1.10.0", "1.10.0-rc.1", "v1.2.0"} {
			manifesttest.WritePackage(t, "tools/many/"+version, "many", strings.TrimPrefix(version, "v"))
		}
		manifesttest.WritePackage(t, "tools/faulty/1.0.0", "faulty", "1.0.0")
		manifesttest.Write(t, "tools", "faulty/2.0.0/tool.yaml", "name: faulty\n", 0o644)
		manifesttest.WritePackage(t, "tools/odd/1.0.0", "odd", "1.0.1")
		manifesttest.Write(t, "tools", "odd/2.0.0/plain.sh", manifesttest.Script, 0o755)
		manifesttest.Link(t, "many/1.9.0", "tools/current")
		manifesttest.Write(t, "tools", "caps/tool.yaml", "name: caps\nversion: 1.0.0\ndescription: x\nentrypoint: run.sh\nruntime: {mode: capsule}\n", 0o644)
		manifesttest.Write(t, "tools", "caps/run.sh", manifesttest.Script, 0o755)
	})
	manifesttest.Expect(t, r, []string{"caps", "faulty", "first", "many", "odd", "plain"}, []string{
		"error tools/faulty/2.0.0/tool.yaml: tools/faulty/2.0.0/tool.yaml:1:1: version: is required\n" +
			"tools/faulty/2.0.0/tool.yaml:1:1: description: is required\ntools/faulty/2.0.0/tool.yaml:1:1: entrypoint: is required",
		"warning tools/odd/1.0.0/tool.yaml: has version 1.0.1 but is in the folder of version 1.0.0",
	})
	if r.Tools[0].Kind != manifest.Capsule || r.Tools[3].Version != "1.10.0" || r.Tools[1].Version != "1.0.0" {
		t.Errorf("got %+v", r.Tools)
	}
}

func TestA3BadNamesAreReplaced(t *testing.T) {
	long := strings.Repeat("n", 70)
	r := search(t, func() {
		for _, name := range []string{"my tool.sh", "größe.sh", "bad\xffbyte", long + ".py", "a.b-c_D1.sh", "x;rm"} {
			manifesttest.Write(t, "tools", name, manifesttest.Script, 0o755)
		}
	})
	why := "has characters other than A-Z a-z 0-9 _ . and -"
	manifesttest.Expect(t, r, []string{"a.b-c_D1", "bad_byte", "gr__e", "my_tool", long[:64], "x_rm"}, []string{
		`warning tools/bad` + "\xff" + `byte: is served as "bad_byte": the name "bad\xffbyte" ` + why,
		`warning tools/größe.sh: is served as "gr__e": the name "größe" ` + why,
		`warning tools/my tool.sh: is served as "my_tool": the name "my tool" ` + why,
		`warning tools/` + long + `.py: is served as "` + long[:64] + `": the name "` + long + `" is longer than 64 characters`,
		`warning tools/x;rm: is served as "x_rm": the name "x;rm" ` + why,
	})
}

func TestA4TheFirstOfANameServesAndTheOtherIsAConflict(t *testing.T) {
	r := search(t, func() {
		manifesttest.Write(t, "tools", "b.sh", manifesttest.Script, 0o755)
		manifesttest.Write(t, "tools", "b.py", another, 0o755)
		manifesttest.Write(t, "tools", "a/b", another, 0o755)
		manifesttest.WritePackage(t, "tools/z", "b", "1.0.0")
		manifesttest.Write(t, "tools", "c/d.sh", manifesttest.Script, 0o755)
		manifesttest.Link(t, "d.sh", "tools/c/d")
	})
	manifesttest.Expect(t, r, []string{"b", "d"}, []string{
		`error tools/b.py: conflict: the tool "b" is served from tools/a/b; rename one of the two`,
		`error tools/b.sh: conflict: the tool "b" is served from tools/a/b; rename one of the two`,
		`error tools/z/tool.yaml: conflict: the tool "b" is served from tools/a/b; rename one of the two`,
	})
	if r.Tools[0].Source != "tools/a/b" || r.Problems[0].Tool != "b" {
		t.Errorf("got %+v, %+v", r.Tools[0], r.Problems[0])
	}
}

// SPEC-TOOLS 8.4: rules know a manifest by a name that no other one has, whatever the case is, and however it stands before the names of its tools.
func TestT84NamesThatRulesCannotTellApartAreAConflict(t *testing.T) {
	t.Chdir(t.TempDir())
	manifesttest.Write(t, "tools", "deploy.sh", manifesttest.Script, 0o755)
	manifesttest.Write(t, "tools", "z/Deploy", another, 0o755)
	server := "apiVersion: orloj.dev/v1\nkind: McpServer\nmetadata: {name: %s}\nspec: {transport: stdio, command: sh}\n"
	for _, name := range []string{"git_hub", "git-hub", "GIT.hub", "github"} {
		manifesttest.Write(t, "tools", "zz-"+strings.NewReplacer("_", "1", "-", "2", ".", "3").Replace(name)+".yaml", fmt.Sprintf(server, name), 0o644)
	}
	manifesttest.WritePackage(t, "tools/a-package/1.0.0", "DePloy", "1.0.0")
	manifesttest.Write(t, "home", "DEPLOY.sh", manifesttest.Script, 0o755)
	manifesttest.Write(t, "home", "git-hub", another, 0o755) // has no tools of its own
	r := discover.Tools(discover.Options{ToolsDir: "tools", UserDir: "home"})
	manifesttest.Expect(t, r, []string{"GIT.hub", "deploy", "git-hub", "github"}, []string{
		`error home/DEPLOY.sh: conflict: rules cannot tell the name "DEPLOY" from "deploy", which is served from tools/deploy.sh; rename one of the two`,
		`error tools/a-package/1.0.0/tool.yaml: conflict: rules cannot tell the name "DePloy" from "deploy", which is served from tools/deploy.sh; rename one of the two`,
		`warning tools/a-package/1.0.0/tool.yaml: is served as "DePloy", the name in its manifest, although its folder is called "a-package"`,
		`error tools/z/Deploy: conflict: rules cannot tell the name "Deploy" from "deploy", which is served from tools/deploy.sh; rename one of the two`,
		`error tools/zz-git1hub.yaml: tools/zz-git1hub.yaml:3:18: metadata.name: conflict: rules cannot tell the name "git_hub" from "GIT.hub", which is served from tools/zz-GIT3hub.yaml:3; rename one of the two`,
		`error tools/zz-git2hub.yaml: tools/zz-git2hub.yaml:3:18: metadata.name: conflict: rules cannot tell the name "git-hub" from "GIT.hub", which is served from tools/zz-GIT3hub.yaml:3; rename one of the two`,
	})
}

func TestA2TheProjectHidesTheUsersTools(t *testing.T) {
	t.Chdir(t.TempDir())
	manifesttest.Write(t, "tools", "both.sh", manifesttest.Script, 0o755)
	manifesttest.Write(t, "home", "both.py", another, 0o755)
	manifesttest.Write(t, "home", "mine.sh", manifesttest.Script, 0o755)
	manifesttest.Write(t, "home", "x/mine", another, 0o755)
	r := discover.Tools(discover.Options{ToolsDir: "tools", UserDir: "home"})
	manifesttest.Expect(t, r, []string{"both", "mine"}, []string{
		`error home/x/mine: conflict: the tool "mine" is served from home/mine.sh; rename one of the two`,
	})
	if r.Tools[0].Source != "tools/both.sh" {
		t.Errorf("served is %s", r.Tools[0].Source)
	}
}

func TestA2OneFolderInsideTheOtherIsSearchedOnce(t *testing.T) {
	t.Chdir(t.TempDir())
	manifesttest.Write(t, "tools", "a.sh", manifesttest.Script, 0o755)
	manifesttest.Write(t, "tools", "user/b.sh", manifesttest.Script, 0o755)
	manifesttest.Write(t, "tools", "user/forgot.sh", manifesttest.Script, 0o644)
	forgot := func(dir string) []string {
		return []string{"warning " + dir + "/forgot.sh: is not executable: chmod +x " + dir + "/forgot.sh"}
	}
	for _, c := range []struct{ project, user, seen string }{
		{"tools", "tools", "tools/user"},
		{"tools", "./tools/", "tools/user"},
		{"tools", "tools/user", "tools/user"},
		{"tools/user", "tools", "tools/user"},
	} {
		r := discover.Tools(discover.Options{ToolsDir: c.project, UserDir: c.user})
		manifesttest.Expect(t, r, []string{"a", "b"}, forgot(c.seen))
	}
}

func TestValidateTakesWhateverThereIs(t *testing.T) {
	t.Chdir(t.TempDir())
	manifesttest.Write(t, "tools", "a.sh", manifesttest.Script, 0o755)
	manifesttest.Write(t, "tools", "a.tool.yaml", "description: d\n", 0o644)
	manifesttest.Write(t, "tools", "b", manifesttest.Script, 0o755)
	manifesttest.Write(t, "tools", "plain.py", manifesttest.Script, 0o644)
	manifesttest.Write(t, "tools", ".hidden", manifesttest.Script, 0o755)
	manifesttest.Write(t, "tools", "res.yaml", fmt.Sprintf(manifesttest.Resource, "res"), 0o644)
	manifesttest.Write(t, "tools", "data.json", "{}", 0o644)
	manifesttest.Write(t, "tools", "a/ignored", manifesttest.Script, 0o755)
	manifesttest.WritePackage(t, "tools/p", "pack", "1.0.0")
	manifesttest.WritePackage(t, "tools/versions/1.0.0", "versions", "1.0.0")
	manifesttest.WritePackage(t, "tools/versions/2.0.0", "versions", "2.0.0")
	fifo(t, "fifo")
	for path, want := range map[string]struct{ tools, problems []string }{
		"tools/a.sh":           {[]string{"a"}, nil},
		"tools/a.tool.yaml":    {[]string{"a"}, nil},
		"tools/b":              {[]string{"b"}, nil},
		"tools/p":              {[]string{"pack"}, nil},
		"tools/p/tool.yaml":    {[]string{"pack"}, nil},
		"tools/versions":       {[]string{"versions"}, nil},
		"tools/versions/1.0.0": {[]string{"versions"}, nil},
		"tools/plain.py":       {nil, []string{"warning tools/plain.py: is not executable: chmod +x tools/plain.py"}},
		"tools/.hidden":        {nil, []string{"error tools/.hidden: is hidden, as its name begins with a dot, and is never served"}},
		"tools/res.yaml":       {[]string{"res"}, nil},
		"tools/data.json":      {nil, []string{"error tools/data.json: declares no resource: apiVersion: orloj.dev/v1 and a kind would make it one"}},
		"tools/none":           {nil, []string{"error tools/none: does not exist"}},
		"fifo":                 {nil, []string{"error fifo: is neither a folder nor a file but a FIFO"}},
		"tools": {[]string{"a", "b", "ignored", "pack", "res", "versions"}, []string{
			"warning tools/plain.py: is not executable: chmod +x tools/plain.py",
		}},
	} {
		t.Run(path, func(t *testing.T) { manifesttest.Expect(t, discover.Validate(path), want.tools, want.problems) })
	}
	if r := discover.Validate("tools/a.tool.yaml"); len(r.Tools) == 1 && r.Tools[0].Description != "d" {
		t.Errorf("the description is not read: %+v", r.Tools[0])
	}
}
