package doctor_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/app/doctor"
)

// machine prepares a machine whose files say what they are given to.
func machine(t *testing.T, files map[string]string) doctor.Machine {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return doctor.Machine{Root: root}
}

func check(t *testing.T, got doctor.Finding, level doctor.Level, text, fix string) {
	t.Helper()
	if got.Level != level || !regexp.MustCompile(text).MatchString(got.Text) || !regexp.MustCompile("^"+fix+"$").MatchString(got.Fix) {
		t.Errorf("%s: %s, %q, fix %q; want %s, %q, fix %q", got.Check, got.Level, got.Text, got.Fix, level, text, fix)
	}
}

// SPEC R1: a program that a package of somebody else names is not run to know its version, unless it is one that Orla knows.
func TestR1OnlyKnownProgramsAreAskedForTheirVersions(t *testing.T) {
	dir := t.TempDir()
	ran := filepath.Join(dir, "ran")
	for _, program := range []string{"deploy", "jq"} {
		if err := os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\necho $0 >>"+ran+"\necho 1.0.0\n"), 0o755); err != nil { //nolint:gosec // it is run
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	never := func(string, string) bool { return false }
	check(t, doctor.Requirement(t.Context(), "deploy>=2", never, []string{"a"}), doctor.OK, "deploy is there, for a; its version was not asked for, and has to be >=2", "")
	if text, err := os.ReadFile(ran); err == nil {
		t.Errorf("it ran %s", text)
	}
	check(t, doctor.Requirement(t.Context(), "jq>=2", never, []string{"a"}), doctor.Fail, "jq is 1.0.0, and a needs jq>=2", "")
}

const inotify = "proc/sys/fs/inotify/max_user_"

func TestInotify(t *testing.T) {
	tests := []struct {
		watches, instances string
		folders            int
		level              doctor.Level
		text, fix          string
	}{
		{"8192", "128", 10, doctor.OK, "10 folders to watch, of 8192", ""},
		{"8192", "128", 5000, doctor.Warn, "5000 folders to watch, of 8192 that all", "sudo sysctl fs.inotify.max_user_watches=20000"},
		{"8192", "4", 10, doctor.Warn, "may have 4 inotify instances", "sudo sysctl fs.inotify.max_user_instances=128"},
		{"none", "", 10, doctor.OK, "no limit that can be read", ""},
	}
	for _, tt := range tests {
		m := machine(t, map[string]string{inotify + "watches": tt.watches + "\n", inotify + "instances": tt.instances + "\n"})
		check(t, m.Inotify(tt.folders), tt.level, tt.text, tt.fix)
	}
}

func TestOpenFiles(t *testing.T) {
	limits := func(hard string) map[string]string {
		return map[string]string{"proc/self/limits": "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 " + hard + "               files\n"}
	}
	check(t, machine(t, limits("524288")).OpenFiles(), doctor.OK, "may have 524288 open", "")
	check(t, machine(t, limits("unlimited")).OpenFiles(), doctor.OK, "unlimited", "")
	check(t, machine(t, limits("1024")).OpenFiles(), doctor.Warn, "may have 1024 open", "ulimit -Hn 65536")
	check(t, machine(t, nil).OpenFiles(), doctor.OK, "cannot be read", "")
}

func TestCgroup(t *testing.T) {
	const v2, own = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n", "0::/system.slice/orla.service\n"
	tests := []struct {
		name      string
		files     map[string]string
		level     doctor.Level
		text, fix string
	}{
		{"no Linux", nil, doctor.OK, "has none", ""},
		{"version 1", map[string]string{"proc/self/cgroup": "4:memory:/\n", "proc/self/mounts": "cgroup /sys/fs/cgroup/memory cgroup rw 0 0\n"}, doctor.Warn, "no cgroup v2", ""},
		{"hybrid", map[string]string{"proc/self/cgroup": own, "proc/self/mounts": v2, "sys/fs/cgroup/cgroup.controllers": "hugetlb pids\n"}, doctor.Warn, "lacks the controllers memory, cpu,", ""},
		{"a shell", map[string]string{"proc/self/cgroup": own, "proc/self/mounts": v2, "sys/fs/cgroup/cgroup.controllers": "cpu memory pids\n"}, doctor.OK, "not delegated to this shell", ""},
		{
			"delegated", map[string]string{
				"proc/self/cgroup": own, "proc/self/mounts": v2, "sys/fs/cgroup/cgroup.controllers": "cpu memory pids io\n",
				"sys/fs/cgroup/system.slice/orla.service/cgroup.controllers": "cpu memory pids\n",
			}, doctor.OK, "they are delegated", "",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { check(t, machine(t, tt.files).Cgroup(), tt.level, tt.text, tt.fix) })
	}
}

// A port is found to be taken, and by whom, as the kernel tells it here.
func TestPortIsTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // it is over with the test
	port := l.Addr().(*net.TCPAddr).Port
	address := fmt.Sprintf("127.0.0.1:%d", port)
	fix := fmt.Sprintf("orla --port %d", port+1)
	if _, err := os.Stat("/proc/net/tcp"); err != nil {
		check(t, doctor.Machine{}.Port(t.Context(), address), doctor.Fail, "somebody listens on", fix)
		return
	}
	mine := fmt.Sprintf(`is taken by doctor\.test \(pid %d\)`, os.Getpid())
	check(t, doctor.Machine{}.Port(t.Context(), address), doctor.Fail, mine, fix)
	check(t, doctor.Machine{}.Port(t.Context(), fmt.Sprintf("0.0.0.0:%d", port)), doctor.Fail, mine, fix)
	check(t, doctor.Machine{}.Port(t.Context(), fmt.Sprintf("127.0.0.2:%d", port)), doctor.OK, "is free", "")
	check(t, doctor.Machine{}.Port(t.Context(), address, os.Getpid()), doctor.OK, "Orla itself", "")
	check(t, doctor.Machine{Root: t.TempDir()}.Port(t.Context(), address), doctor.Fail, "somebody listens on", fix)
	check(t, doctor.Machine{}.Port(t.Context(), "127.0.0.1:0"), doctor.OK, "any free one", "")
	check(t, doctor.Machine{}.Port(t.Context(), "nothing"), doctor.Fail, "not an address", "")
}

