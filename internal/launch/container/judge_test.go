package container

import (
	"maps"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/launch/cgroup"
	"github.com/orla-project/orla/internal/testing/costtest"
)

// seen is what a container tells that holds all it should, with cgroups of
// version 2.
func seen() map[string]string {
	return map[string]string{
		"/proc/self/status":              "Name:\tx\nUid:\t65532\t65532\t65532\t65532\nGid:\t65532\t65532\t65532\t65532\nCapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2",
		"/proc/self/mountinfo":           "1 0 254:0 / / rw - ext4 x rw\n67 44 254:0 /x / ro,relatime - ext4 x rw\n71 67 0:43 / /tmp rw - tmpfs tmpfs rw",
		"/proc/net/dev":                  "Inter-|   Receive\n face |bytes\n    lo:       0",
		"/proc/meminfo":                  "MemTotal: 1 kB\nSwapTotal:       1024 kB",
		"/sys/fs/cgroup/memory.max":      "134217728",
		"/sys/fs/cgroup/memory.swap.max": "0",
		"/sys/fs/cgroup/cpu.max":         "50000 100000",
		"/sys/fs/cgroup/pids.max":        "64",
	}
}

// SPEC-TOOLS 7.2: each of the eight promises is looked for, and what does not hold
// is refused by its name.
func TestT72NoPromiseIsBelieved(t *testing.T) {
	p := plan{made: &made{path: "/usr/bin/podman"}, opts: Options{
		User: DefaultUser, Network: noNetwork, Sandboxed: true, Limits: cgroup.Limits{Memory: 128 << 20, CPUs: 0.5, Pids: 64},
	}}
	v, err := judge(p, seen())
	if err != nil || v.applied != p.opts.Limits {
		t.Fatalf("%+v, %v", v, err)
	}
	replace := func(file, old, better string) map[string]string {
		parts := seen()
		if !strings.Contains(parts[file], old) {
			t.Fatalf("%s has no %s", file, old)
		}
		parts[file] = strings.Replace(parts[file], old, better, 1)
		return parts
	}
	without := func(files ...string) map[string]string {
		parts := seen()
		for _, file := range files {
			delete(parts, file)
		}
		return parts
	}
	const status = "/proc/self/status"
	for why, parts := range map[string]map[string]string{
		"files can be written":   replace("/proc/self/mountinfo", "ro,relatime", "rw,relatime"),
		"CapEff 00000000a80425":  replace(status, "CapEff:\t0000000000000000", "CapEff:\t00000000a80425fb"),
		"CapBnd 0000000000000":   replace(status, "CapBnd:\t0000000000000000", "CapBnd:\t0000000000000001"),
		"may gain privileges":    replace(status, "NoNewPrivs:\t1", "NoNewPrivs:\t0"),
		"has a network (lo, eth": replace("/proc/net/dev", "lo:       0", "lo:       0\n  eth0:  0"),
		"runs as 0":              replace(status, "Uid:\t65532\t65532", "Uid:\t0\t65532"),
		"not as 65532:65532":     replace(status, "Gid:\t65532\t65532", "Gid:\t65532\t0"),
		"system call":            replace(status, "Seccomp:\t2", "Seccomp:\t0"),
		"memory is not limited":  replace("/sys/fs/cgroup/memory.max", "134217728", "max"),
		"to 134217728 bytes":     replace("/sys/fs/cgroup/memory.max", "134217728", "134217729"),
		", swap included":        replace("/sys/fs/cgroup/memory.swap.max", "0", "134217728"),
		"memory is":              without("/sys/fs/cgroup/memory.max"),
		"processors are not":     replace("/sys/fs/cgroup/cpu.max", "50000", "max"),
		"to 0.5":                 replace("/sys/fs/cgroup/cpu.max", "50000", "100000"),
		"processors are":         without("/sys/fs/cgroup/cpu.max"),
		"processes are not":      replace("/sys/fs/cgroup/pids.max", "64", "max"),
		"to 64":                  replace("/sys/fs/cgroup/pids.max", "64", "65"),
		"processes are":          without("/sys/fs/cgroup/pids.max"),
		"its capabilities":       {},
	} {
		_, err := judge(p, parts)
		if f := fault.From(err); f == nil || f.Code != fault.IsolationUnavailable || !strings.Contains(f.Reason, why) {
			t.Errorf("%s: %v", why, err)
		}
	}
}

