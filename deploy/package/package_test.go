package package_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
)

// shared is a deb that several tests look at, and sharedDist its folder, which
// TestMain removes.
var (
	shared     = sync.OnceValues(func() (string, error) { return build("deb", "v1.2.3", sharedDist) })
	sharedDist string
)

func TestMain(m *testing.M) {
	var err error
	if sharedDist, err = os.MkdirTemp("", "orla-dist-*"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(sharedDist) // a temporary folder
	os.Exit(code)
}

// build builds the package of a format for this machine in the folder dist, and
// returns its file.
func build(format, version, dist string) (string, error) {
	cmd := exec.Command(filepath.Join("..", "..", "scripts", "package"), format, runtime.GOARCH)
	cmd.Env = append(os.Environ(), "DIST="+dist, "VERSION="+version)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("scripts/package %s: %w\n%s", format, err, out)
	}
	found, err := filepath.Glob(filepath.Join(dist, "*."+format))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("scripts/package %s made %q", format, found)
	}
	return found[0], nil
}

func output(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
	return string(out)
}

// inCopy runs a shell script as root in a copy of this machine's files, which
// is over with the script, and returns what it prints. $package is the file of
// the package there; ours lists what of the copy's changes has to do with Orla.
func inCopy(t *testing.T, file, script string) string {
	t.Helper()
	needs.Programs(t, "unshare")
	needs.Root(t, "install packages")
	if out, err := exec.Command("unshare", "--mount", "true").CombinedOutput(); err != nil {
		needs.Missing(t, "there are no mount namespaces here: %v: %s", err, out)
	}
	const copied = `set -eu
mount -t tmpfs none "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" none "$1/root"
mount --rbind /dev "$1/root/dev"
mount -t proc none "$1/root/proc"
export package=/$(basename "$2") upper=$1/upper
cp "$2" "$1/root$package"
run() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }
ours() {
	(cd "$upper" && find . -path '*orla*' ! -path ".$package" ! -path './tmp/*' ! -path './root/*' -printf '/%P\n' | sort) |
		run xargs --no-run-if-empty stat --format '%n %U'
}
root=$1/root
rm -f "$root/var/lib/man-db/auto-update" # else each of dpkg's runs reads every page of the machine
`
	cmd := exec.Command("unshare", "--mount", "--fork", "--pid", "bash", "-c", copied+script, "bash", t.TempDir(), file)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// printed returns what a script of inCopy printed after "== NAME".
func printed(t *testing.T, out, name string) string {
	t.Helper()
	_, rest, ok := strings.Cut(out, "== "+name+"\n")
	if !ok {
		t.Fatalf("it did not come to %q:\n%s", name, out)
	}
	rest, _, _ = strings.Cut(rest, "== ")
	return rest
}

// A deb is installed, runs, is upgraded, removed and purged (SPEC K2).
func TestDebComesAndGoes(t *testing.T) {
	t.Parallel()
	needs.Time(t, "builds a package")
	needs.Programs(t, "dpkg-deb", "dpkg", "deb-systemd-helper", "systemctl", "runuser")
	deb, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	out := inCopy(t, deb, `
packages() { echo "== packages"; run "$@" 2>&1; }
packages dpkg -i $package
echo "== installed"; ours
echo "== user"; run getent passwd orla
echo "== enabled"; run systemctl is-enabled orla.service orla.socket || true

printf '#!/bin/sh\necho "hello from $(id -un)"\n' >"$root/var/lib/orla/tools/hello.sh"
chmod +x "$root/var/lib/orla/tools/hello.sh"
echo "== call"; run runuser -u orla -- orla call hello --config /etc/orla/orla.yaml
echo "== page"; run man -w orla 2>&1 || true
touch "$root/var/lib/orla/state"

echo "port: 9000" >>"$root/etc/orla/orla.yaml"
run systemctl enable orla.service >/dev/null 2>&1
packages dpkg -i $package
echo "== upgraded"; tail -n 1 "$root/etc/orla/orla.yaml"; run systemctl is-enabled orla.service

packages dpkg -r orla
echo "== removed"; ours
packages dpkg -P orla
echo "== purged"; ours
rm -r "$root/var/lib/orla"
packages dpkg -i $package
packages dpkg -P orla
echo "== gone"; ours; run dpkg-query -W orla 2>&1 || true
`)
	installed := strings.Split(printed(t, out, "installed"), "\n")
	for _, want := range []string{
		"/usr/bin/orla root",
		"/etc/orla/orla.yaml root",
		"/usr/lib/systemd/system/orla.service root",
		"/usr/lib/systemd/system/orla.socket root",
		"/usr/lib/systemd/user/orla.service root",
		"/usr/lib/orla/notify-reload.conf root",
		"/etc/logrotate.d/orla root",
		"/usr/lib/sysusers.d/orla.conf root",
		"/usr/share/man/man1/orla.1.gz root",
		"/usr/share/bash-completion/completions/orla root",
		"/usr/share/zsh/vendor-completions/_orla root",
		"/usr/share/fish/vendor_completions.d/orla.fish root",
		"/usr/share/doc/orla/copyright root",
		"/usr/share/doc/orla/THIRD_PARTY_LICENSES.gz root",
		"/var/lib/orla orla",
		"/var/lib/orla/tools root",
	} {
		if !slices.Contains(installed, want) {
			t.Errorf("the installation lacks %q", want)
		}
	}
	for _, step := range []struct{ name, want string }{
		{"user", `^orla:x:\d+:\d+:[^:]*:/var/lib/orla:/usr/sbin/nologin\n$`},
		{"enabled", `^disabled\ndisabled\n$`},
		{"call", `^hello from orla\n$`},
		{"upgraded", `^port: 9000\nenabled\n$`},
		{"removed", `/etc/orla/orla.yaml root\n`},
		{"purged", `^/var/lib/orla orla\n/var/lib/orla/tools root\n/var/lib/orla/tools/hello.sh root\n$`},
		{"gone", `^dpkg-query: no packages found matching orla\n$`},
	} {
		if got := printed(t, out, step.name); !regexp.MustCompile(step.want).MatchString(got) {
			t.Errorf("%s: %q does not match %s", step.name, got, step.want)
		}
	}
	if strings.Contains(printed(t, out, "removed"), "/usr/") {
		t.Errorf("a removal leaves %s", printed(t, out, "removed"))
	}
	if t.Failed() {
		t.Log(out)
	}
}

// The deb passes what Debian asks of its own packages.
func TestDebIsWellFormed(t *testing.T) {
	t.Parallel()
	needs.Time(t, "builds a package")
	needs.Programs(t, "lintian", "dpkg-deb")
	deb, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(output(t, "lintian", "--allow-root", "--fail-on", "none", deb)) {
		if strings.HasPrefix(line, "E: ") {
			t.Error(line)
		}
	}
	if got := output(t, "dpkg-deb", "--field", deb, "Version", "Architecture"); got != "Version: 1.2.3-1\nArchitecture: "+runtime.GOARCH+"\n" {
		t.Errorf("it says %q of itself", got)
	}
	unpacked := t.TempDir()
	output(t, "dpkg-deb", "--extract", deb, unpacked)
	for _, guide := range []string{"OPERATING.md", "SYSTEMD.md", "METRICS.md"} {
		if dead := deadLinks(t, filepath.Join(unpacked, "usr/share/doc/orla/docs", guide)); len(dead) > 0 {
			t.Errorf("%s tells operators to look at %q, which the package lacks", guide, dead)
		}
	}
	again, err := build("deb", "v1.2.3", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if one, other := output(t, "sha256sum", deb), output(t, "sha256sum", again); one[:64] != other[:64] {
		t.Error("two packages of one revision differ")
	}
}

// deadLinks returns the files that a guide points to, and are not there.
func deadLinks(t *testing.T, guide string) (dead []string) {
	t.Helper()
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range regexp.MustCompile(`\]\(([^):#]+)[^):]*\)`).FindAllStringSubmatch(string(text), -1) {
		if _, err := os.Stat(filepath.Join(filepath.Dir(guide), link[1])); err != nil {
			dead = append(dead, link[1])
		}
	}
	return dead
}

// An rpm is installed and removed (SPEC K2).
func TestRPMComesAndGoes(t *testing.T) {
	t.Parallel()
	needs.Time(t, "builds a package")
	needs.Programs(t, "rpm")
	rpm, err := build("rpm", "v1.2.3-rc.1", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if got := output(t, "rpm", "-qp", "--qf", "%{VERSION} %{LICENSE}", rpm); !strings.HasSuffix(got, "1.2.3~rc.1 Apache-2.0") {
		t.Errorf("it says %q of itself", got)
	}
	out := inCopy(t, rpm, `
run rpm -i --nodeps --force-debian $package 2>&1
echo "== installed"; ours
echo "== version"; run orla version
echo "== packages"; run rpm -e --nodeps orla 2>&1
echo "== gone"; ours
`)
	installed := strings.Split(printed(t, out, "installed"), "\n")
	for _, want := range []string{
		"/usr/bin/orla root", "/etc/orla/orla.yaml root", "/usr/lib/systemd/system/orla.service root",
		"/usr/share/zsh/site-functions/_orla root", "/var/lib/orla orla", "/var/lib/orla/tools root",
	} {
		if !slices.Contains(installed, want) {
			t.Errorf("the installation lacks %q", want)
		}
	}
	if got := printed(t, out, "version"); !strings.Contains(got, "v1.2.3-rc.1") {
		t.Errorf("orla version: %s", got)
	}
	if got := printed(t, out, "gone"); got != "" {
		t.Errorf("a removal leaves %s", got)
	}
	if t.Failed() {
		t.Log(out)
	}
}

// What a version is called orders as its history does.
func TestPackageVersionsOrder(t *testing.T) {
	needs.Programs(t, "dpkg")
	script, err := os.ReadFile(filepath.Join("..", "..", "scripts", "package"))
	if err != nil {
		t.Fatal(err)
	}
	function := regexp.MustCompile(`(?ms)^package_version\(\) \{.*?^\}$`).FindString(string(script))
	for _, history := range [][]string{
		{"0123abc", "v1.2.3-alpha", "v1.2.3-rc.1", "v1.2.3-rc.1-dirty", "v1.2.3-rc.2", "v1.2.3", "v1.2.3-5-g0123abc", "v1.2.4-rc.1", "v1.2.4"},
		{"v1.2.3", "v1.2.3-dirty", "v1.2.4"},
	} {
		last := ""
		for _, version := range history {
			got := strings.TrimSpace(output(t, "bash", "-c", "SOURCE_DATE_EPOCH=1700000000\n"+function+"\npackage_version "+version))
			if last != "" {
				if err := exec.Command("dpkg", "--compare-versions", last, "lt", got).Run(); err != nil {
					t.Errorf("%s is packaged as %s, which is not after %s", version, got, last)
				}
			}
			last = got
		}
	}
}
