package lockfile_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/packages/lockfile"
	"github.com/orla-project/orla/internal/testing/costtest"
)

var zero = "h1:" + strings.Repeat("A", 43) + "="

func example() *lockfile.Lock {
	var l lockfile.Lock
	l.Put(lockfile.Package{
		Name: "fs", Version: "1.2.0", Serves: true, Source: lockfile.Source{Kind: lockfile.Git, URL: "https://example.com/fs.git", Registry: "https://example.com/r"},
		Tag: "v1.2.0", Commit: strings.Repeat("1", 40), Digest: zero, Permissions: []string{"filesystem:write:~/a b", "env:TOKEN", "network:*.example.com"},
		Unenforced: []string{"network:*.example.com"}, Signer: `SHA256:abc ssh-ed25519 AAAA "x" é`,
		Dependencies: map[string]string{"uv.lock": "sha256:" + strings.Repeat("0", 64), "package-lock.json": "sha256:" + strings.Repeat("1", 64)},
		Tools:        map[string]string{"fs": "sha256:" + strings.Repeat("2", 64)},
	})
	l.Put(lockfile.Package{Name: "fs", Version: "1.10.0", Source: lockfile.Source{Kind: lockfile.Local, URL: "/x # y: z"}, Digest: zero, Unsigned: true})
	l.Put(lockfile.Package{Name: "true", Version: "1.0.0-rc.1+b", Source: lockfile.Source{Kind: lockfile.Local, URL: "- 0x1"}, Digest: zero, Image: "sha256:" + strings.Repeat("3", 64)})
	return &l
}