// Without swap on the machine, nothing need bound it; version 1 bounds both by one.
func TestT72LimitsOfBothVersions(t *testing.T) {
	want := cgroup.Limits{Memory: 128 << 20, CPUs: 0.5, Pids: 64}
	legacy := map[string]string{
		"/sys/fs/cgroup/memory/memory.limit_in_bytes":       "134217728",
		"/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes": "134217728",
		"/sys/fs/cgroup/cpu/cpu.cfs_quota_us":               "50000",
		"/sys/fs/cgroup/cpu/cpu.cfs_period_us":              "100000",
		"/sys/fs/cgroup/pids/pids.max":                      "64",
	}
	if got := limitsIn(legacy); got != want {
		t.Errorf("version 1: %+v", got)
	}
	uncounted := maps.Clone(legacy)
	delete(uncounted, "/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes")
	if got := limitsIn(uncounted); got.Memory != 0 {
		t.Errorf("swap that nobody counts: %+v", got)
	}
	uncounted["/proc/meminfo"] = "SwapTotal:       0 kB"
	if got := limitsIn(uncounted); got != want {
		t.Errorf("no swap: %+v", got)
	}
}

func TestProbesAreRead(t *testing.T) {
	parts := parseProbe([]byte("==> /a <==\none\ntwo\n\n==> /b <==\n\n==> command <==\nit is not there\n"))
	if want := map[string]string{"/a": "one\ntwo", "/b": "", "command": "it is not there"}; !maps.Equal(parts, want) {
		t.Errorf("%q", parts)
	}
}

// SPEC S1: what is read of a container costs as much as it is long.
func TestS1ProbesAreReadInProportion(t *testing.T) {
	for name, line := range map[string]string{"lines": "\n", "of one name": "==> a <==\nx\n"} {
		t.Run(name, func(t *testing.T) {
			costtest.Check(t, 4_000, func(n int) func() {
				text := []byte("==> /proc/self/mountinfo <==\n" + strings.Repeat(line, n))
				return func() { _, _ = judge(plan{made: &made{}, opts: Options{User: DefaultUser}}, parseProbe(text)) }
			})
		})
	}
}

// SPEC-TOOLS 7.3: secrets in both forms become a file that engines read, and
// nothing that runs a program.
func TestT73PullSecrets(t *testing.T) {
	for _, c := range []struct{ image, secret, want string }{
		{"example.org/team/tool:1", "ada:pass:word\n", `{"auths":{"example.org":{"auth":"YWRhOnBhc3M6d29yZA=="}}}`},
		{"localhost:5000/tool", "a:b", `{"auths":{"localhost:5000":{"auth":"YTpi"}}}`},
		{"team/tool", "a:b", `{"auths":{"https://index.docker.io/v1/":{"auth":"YTpi"}}}`},
		{"tool", "a:b", `{"auths":{"https://index.docker.io/v1/":{"auth":"YTpi"}}}`},
		{"x", `{"auths":{"r.example":{"auth":"YTpi"}},"credHelpers":{"r.example":"evil"},"credsStore":"evil"}`, `{"auths":{"r.example":{"auth":"YTpi"}}}`},
		{"x", "nothing", ""},
		{"x", ":b", ""},
		{"x", "{}", ""},
		{"x", "{", ""},
	} {
		got, err := registryConfig(c.image, c.secret)
		if string(got) != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s with %q: %s, %v", c.image, c.secret, got, err)
		}
		if err != nil && strings.Contains(err.Error(), c.secret) && len(c.secret) > 2 {
			t.Errorf("the error shows the secret: %v", err)
		}
	}
}