func TestPortOfAnotherUser(t *testing.T) {
	const head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	m := machine(t, map[string]string{"proc/net/tcp6": head +
		"   0: 00000000000000000000000000000000:1F90 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12345 1\n" +
		"   1: 00000000000000000000000001000000:2382 00000000000000000000000000000000:0000 01 00000000:00000000 00:00000000 00000000     0        0 12346 1\n"})
	check(t, m.Port(t.Context(), "127.0.0.1:8080"), doctor.Fail, "may not see", "orla --port 8081")
	check(t, m.Port(t.Context(), "[::1]:9090"), doctor.OK, "is free", "")
}

// A socket of systemd's is not in Orla's way: it is there for Orla.
func TestPortOfTheSocketUnit(t *testing.T) {
	tables := map[string]string{
		"proc/net/tcp": "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n" +
			"   0: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12345 1\n",
		"proc/1/comm": "systemd\n", "proc/1/fd/.keep": "", "proc/77/comm": "orla\n", "proc/77/fd/.keep": "",
	}
	has := func(m doctor.Machine, pid string) {
		t.Helper()
		if err := os.Symlink("socket:[12345]", filepath.Join(m.Root, "proc", pid, "fd", "3")); err != nil {
			t.Fatal(err)
		}
	}
	const address = "127.0.0.1:8080"

	asRoot := machine(t, tables)
	has(asRoot, "1")
	check(t, asRoot.Port(t.Context(), address), doctor.OK, "systemd listens", "")
	has(asRoot, "77")
	check(t, asRoot.Port(t.Context(), address, 77), doctor.OK, `Orla itself listens on .* \(pid 77\)`, "")

	tables["proc/1/comm"] = "nginx\n"
	notSystemd := machine(t, tables)
	has(notSystemd, "1")
	check(t, notSystemd.Port(t.Context(), address), doctor.Fail, "taken by nginx", "orla --port 8081")

	asOrla := machine(t, tables)
	check(t, asOrla.Port(t.Context(), address), doctor.Fail, "may not see", "orla --port 8081")
	tables["etc/systemd/system/sockets.target.wants/orla.socket"] = ""
	check(t, machine(t, tables).Port(t.Context(), address), doctor.OK, "systemd listens", "")
}