// The lock is made for version control: what is written is read as it was, and is the same text each time
// (SPEC M5).
func TestM5LockIsDeterministic(t *testing.T) {
	text := example().Text()
	got, err := lockfile.Parse("orla.lock", text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if again := got.Text(); !bytes.Equal(again, text) {
		t.Errorf("it is written as\n%s\nand then as\n%s", text, again)
	}
	if p := got.Find("fs", "1.2.0"); p == nil || !reflect.DeepEqual(p.Tools, example().Find("fs", "1.2.0").Tools) || p.Signer != example().Find("fs", "1.2.0").Signer {
		t.Errorf("it has %+v", p)
	}
	if got.Versions("fs")[0].Version != "1.10.0" || got.Serving("fs").Version != "1.2.0" || got.Serving("none") != nil {
		t.Errorf("wrong order: %+v", got)
	}
	got.Use("fs", "1.10.0")
	got.Remove("fs", "1.2.0")
	if p := got.Serving("fs"); p.Version != "1.10.0" || !p.Serves || len(got.Versions("fs")) != 1 {
		t.Errorf("after use and remove it has %+v", got)
	}
}

// Each fault of a lock is reported with its place (SPEC M5).
func TestM5LockIsReadStrictly(t *testing.T) {
	entry := "version: 1\npackages:\n  - name: a\n    version: 1.0.0\n    source: {kind: local}\n    digest: " + zero + "\n"
	for _, c := range []struct{ text, want string }{
		{"version: 2\n", "orla.lock:1:10: version: is 2, and this Orla reads 1"},
		{"version: 1\nmore: 1\n", "orla.lock:2:1: more:"},
		{"packages: []\n", "version"},
		{entry + "    serve: true\n", "orla.lock:7:5: packages[0].serve:"},
		{entry + "    permissions: [camera]\n", `orla.lock:7:19: packages[0].permissions[0]: "camera" is not a permission`},
		{entry + "    permissions: [" + strings.Repeat("network,", 33) + "]\n", "packages[0].permissions: are 33, and a package has at most 32"},
		{entry + "    unenforced: [network]\n", "network is not one of the permissions"},
		{entry + "    commit: main\n", "is not a whole commit id"},
		{strings.Replace(entry, "1.0.0", "1.0", 1), "is not a SemVer 2.0 version"},
		{strings.Replace(entry, "name: a", "name: ../a", 1), "is not the name of a package"},
		{strings.Replace(entry, "name: a", "name: ..", 1), "is not the name of a package"},
		{strings.Replace(entry, "name: a", "name: .", 1), "is not the name of a package"},
		{strings.Replace(entry, "name: a", "name: .orla", 1), "is not the name of a package"},
		{strings.Replace(entry, "name: a", "name: Node_Modules", 1), "is not the name of a package"},
		{strings.Replace(entry, "name: a", "name: fs__delete", 1), "is not the name of a package"},
		{strings.Replace(entry, "name: a", "name: fs-.delete", 1), "is not the name of a package"},
		{strings.Replace(entry, "name: a", "name: fs_", 1), "is not the name of a package"},
		{strings.Replace(entry, zero, "h1:x", 1), "is not a digest"},
		{strings.Replace(entry, "local", "ftp", 1), "kind"},
		{entry + entry[len("version: 1\npackages:\n"):], "a@1.0.0 is there twice"},
		{entry + "    serves: true\n" + strings.Replace(entry[len("version: 1\npackages:\n"):], "1.0.0", "2.0.0", 1) + "    serves: true\n", "another version of a serves already"},
		{"<<<<<<< HEAD\nversion: 1\n=======\n", "orla.lock:"},
		{entry + "    signer: x\n    unsigned: true\n", "does not go with signer"},
		{entry + "    dependencies: {a: md5:1}\n", "is not a digest"},
		{entry + "    image: example.com/a:1\n", "is not the digest of an image"},
	} {
		if _, err := lockfile.Parse("orla.lock", []byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\ngives %v; want %s", c.text, err, c.want)
		}
	}
}

// SPEC S1: a lock of others costs in proportion to its packages, of which there are not too many.
func TestS1LockCostsInProportion(t *testing.T) {
	lock := func(n int) []byte {
		var text strings.Builder
		text.WriteString("version: 1\npackages:\n")
		for i := range n {
			fmt.Fprintf(&text, "  - {name: p%d, version: 1.0.0, source: {kind: local}, digest: %q}\n", i, zero)
		}
		return []byte(text.String())
	}
	costtest.Check(t, 1000, func(n int) func() {
		l, err := lockfile.Parse("orla.lock", lock(n))
		if err != nil {
			t.Fatal(err)
		}
		return func() {
			for _, name := range l.Names() {
				if l.Serving(name) == nil || l.Find(name, "1.0.0") == nil || l.Find(name, "1.0.1") != nil || l.Find(name+"-", "1.0.0") != nil {
					t.Fatal(name)
				}
			}
		}
	})
	if _, err := lockfile.Parse("orla.lock", lock(10_001)); err == nil || !strings.Contains(err.Error(), "packages: are 10001, and a lock has at most 10000") {
		t.Error(err)
	}
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, lockfile.Name)
	if l, err := lockfile.Read(file); err != nil || len(l.Packages) != 0 {
		t.Fatalf("a missing lock is %+v, %v", l, err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".orla.lock.new"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := lockfile.Write(file, example()); err != nil {
			t.Fatal(err)
		}
	}
	if l, err := lockfile.Read(file); err != nil || !bytes.Equal(l.Text(), example().Text()) {
		t.Errorf("it is read as %+v, %v", l, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("its mode is %v, %v: the user of a service could not read it", info.Mode(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) != 0 {
		t.Errorf("%v is left", left)
	}
	if err := lockfile.Write(file, &lockfile.Lock{Packages: []lockfile.Package{{Name: "a/b"}}}); err == nil {
		t.Error("a lock was written that cannot be read")
	}
	if l, err := lockfile.Read(file); err != nil || len(l.Packages) != 3 {
		t.Errorf("it is now %+v, %v", l, err)
	}
}

func TestRecord(t *testing.T) {
	dir := t.TempDir()
	if _, err := lockfile.ReadRecord(dir); !lockfile.IsMissing(err) {
		t.Errorf("without a record: %v", err)
	}
	p := example().Find("fs", "1.2.0")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, lockfile.RecordName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(string(lockfile.RecordOf(*p).Text()))
	if r, err := lockfile.ReadRecord(dir); err != nil || !r.Matches(p) || r.Matches(nil) || r.Matches(example().Find("fs", "1.10.0")) {
		t.Errorf("it is %+v, %v", r, err)
	}
	for _, text := range []string{"", "{}", `{"orla_package":2}`, `{"orla_package":1,"grant":"all"}`} {
		write(text)
		if _, err := lockfile.ReadRecord(dir); err == nil || lockfile.IsMissing(err) {
			t.Errorf("%q gives %v", text, err)
		}
	}
}

func TestPath(t *testing.T) {
	dir := t.TempDir()
	project, sub := filepath.Join(dir, "p"), filepath.Join(dir, "p", "a", "b")
	if err := os.MkdirAll(sub, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := lockfile.Path(sub, "", ""); got != filepath.Join(sub, lockfile.Name) {
		t.Errorf("without an orla.yaml the lock is %s", got)
	}
	if err := os.WriteFile(filepath.Join(project, "orla.yaml"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ tools, config, home, want string }{
		{filepath.Join(project, "tools"), "", "/h", filepath.Join(project, lockfile.Name)},
		{sub, "", "", filepath.Join(project, lockfile.Name)},
		{"/h/.orla/tools", filepath.Join(project, "orla.yaml"), "/h", "/h/.orla/orla.lock"},
		{"/srv/tools", "/etc/orla/orla.yaml", "/h", "/etc/orla/orla.lock"},
		{filepath.Join(project, "tools"), "/h/.orla/config.yaml", "/h", filepath.Join(project, lockfile.Name)},
	} {
		if got := lockfile.Path(c.tools, c.config, c.home); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// A lock that is a link is read and written only if it leads to a file in its own folder: a repository of others can have
// a link to the lock of another project (SPEC M5).
func TestM5ALockThatIsALink(t *testing.T) {
	other, dir := filepath.Join(t.TempDir(), lockfile.Name), t.TempDir()
	file := filepath.Join(dir, lockfile.Name)
	if err := lockfile.Write(other, example()); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(other)
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]string{
		other:                           "is a link to " + other + ", which is outside its folder",
		filepath.Join(dir, "not there"): "is a link that leads nowhere",
		lockfile.Name:                   "is a link that leads nowhere",
	} {
		if err := os.Symlink(target, file); err != nil {
			t.Fatal(err)
		}
		if _, err := lockfile.Read(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a link to %s is read: %v, want %q", target, err, want)
		}
		if err := lockfile.Write(file, &lockfile.Lock{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a link to %s is written: %v, want %q", target, err, want)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	if now, err := os.ReadFile(other); err != nil || !bytes.Equal(now, before) {
		t.Errorf("the other lock has changed: %s, %v", now, err)
	}
	data := filepath.Join(dir, "..data")
	if err := errors.Join(os.Mkdir(data, 0o700), os.WriteFile(filepath.Join(data, lockfile.Name), before, 0o600), os.Symlink("..data/"+lockfile.Name, file)); err != nil {
		t.Fatal(err)
	}
	if l, err := lockfile.Read(file); err != nil || len(l.Packages) != 3 {
		t.Errorf("a link in the folder is read as %v, %v", l, err)
	}
	if err := lockfile.Write(file, &lockfile.Lock{}); err != nil {
		t.Error(err)
	}
	if info, err := os.Lstat(file); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("it is not a link any more: %v, %v", info, err)
	}
}