// SPEC-TOOLS 7.2: the profile forbids the same with the engine's own and without.
func TestT72StricterProfiles(t *testing.T) {
	base := `{"defaultAction":"SCMP_ACT_ERRNO","archMap":[],"syscalls":[{"names":["read","mmap","unshare","clone","clone3"],"action":"SCMP_ACT_ALLOW","args":[]},{"names":["keyctl"],"action":"SCMP_ACT_ALLOW","args":[]}]}`
	got, err := stricter([]byte(base))
	if err != nil {
		t.Fatal(err)
	}
	text := string(got)
	if !strings.Contains(text, `"archMap":[]`) || !strings.Contains(text, `{"names":["read"],"action":"SCMP_ACT_ALLOW"`) || strings.Count(text, `"unshare"`) != 1 || strings.Count(text, `"keyctl"`) != 1 {
		t.Errorf("%s", text)
	}
	for _, rule := range []string{
		`{"names":["mmap"],"action":"SCMP_ACT_ALLOW","args":[{"index":3,"value":262144,"valueTwo":0,"op":"SCMP_CMP_MASKED_EQ"}]}`,
		`{"names":["mmap"],"action":"SCMP_ACT_ERRNO","errnoRet":12,"args":[{"index":3,"value":262144,"valueTwo":262144,"op":"SCMP_CMP_MASKED_EQ"}]}`,
		`{"names":["prlimit64"],"action":"SCMP_ACT_ALLOW","args":[{"index":1,"value":2,"valueTwo":0,"op":"SCMP_CMP_MASKED_EQ"}]}`,
		`{"names":["setrlimit"],"action":"SCMP_ACT_ERRNO","errnoRet":1,"args":[{"index":0,"value":15,"valueTwo":10,"op":"SCMP_CMP_MASKED_EQ"}]}`,
	} {
		if !strings.Contains(text, rule) {
			t.Errorf("%s has no %s", text, rule)
		}
	}
	if got, err = stricter(nil); err != nil || !strings.Contains(string(got), `"defaultAction":"SCMP_ACT_ALLOW"`) || strings.Count(string(got), `"names":["clone"]`) != 7 {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := stricter([]byte("{")); err == nil {
		t.Error("something that is not a profile is taken for one")
	}
}

// Owners are told from each other.
func TestT73Owners(t *testing.T) {
	here := thisProcess()
	if back, ok := parseOwner(here.String()); !ok || back != here {
		t.Errorf("%v becomes %v", here, back)
	}
	if here.space == "" {
		t.Skip("SKIPPED: nobody can know here who lives")
	}
	if gone, known := here.gone(); gone || !known {
		t.Error("this process is gone")
	}
	if gone, known := (owner{here.space, here.pid, "1"}).gone(); !gone || !known {
		t.Error("one with the same id is taken for another")
	}
	if _, known := (owner{"elsewhere", here.pid, here.start}).gone(); known {
		t.Error("one of another boot is known")
	}
	for _, text := range []string{"", "a.b", "a.b.c", "a.1"} {
		if _, ok := parseOwner(text); ok {
			t.Errorf("%q is an owner", text)
		}
	}
}

// SPEC C4: only an engine that can give its own streams to a process is asked to.
func TestC4WhoPassesStreamsOn(t *testing.T) {
	for want, engines := range map[string][]made{
		"passthrough": {{podman: true, version: "4.3.1"}, {podman: true, version: "5.0.0-rc1", rootless: true}, {podman: true, version: "10.1"}},
		"none":        {{podman: true, version: "3.4.4"}, {podman: true, version: "4.3.1", remote: true}, {podman: true}, {version: "27.1.1"}},
	} {
		for _, m := range engines {
			if got := m.logDriver(); got != want {
				t.Errorf("%+v: %s, want %s", m, got, want)
			}
		}
	}
}

// SPEC-TOOLS 7.1: the reason is the runtime's where podman has none.
func TestT71TheReasonOfARuntime(t *testing.T) {
	for text, want := range map[string]string{
		"": "it says nothing",
		"no space\nError: runc: no space: OCI runtime error\n": "Error: runc: no space: OCI runtime error",
		"no cgroups\ntime=\"2026\" level=error msg=\"Removing container\"\nError: container create failed (no logs from conmon): conmon bytes \"\": readObjectStart\n": "no cgroups",
		"Error: container create failed (no logs from conmon): EOF\n": "Error: container create failed (no logs from conmon): EOF",
	} {
		if got := reasonIn([]byte(text)); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