func TestSystemd(t *testing.T) {
	systemctl := func(t *testing.T, says string) {
		t.Helper()
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "systemctl"), []byte("#!/bin/sh\necho '"+says+"'\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	}
	unit := func(kind string) map[string]string {
		return map[string]string{"run/systemd/system/x": "", "usr/lib/systemd/system/orla.service": "[Service]\nType=" + kind + "\n"}
	}
	t.Run("none", func(t *testing.T) {
		check(t, machine(t, nil).Systemd(t.Context(), "orla.service")[0], doctor.OK, "is not running here", "")
	})
	t.Run("new", func(t *testing.T) {
		systemctl(t, "systemd 257 (257.9-1)")
		got := machine(t, unit("notify-reload")).Systemd(t.Context(), "orla.service")
		check(t, got[0], doctor.OK, "version 257, which has Type=notify-reload", "")
		check(t, got[1], doctor.OK, "installed: /usr/lib/systemd/system/orla.service", "")
	})
	t.Run("old", func(t *testing.T) {
		systemctl(t, "systemd 252 (252.39-1~deb12u1)")
		got := machine(t, unit("notify-reload")).Systemd(t.Context(), "orla.service")
		check(t, got[0], doctor.OK, "version 252, which has no Type=notify-reload", "")
		check(t, got[1], doctor.Fail, "says Type=notify-reload, which this systemd does not know", "")
		got = machine(t, unit("notify")).Systemd(t.Context(), "orla.service")
		check(t, got[1], doctor.OK, "installed", "")
	})
	t.Run("silent", func(t *testing.T) {
		systemctl(t, "")
		got := machine(t, map[string]string{"run/systemd/system/x": ""}).Systemd(t.Context(), "orla.service")
		check(t, got[0], doctor.Warn, "does not say which version", "")
		check(t, got[1], doctor.OK, "is not installed", "")
	})
}

func TestPrograms(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	missing := map[string][]string{"node": {"b", "a"}, "deno": {"c"}}
	got := doctor.Programs(map[string][]string{"sh": {"f", "e", "d", "c", "b", "a"}}, missing)
	check(t, got[0], doctor.Fail, "deno is missing, and cannot run c", "https://deno.com")
	check(t, got[1], doctor.Fail, "node is missing, and cannot run a, b", "")
	check(t, got[2], doctor.OK, "sh is there, for a, b, c, d, e, …", "")
	if err := os.WriteFile(filepath.Join(dir, "apt-get"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	check(t, doctor.Programs(nil, missing)[1], doctor.Fail, "node is missing", "sudo apt-get install nodejs")
	for program, fix := range map[string]string{"pyhton3": "", "no-such-ruby": "", "sh": "", "pwsh": "https://aka.ms/powershell"} {
		if got := doctor.Programs(nil, map[string][]string{program: {"a"}})[0]; got.Fix != fix {
			t.Errorf("%s: the fix is %q, want %q", program, got.Fix, fix)
		}
	}
	check(t, doctor.Programs(nil, nil)[0], doctor.OK, "no tool needs one", "")
}

func TestClock(t *testing.T) {
	built := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	check(t, doctor.Clock(built.Add(-time.Hour), built), doctor.Fail, "it is 2025-12-31 23:00:00, before", "sudo timedatectl set-ntp true")
	if got := doctor.Clock(built.Add(time.Hour), built); got.Level == doctor.Fail {
		t.Errorf("%+v", got)
	}
}

func TestFolders(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(dir, "open folder")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	gone := filepath.Join(dir, "gone", "deeper")
	check(t, doctor.Readable("x", dir), doctor.OK, "can be read", "")
	check(t, doctor.Readable("x", gone), doctor.Warn, "does not exist", "mkdir -p "+gone)
	check(t, doctor.Readable("x", file), doctor.Fail, "is not a folder", "")
	check(t, doctor.Readable("x", open), doctor.Warn, "every user may write", "chmod o-w '"+open+"'")
	check(t, doctor.Writable("x", dir), doctor.OK, "can be written", "")
	check(t, doctor.Writable("x", gone), doctor.OK, "will be made", "")
	check(t, doctor.Writable("x", filepath.Join(file, "below")), doctor.Fail, "not a directory|is not a folder", "")
	check(t, doctor.File("x", file), doctor.OK, "can be written", "")
	check(t, doctor.File("x", filepath.Join(gone, "log")), doctor.OK, "will be made", "")
	check(t, doctor.File("x", dir), doctor.Fail, "is a folder", "")
}

// SPEC-TOOLS 8.7: approvals that Orla goes by after the next start are written by nobody else.
func TestT87AFolderThatOthersMayWrite(t *testing.T) {
	dir := t.TempDir()
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	check(t, doctor.Kept("x", open), doctor.OK, "can be written", "")
	check(t, doctor.Kept("x", filepath.Join(dir, "gone")), doctor.OK, "will be made", "")
	if err := os.Chmod(open, 0o777); err != nil { //nolint:gosec // that is what is told
		t.Fatal(err)
	}
	check(t, doctor.Kept("x", open), doctor.Warn, "every user may write to .*, and so decide about approvals", "chmod o-w .*open")
	check(t, doctor.Kept("x", filepath.Join(dir, "open", "x", "y")), doctor.OK, "will be made", "")
}

// SPEC-TOOLS 5.1: secrets are for Orla's user alone.
func TestSecrets(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, mode := range map[string]os.FileMode{"open/api/key": 0o644, "shut/api/key": 0o640, "inside/api/key": 0o644} {
		if err := os.MkdirAll(filepath.Dir(at(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at(name), nil, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(at(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(at("inside/api"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/no/such/file", at("shut/dead")); err != nil {
		t.Fatal(err)
	}
	check(t, doctor.Secrets("x", at("gone")), doctor.Warn, "is not there", "install -d -m 700 .*gone")
	check(t, doctor.Secrets("x", at("open")), doctor.Warn, "every user may read .*open/api/key", "chmod -R o= .*open")
	check(t, doctor.Secrets("x", at("shut")), doctor.OK, "not by every user", "")
	check(t, doctor.Secrets("x", at("inside")), doctor.OK, "not by every user", "")
	check(t, doctor.Secrets("x", at("open/api/key")), doctor.Fail, "is not a folder", "")
}

// Permissions are those of whoever asks: here of nobody, unless the tests run as
// an ordinary user already.
func TestFoldersOfOthers(t *testing.T) {
	if os.Getenv("DOCTOR_TEST_FOLDER") == "" {
		dir := t.TempDir()
		if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
			t.Fatal(err)
		}
		closed := filepath.Join(dir, "closed")
		if err := os.Mkdir(closed, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "log"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if os.Geteuid() != 0 {
			if err := os.Chmod(closed, 0); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(filepath.Join(dir, "log"), 0o400); err != nil {
				t.Fatal(err)
			}
			asAnother(t, dir)
			return
		}
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		program := filepath.Join(dir, "doctor.test") // where that user can reach it
		text, err := os.ReadFile(self)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(program, text, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(program, "-test.run=^TestFoldersOfOthers$")
		cmd.Dir = "/"
		cmd.Env = append(os.Environ(), "DOCTOR_TEST_FOLDER="+dir)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	asAnother(t, os.Getenv("DOCTOR_TEST_FOLDER"))
}

func asAnother(t *testing.T, dir string) {
	t.Helper()
	closed := filepath.Join(dir, "closed")
	check(t, doctor.Readable("x", closed), doctor.Fail, "may not be read by this user", "sudo chmod a.rx "+closed)
	check(t, doctor.Secrets("x", closed), doctor.Fail, "may not be read by this user", "sudo chown -R [0-9]+ "+closed)
	check(t, doctor.Writable("x", closed), doctor.Fail, "may not be written by this user", fmt.Sprintf("sudo install -d -o %d -g %d %s", os.Geteuid(), os.Getegid(), closed))
	check(t, doctor.File("x", filepath.Join(dir, "log")), doctor.Fail, "may not be written by this user", "sudo chown .*")
	if got := doctor.Writable("x", filepath.Join(closed, "below")); got.Level != doctor.Fail || strings.Contains(got.Text, "will be made") {
		t.Errorf("%+v", got)
	}
}
